"""Quality of documents: a classifier trained from examples of good and of bad text, and its scores as an attribute.

The label of a document is the set it comes from. Whether it is held out follows from its id alone, so adding documents
moves none from one side to the other, and an exact copy is on the side of its original.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from marin_corpus.documents.attributes import map_attributes
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.filters.quality_features import SparseRows, concatenate_rows, hashed_ngrams
from marin_corpus.filters.quality_model import (
    LinearConfig,
    LinearModel,
    fit,
    load_model,
    read_model_facts,
    roc_auc,
    save_model,
)
from marin_corpus.mixing import mix
from marin_corpus.output import Output

SCHEMA = pa.schema([("quality", pa.float64())])

_SCORE_DIGITS = 6
"""Finer digits would differ between processors, whose exponential functions round differently."""
_HELD_OUT_SALT, _SAMPLE_SALT = np.uint64(0x68656C64), np.uint64(0x73616D70)


@dataclass(frozen=True, kw_only=True)
class QualityConfig:
    """Which documents the classifier learns from, and how."""

    held_out_fraction: float = 0.1
    """Share of the documents that are only measured on."""
    max_documents_per_label: int = 50_000
    """A sample by hash of the id where there are more."""
    linear: LinearConfig = field(default_factory=LinearConfig)

    def __post_init__(self) -> None:
        if not 0 < self.held_out_fraction < 1:
            raise BadConfig(f"held_out_fraction={self.held_out_fraction} must lie between 0 and 1")
        if self.max_documents_per_label < 2:
            raise BadConfig(f"max_documents_per_label={self.max_documents_per_label} must be at least 2")


@dataclass(frozen=True, kw_only=True)
class QualityMetrics:
    """How the classifier does on documents it has not seen."""

    auc: float
    """ROC AUC on the held-out part: 0.5 is chance, 1 a perfect order."""
    accuracy: float
    """Share of the held-out documents on the right side of 0.5, the mean over both labels."""
    num_train: int
    num_held_out: int
    num_positive: int
    """Of both parts together; as are the others below."""
    num_negative: int
    num_repeated: int
    """Copies left out: documents whose id came before under the same label."""
    num_contradicting: int
    """Documents left out because both labels have their id."""
    num_iterations: int


@dataclass(frozen=True)
class _Label:
    """The documents of one label: masks over all of them, in order."""

    documents: DocumentSet
    usable: np.ndarray
    held_out: np.ndarray
    num_repeated: int
    num_contradicting: int

    def count(self, *, held_out: bool) -> int:
        return int((self.usable & (self.held_out == held_out)).sum())


def train_quality(
    positive: DocumentSet, negative: DocumentSet, config: QualityConfig, output: Output
) -> QualityMetrics:
    """Fit the classifier and write its files, `weights.f32` and `model.json`.

    The features of all documents it learns from are held in memory: 16 bytes for each distinct word and pair of words
    of a document, so 0.5 GB for twice 50,000 documents of 200 words; besides 16 bytes for each document there is.

    Raises:
        BadInput: a label has no document to learn from, or none to measure on.
    """
    ids = _short_ids(positive), _short_ids(negative)
    labels = (_label(positive, ids[0], ids[1], config), _label(negative, ids[1], ids[0], config))
    for label, name in zip(labels, ("positive", "negative"), strict=True):
        _refuse_empty(label, name, config)
    (train, train_labels), (held, held_labels) = (
        _features(labels, config.linear.num_buckets, held_out=held_out) for held_out in (False, True)
    )
    model, num_iterations = fit(train, train_labels, config.linear)
    scores = model.probabilities(held)
    right = (scores > 0.5) == held_labels
    metrics = QualityMetrics(
        auc=roc_auc(scores, held_labels),
        accuracy=float((right[held_labels].mean() + right[~held_labels].mean()) / 2),
        num_train=train.num_documents,
        num_held_out=held.num_documents,
        num_positive=int(labels[0].usable.sum()),
        num_negative=int(labels[1].usable.sum()),
        num_repeated=sum(label.num_repeated for label in labels),
        num_contradicting=sum(label.num_contradicting for label in labels),
        num_iterations=num_iterations,
    )
    save_model(model, {"config": asdict(config), "metrics": asdict(metrics)}, output)
    return metrics


def _short_ids(documents: DocumentSet) -> np.ndarray:
    """The leading 64 bits of all ids, in order: enough to tell apart what a machine's memory can hold."""
    pieces = [np.zeros(0, dtype=np.uint64)]
    for part in documents.parts:
        for batch in read_batches(part, ("id",)):
            digits = bytes.fromhex("".join(batch["id"].to_pylist()))
            pieces.append(np.frombuffer(digits, dtype=">u8")[::2].astype(np.uint64))
    return np.concatenate(pieces)


