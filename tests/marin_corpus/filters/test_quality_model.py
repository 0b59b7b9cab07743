import dataclasses
import itertools
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus import words
from marin_corpus.errors import BadConfig, CorruptData, Mismatch
from marin_corpus.filters import quality_features
from marin_corpus.filters.quality_features import SparseRows, hashed_ngrams
from marin_corpus.filters.quality_model import (
    LinearConfig,
    LinearModel,
    Objective,
    fit,
    load_model,
    minimise,
    roc_auc,
    save_model,
    sigmoid,
)
from marin_corpus.output import LocalOutput

BUCKETS = 1 << 10


def sparse(x_DB: np.ndarray) -> SparseRows:
    documents, buckets = np.nonzero(x_DB)
    return SparseRows(
        buckets_F=buckets.astype(np.uint32),
        values_F=x_DB[documents, buckets].astype(np.float32),
        starts_D1=np.searchsorted(documents, np.arange(len(x_DB) + 1)),
    )


def dense(rows: SparseRows, num_buckets: int) -> np.ndarray:
    x_DB = np.zeros((rows.num_documents, num_buckets))
    for d, (begin, end) in enumerate(itertools.pairwise(rows.starts_D1)):
        x_DB[d, rows.buckets_F[begin:end]] = rows.values_F[begin:end]
    return x_DB


def problem(seed: int, *, documents: int = 60, features: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping labels, more negatives than positives."""
    random = np.random.default_rng(seed)
    x_DB = np.zeros((documents, 1 << 8))
    x_DB[:, :features] = random.normal(size=(documents, features)).astype(np.float32)
    labels = x_DB[:, :features] @ random.normal(size=features) + random.normal(size=documents) > 1.0
    return x_DB, labels


def mixed(value: int) -> int:
    """splitmix64's finaliser on plain integers."""
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 % 2**64
    value ^= value >> 27
    value = value * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


@given(st.lists(st.lists(st.sampled_from(["a", "B", "ab", "c,", "--"]), max_size=12).map(" ".join), max_size=6))
def test_features_count_words_and_pairs_within_a_document(texts: list[str]) -> None:
    rows = hashed_ngrams(texts, BUCKETS)
    assert rows.num_documents == len(texts)
    for text, row in zip(texts, dense(rows, BUCKETS), strict=True):
        hashes = [xxhash.xxh3_64_intdigest(word.encode()) for word in re.findall("[a-z]+", text.lower())]
        ngrams = [*hashes, *(mixed((a * 3 + b) % 2**64) for a, b in itertools.pairwise(hashes))]
        counts = Counter(ngram % BUCKETS for ngram in ngrams)
        length = sum(count**2 for count in counts.values()) ** 0.5
        assert {int(b): row[b] for b in np.flatnonzero(row)} == pytest.approx(
            {bucket: count / length for bucket, count in counts.items()}, rel=1e-6
        )


def test_pieces_in_which_features_are_made_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"one {i} two {i % 3} three" * (i % 5) for i in range(50)]
    whole = hashed_ngrams(texts, BUCKETS)
    x_DB, labels = dense(whole, BUCKETS), np.arange(50) % 2 == 0
    theta, config = np.random.default_rng(0).normal(size=BUCKETS + 1), LinearConfig(num_buckets=BUCKETS)
    value, gradient = Objective(whole, labels, config)(theta)
    monkeypatch.setattr(words, "_CHUNK_CHARACTERS", 40)
    monkeypatch.setattr(quality_features, "_CHUNK_ENTRIES", 7)
    assert np.array_equal(dense(hashed_ngrams(texts, BUCKETS), BUCKETS), x_DB)
    again, gradient_again = Objective(whole, labels, config)(theta)
    assert again == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient_again, gradient, rtol=1e-9, atol=1e-15)


