"""Decontamination: which documents hold items of evaluation sets.

The overlap of a document with an item is the weighted share of the item's n-grams that the document holds, wherever it
holds them: so an item within a long document counts as one that is a document of its own. Every overlap that is
written was checked word by word: hashes only find candidates. `contamination_index` says how items become n-grams.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from marin_corpus.dedup.contamination_index import EvaluationIndex, Ngrams
from marin_corpus.dedup.contamination_report import Contamination, describe_match, write_report
from marin_corpus.documents.attributes import AttributeWriter, write_attributes_manifest
from marin_corpus.documents.read import DocumentPart, DocumentSet, read_batches
from marin_corpus.errors import BadConfig
from marin_corpus.output import Output
from marin_corpus.words import chunks, hash_words, split_words

SCHEMA = pa.schema(
    [
        ("contaminated", pa.bool_()),
        ("contamination_overlap", pa.float64()),
        ("contamination_item", pa.string()),
        ("contamination_set", pa.string()),
    ]
)
_OVERLAP_DIGITS = 9


@dataclass(frozen=True, kw_only=True)
class ContaminationConfig:
    """When a document counts as contaminated, and how much the report shows."""

    threshold: float = 0.5
    """Least overlap with an item; items shorter than one full n-gram must be there whole."""
    shown_matches: int = 200
    """Matches in the report, spread over the parts; at least one for each part that has any."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise BadConfig(f"threshold={self.threshold} must lie above 0 and not above 1")
        if self.shown_matches < 0:
            raise BadConfig(f"shown_matches={self.shown_matches} must not be negative")