def _label(documents: DocumentSet, ids: np.ndarray, others: np.ndarray, config: QualityConfig) -> _Label:
    contradicting = np.isin(ids, others)
    usable = np.zeros(len(ids), dtype=bool)
    usable[np.unique(ids, return_index=True)[1]] = True
    usable &= ~contradicting
    num_distinct, limit = int(usable.sum()), config.max_documents_per_label
    if num_distinct > limit:
        order = mix(ids ^ _SAMPLE_SALT)
        usable &= order <= np.partition(order[usable], limit - 1)[limit - 1]
    return _Label(
        documents=documents,
        usable=usable,
        held_out=mix(ids ^ _HELD_OUT_SALT) < np.uint64(int(config.held_out_fraction * 2**64)),
        num_repeated=len(ids) - int(contradicting.sum()) - num_distinct,
        num_contradicting=int(contradicting.sum()),
    )


def _refuse_empty(label: _Label, name: str, config: QualityConfig) -> None:
    for held_out, purpose in ((False, "learn from"), (True, "measure on")):
        if not label.count(held_out=held_out):
            raise BadInput(
                f"{label.documents.url} has no {name} document to {purpose}",
                why=f"{int(label.usable.sum())} of {label.documents.num_documents} can be used (copies and what both "
                f"labels have cannot), of which held_out_fraction={config.held_out_fraction} is to be held out",
                next="give more documents",
            )


def _features(labels: Sequence[_Label], num_buckets: int, *, held_out: bool) -> tuple[SparseRows, np.ndarray]:
    """The documents of one side, and for each whether it is of the first label."""
    features: list[SparseRows] = []
    for label in labels:
        wanted, begin = label.usable & (label.held_out == held_out), 0
        for part in label.documents.parts:
            for batch in read_batches(part, ("text",)):
                mask = pa.array(wanted[begin : begin + batch.num_rows])
                features.append(hashed_ngrams(batch["text"].filter(mask).to_pylist(), num_buckets))
                begin += batch.num_rows
    counts = [label.count(held_out=held_out) for label in labels]
    return concatenate_rows(features), np.repeat([True, False], counts)


@dataclass(frozen=True, kw_only=True)
class _Scorer:
    """Which model scores; the digest, so that another one at the same place is other work."""

    url: str
    digest: str


def score_quality(documents: DocumentSet, model_url: str, output: Output) -> list[Any]:
    """Write the attribute `quality`, from 0 to 1: how probably each document is of the positive kind.

    Returns:
        What `map_attributes` does.

    Raises:
        Mismatch, CorruptData: there is no usable model at `model_url`.
    """
    load_model(model_url)
    scorer = _Scorer(url=model_url, digest=read_model_facts(model_url)["weights_xxh3_128"])
    return map_attributes(documents, _score_batch, scorer, schema=SCHEMA, output=output)


def _score_batch(batch: pa.RecordBatch, scorer: _Scorer) -> Mapping[str, Any]:
    model = _loaded(scorer)
    rows = hashed_ngrams(batch["text"].to_pylist(), len(model.weights_B))
    return {"quality": np.round(model.probabilities(rows), _SCORE_DIGITS)}


@lru_cache(maxsize=1)
def _loaded(scorer: _Scorer) -> LinearModel:
    return load_model(scorer.url)