def test_many_documents_at_once_have_the_features_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of documents and buckets need 64 bits together, of one document 32."""
    texts = [f"one {i} two {i % 3} three" for i in range(100)]
    together = hashed_ngrams(texts, 1 << 26)
    monkeypatch.setattr(words, "_CHUNK_CHARACTERS", 1)
    alone = hashed_ngrams(texts, 1 << 26)
    for field in dataclasses.fields(SparseRows):
        one, other = getattr(together, field.name), getattr(alone, field.name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_gradient_is_that_of_finite_differences() -> None:
    x_DB, labels = problem(1)
    objective = Objective(sparse(x_DB), labels, LinearConfig(num_buckets=1 << 8, l2=0.01))
    theta = np.random.default_rng(2).normal(size=(1 << 8) + 1)
    _, gradient = objective(theta)
    for i in (*range(9), 256):
        step = np.zeros_like(theta)
        step[i] = 1e-5
        slope = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_fit_finds_the_minimum_that_newtons_method_finds(seed: int) -> None:
    x_DB, labels = problem(seed)
    config = LinearConfig(num_buckets=1 << 8, l2=0.01, tolerance=1e-9, max_iterations=500)
    # Newton on the dense problem: columns that occur, and one of ones for the bias.
    x = np.hstack([x_DB[:, :7], np.ones((len(x_DB), 1))])
    weight = np.where(labels, 0.5 / labels.sum(), 0.5 / (~labels).sum())
    penalty = np.diag([config.l2] * 7 + [0.0])
    theta = np.zeros(8)
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ theta))
        gradient = x.T @ (weight * (p - labels)) + penalty @ theta
        theta -= np.linalg.solve(x.T @ (x * (weight * p * (1 - p))[:, None]) + penalty, gradient)
    model, _ = fit(sparse(x_DB), labels, config)
    np.testing.assert_allclose(model.weights_B[:7], theta[:7], rtol=1e-5, atol=1e-6)
    assert model.bias == pytest.approx(theta[7], rel=1e-5)
    assert not model.weights_B[7:].any(), "a bucket that never occurs keeps no weight"
    logits = x @ theta
    loss = (weight * np.log1p(np.exp(np.where(labels, -logits, logits)))).sum() + theta @ penalty @ theta / 2
    fitted = np.append(model.weights_B.astype(float), model.bias)
    assert Objective(sparse(x_DB), labels, config)(fitted)[0] == pytest.approx(loss, rel=1e-9)


def test_labels_weigh_the_same_whatever_their_numbers() -> None:
    x_DB, labels = problem(4)
    config = LinearConfig(num_buckets=1 << 8, l2=0.01, tolerance=1e-9, max_iterations=500)
    copies = np.concatenate([x_DB, x_DB[~labels], x_DB[~labels]])
    one, _ = fit(sparse(x_DB), labels, config)
    other, _ = fit(sparse(copies), np.concatenate([labels, np.zeros(2 * int((~labels).sum()), dtype=bool)]), config)
    np.testing.assert_allclose(other.weights_B, one.weights_B, rtol=1e-4, atol=1e-6)


def test_minimise_solves_an_ill_conditioned_quadratic() -> None:
    scales, target = np.logspace(0, 4, 30), np.linspace(-1, 1, 30)

    def quadratic(x: np.ndarray) -> tuple[float, np.ndarray]:
        return float((scales * (x - target) ** 2).sum() / 2), scales * (x - target)

    found, iterations = minimise(quadratic, np.zeros(30), max_iterations=2000, tolerance=1e-10)
    np.testing.assert_allclose(found, target, atol=1e-6)
    assert iterations < 2000


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_auc_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([s for s, _ in pairs], dtype=float), np.array([y for _, y in pairs])
    positive, negative = scores[labels], scores[~labels]
    if not len(positive) or not len(negative):
        assert np.isnan(roc_auc(scores, labels))
        return
    wins = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    assert roc_auc(scores, labels) == pytest.approx(wins / (len(positive) * len(negative)))


def test_sigmoid_does_not_overflow() -> None:
    assert sigmoid(np.array([-1e9, -2.0, 0.0, 1e9])) == pytest.approx([0.0, 1 / (1 + np.exp(2.0)), 0.5, 1.0])


def test_model_survives_its_files(tmp_path: Path) -> None:
    model = LinearModel(weights_B=np.random.default_rng(0).normal(size=BUCKETS).astype(np.float32), bias=0.1 + 0.2)
    save_model(model, {"metrics": {"auc": 0.75}}, LocalOutput(tmp_path))
    loaded = load_model(tmp_path)
    assert loaded.bias == model.bias
    assert np.array_equal(loaded.weights_B, model.weights_B)
    assert (tmp_path / "weights.f32").read_bytes() == b"".join(w.astype("<f4").tobytes() for w in model.weights_B)


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match="holds no quality model"):
        load_model(tmp_path)
    save_model(LinearModel(weights_B=np.ones(BUCKETS, dtype=np.float32), bias=0.0), {}, LocalOutput(tmp_path))
    weights = tmp_path / "weights.f32"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4])
    with pytest.raises(CorruptData, match=r"has 4,092 bytes\n.*says 4,096"):
        load_model(tmp_path)
    weights.write_bytes(whole[:-1] + b"\1")
    with pytest.raises(CorruptData, match="digest"):
        load_model(tmp_path)
    weights.unlink()
    with pytest.raises(CorruptData, match="missing"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"), [("num_buckets", 1000), ("l2", 0.0), ("max_iterations", 0), ("tolerance", 1.0)]
)
def test_wrong_settings_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(BadConfig, match=f"{field}={value}"):
        dataclasses.replace(LinearConfig(), **{field: value})  # type: ignore[arg-type]