@dataclass(frozen=True)
class Match:
    """An item that a document holds so much of."""

    item: int
    overlap: float
    contaminates: bool
    positions: tuple[int, ...]
    """The number of the first word, in the document, of each n-gram of the item."""

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Greatest for the match that stands for the document."""
        return self.contaminates, self.overlap, -self.item


def find_contamination(
    documents: DocumentSet, index_url: str, config: ContaminationConfig, output: Output
) -> Contamination:
    """Compare all documents with an index of evaluation sets; write attributes, `report.md` and `matches.jsonl`.

    The attributes: `contaminated`; `contamination_overlap`, the greatest with any item; `contamination_item` and
    `contamination_set`, which item that is (null without any overlap). A document that is not contaminated keeps its
    overlap, so that another threshold can be tried on the attributes alone.

    Raises:
        Mismatch, CorruptData: there is no usable index at `index_url`.
    """
    index = EvaluationIndex(index_url)
    shown = -(-config.shown_matches // max(1, len(documents.parts)))
    shards = {
        part.name: _Job(
            part=part,
            index=_IndexName(url=index_url, digest=index.digest),
            threshold=config.threshold,
            shown_matches=shown,
        )
        for part in documents.parts
    }
    summaries = output.run_shards(shards, _scan_part)
    items_found: Counter[int] = Counter()
    by_set: Counter[str] = Counter()
    for summary in summaries.values():
        items_found.update(dict(summary["items_found"]))
        by_set.update(summary["contaminated_by_set"])
    sources = index.sources()
    found_by_set = Counter(sources[item] for item in items_found)
    found = Contamination(
        num_documents=documents.num_documents,
        num_contaminated=by_set.total(),
        contaminated_by_set={name: by_set[name] for name in index.sets},
        items_found_by_set={name: found_by_set[name] for name in index.sets},
    )
    matches = [match for summary in summaries.values() for match in summary["shown"]]
    write_report(output, index, found, config.threshold, items_found, matches)
    write_attributes_manifest(output, documents, SCHEMA.names)
    return found


@dataclass(frozen=True, kw_only=True)
class _IndexName:
    """The digest, so that another index at the same place is other work."""

    url: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class _Job:
    part: DocumentPart
    index: _IndexName
    threshold: float
    shown_matches: int


@lru_cache(maxsize=1)
def _loaded(name: _IndexName) -> EvaluationIndex:
    return EvaluationIndex(name.url)


@dataclass
class _Summary:
    by_set: Counter[str] = field(default_factory=Counter)
    items_found: Counter[int] = field(default_factory=Counter)
    shown: list[dict[str, Any]] = field(default_factory=list)


def _scan_part(job: _Job, path: Path) -> dict[str, Any]:
    index = _loaded(job.index)
    ids, sources = index.ids(), index.sources()
    summary, row = _Summary(), 0
    with AttributeWriter(path, job.part, SCHEMA) as writer:
        for batch in read_batches(job.part, ("id", "text", "source")):
            texts: list[str] = batch["text"].to_pylist()
            columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
            for text, matches in zip(texts, scan(texts, index, job.threshold), strict=True):
                best = max(matches, key=lambda match: match.rank, default=None)
                values = (
                    best is not None and best.contaminates,
                    best.overlap if best else 0.0,
                    ids[best.item] if best else None,
                    sources[best.item] if best else None,
                )
                for name, value in zip(SCHEMA.names, values, strict=True):
                    columns[name].append(value)
                if best is not None and best.contaminates:
                    summary.by_set[sources[best.item]] += 1
                    summary.items_found.update(match.item for match in matches if match.contaminates)
                    if len(summary.shown) < job.shown_matches:
                        number = len(columns["contaminated"]) - 1
                        where = {"part": job.part.name, "row": row + number, "document": batch["id"][number].as_py()}
                        passage = describe_match(text, index.item(best.item), best.positions)
                        summary.shown.append(
                            {**where, "source": batch["source"][number].as_py(), "overlap": best.overlap, **passage}
                        )
            row += batch.num_rows
            writer.add(pa.table(columns, schema=SCHEMA))
    return {
        "num_documents": job.part.num_documents,
        "contaminated_by_set": dict(sorted(summary.by_set.items())),
        "items_found": sorted(summary.items_found.items()),
        "shown": summary.shown,
    }


def scan(texts: Sequence[str], index: EvaluationIndex, threshold: float) -> Iterator[list[Match]]:
    """For each text: all items that contaminate it, or else the one that overlaps most, or none."""
    for chunk in chunks(texts):
        yield from _scan_chunk(chunk, index, threshold)


def _scan_chunk(texts: Sequence[str], index: EvaluationIndex, threshold: float) -> Iterator[list[Match]]:
    words_W, ends_D = hash_words(texts)
    all_ngrams = Ngrams(words_W, ends_D)
    hits = []
    for size in index.sizes:
        hash_N, document_N, first_N = all_ngrams.of_size(size)
        found, ngrams = index.look_up(hash_N)
        hits.append((document_N[found], ngrams, first_N[found]))
    document_H, ngram_H, first_H = (np.concatenate(columns) for columns in zip(*hits, strict=True))
    # The first place of each n-gram in each document.
    _, places = np.unique(document_H * index.num_ngrams + ngram_H, return_index=True)
    document_H, ngram_H, first_H = document_H[places], ngram_H[places], first_H[places]
    which_P, item_P, weight_P = index.items_of(ngram_H)
    searched_P = index.searched_I[item_P]
    which_P, item_P, weight_P = which_P[searched_P], item_P[searched_P], weight_P[searched_P]
    order = np.lexsort((first_H[which_P], item_P, document_H[which_P]))
    which_P, item_P, weight_P = which_P[order], item_P[order], weight_P[order]
    document_P, first_P = document_H[which_P], first_H[which_P]
    new_P = np.ones(len(item_P), dtype=bool)
    new_P[1:] = (document_P[1:] != document_P[:-1]) | (item_P[1:] != item_P[:-1])
    # Pairs of a document and an item: Q of them, from `begin_Q` to the next in the arrays above.
    begin_Q = np.flatnonzero(new_P)
    overlap_Q = np.bincount(np.cumsum(new_P) - 1, weights=weight_P, minlength=len(begin_Q))[: len(begin_Q)]
    item_Q = item_P[begin_Q]
    overlap_Q = np.round(overlap_Q / index.weights_I[item_Q], _OVERLAP_DIGITS)
    ends_Q = np.append(begin_Q[1:], len(item_P))
    # Within each document, the greatest overlap first.
    ranked_Q = np.lexsort((item_Q, -overlap_Q, document_P[begin_Q]))
    pairs_of = np.searchsorted(document_P[begin_Q], np.arange(len(texts) + 1))
    for d, text in enumerate(texts):
        first_word = int(ends_D[d - 1]) if d else 0
        candidates = [
            _Candidate(
                item=int(item_Q[q]),
                overlap=float(overlap_Q[q]),
                positions=(first_P[begin_Q[q] : ends_Q[q]] - first_word).tolist(),
                weights=weight_P[begin_Q[q] : ends_Q[q]].tolist(),
            )
            for q in ranked_Q[pairs_of[d] : pairs_of[d + 1]]
        ]
        yield _checked(text, candidates, index, threshold) if candidates else []


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    item: int
    overlap: float
    positions: list[int]
    weights: list[float]


def _required(index: EvaluationIndex, item: int, threshold: float) -> float:
    return round(1.0 if index.whole_I[item] else threshold, _OVERLAP_DIGITS)


def _checked(text: str, candidates: list[_Candidate], index: EvaluationIndex, threshold: float) -> list[Match]:
    """Compare true words: all candidates that may contaminate, or else the greatest overlap. Greatest first."""
    words, best, matches = split_words(text), None, []
    for candidate in candidates:
        required = _required(index, candidate.item, threshold)
        # What hashes promise is a bound on what words will show.
        if candidate.overlap < required and best is not None and best.overlap >= candidate.overlap:
            continue
        match = _check(words, candidate, index, required)
        if match is None:
            continue
        if match.contaminates:
            matches.append(match)
        if best is None or match.rank > best.rank:
            best = match
    return matches or ([best] if best is not None else [])


def _check(words: list[bytes], candidate: _Candidate, index: EvaluationIndex, required: float) -> Match | None:
    true_ngrams = index.ngrams_of(candidate.item)
    size = len(next(iter(true_ngrams)))
    same = [tuple(words[first : first + size]) in true_ngrams for first in candidate.positions]
    overlap = candidate.overlap
    if not all(same):
        weight = sum(w for w, is_same in zip(candidate.weights, same, strict=True) if is_same)
        overlap = round(weight / float(index.weights_I[candidate.item]), _OVERLAP_DIGITS)
    positions = tuple(first for first, is_same in zip(candidate.positions, same, strict=True) if is_same)
    if not positions:
        return None
    return Match(item=candidate.item, overlap=overlap, contaminates=overlap >= required, positions=positions)
