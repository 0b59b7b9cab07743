import json
import sysconfig
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from marin_corpus.documents.attributes import AttributeSet, read_attributes
from marin_corpus.errors import BadConfig, BadInput, CorruptData, Mismatch
from marin_corpus.filters.quality import QualityConfig, score_quality, train_quality
from marin_corpus.filters.quality_model import LinearConfig, load_model, roc_auc
from marin_corpus.output import LocalOutput
from speeches import files_of, paragraphs, speeches, verses, write_documents

SMALL = QualityConfig(linear=LinearConfig(num_buckets=1 << 16))


def scores_of(folder: Path) -> list[float]:
    return [score for part in AttributeSet.open(folder).parts for score in read_attributes(part)["quality"].to_pylist()]


def test_scripture_is_told_from_source_code(tmp_path: Path) -> None:
    library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]
    code = [piece for file in library for piece in paragraphs([file.read_text(encoding="utf-8")])]
    positive = write_documents(tmp_path / "kjv", [text for text in verses()[:4000] if len(text) > 100])
    negative = write_documents(tmp_path / "code", code)
    metrics = train_quality(positive, negative, SMALL, LocalOutput(tmp_path / "model"))
    assert metrics.auc > 0.999
    assert metrics.accuracy > 0.98


@pytest.fixture(scope="module")
def centuries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Paragraphs of addresses before 1900 and since 1950, and a model that tells them apart."""
    folder = tmp_path_factory.mktemp("centuries")
    new = write_documents(folder / "new", paragraphs(speeches(first_year=1950))[::3], num_parts=3)
    old = write_documents(folder / "old", paragraphs(speeches(last_year=1899))[::3])
    train_quality(new, old, SMALL, LocalOutput(folder / "model"))
    return folder


def test_centuries_are_told_apart_on_paragraphs_not_seen(centuries: Path) -> None:
    facts = json.loads((centuries / "model/model.json").read_text())
    metrics = facts["metrics"]
    assert metrics["num_train"] + metrics["num_held_out"] == metrics["num_positive"] + metrics["num_negative"]
    assert 0.07 < metrics["num_held_out"] / metrics["num_train"] < 0.15
    # 0.9987 with all paragraphs and 2**19 buckets; here a third of them.
    assert metrics["auc"] > 0.99
    assert metrics["accuracy"] > 0.95


def test_speakers_never_seen_are_told_apart(centuries: Path, tmp_path: Path) -> None:
    """Years outside those that were learned from, so that no speech is shared: harder than the held-out part."""
    new, old = paragraphs(speeches(1930, 1949)), paragraphs(speeches(1900, 1915))
    documents = write_documents(tmp_path / "documents", [*new, *old])
    score_quality(documents, str(centuries / "model"), LocalOutput(tmp_path / "scores"))
    scores = np.array(scores_of(tmp_path / "scores"))
    assert roc_auc(scores, np.arange(len(scores)) < len(new)) > 0.85


def test_shuffled_labels_are_chance(tmp_path: Path) -> None:
    texts = paragraphs(speeches())[::4]
    heads = np.random.default_rng(7).integers(0, 2, len(texts)).astype(bool)
    one = write_documents(tmp_path / "one", [text for text, head in zip(texts, heads, strict=True) if head])
    other = write_documents(tmp_path / "other", [text for text, head in zip(texts, heads, strict=True) if not head])
    config = QualityConfig(held_out_fraction=0.5, linear=LinearConfig(num_buckets=1 << 16, l2=1e-3))
    metrics = train_quality(one, other, config, LocalOutput(tmp_path / "model"))
    # Five standard errors of the AUC of that many pairs under no relation, (n + 1) / (12 m k) for m + k = n.
    error = ((metrics.num_held_out + 1) / (12 * (metrics.num_held_out / 2) ** 2)) ** 0.5
    assert abs(metrics.auc - 0.5) < 5 * error < 0.1


def test_scores_are_the_models_probabilities_for_any_number_of_workers(centuries: Path, tmp_path: Path) -> None:
    texts = [*paragraphs(speeches(1940, 1949))[:60], "", "..."]
    documents = write_documents(tmp_path / "documents", texts, num_parts=2)
    for workers in (1, 2):
        summaries = score_quality(
            documents, str(centuries / "model"), LocalOutput(tmp_path / f"by{workers}", workers=workers)
        )
        assert sum(summary["num_documents"] for summary in summaries) == len(texts)
    assert files_of(tmp_path / "by1") == files_of(tmp_path / "by2")
    scores = scores_of(tmp_path / "by1")
    assert sum(summary["sums"]["quality"] for summary in summaries) == pytest.approx(sum(scores))
    assert all(0 <= score <= 1 for score in scores)
    model = load_model(centuries / "model")
    # Text without words says nothing: the bias alone.
    assert scores[-2:] == [pytest.approx(1 / (1 + np.exp(-model.bias)), abs=1e-6)] * 2


def test_training_again_gives_the_same_bytes(centuries: Path, tmp_path: Path) -> None:
    new, old = paragraphs(speeches(first_year=1950))[::3], paragraphs(speeches(last_year=1899))[::3]
    again = train_quality(
        write_documents(tmp_path / "new", new),
        write_documents(tmp_path / "old", old, num_parts=4),
        SMALL,
        LocalOutput(tmp_path / "model"),
    )
    assert again.num_iterations > 5
    # Parts cut elsewhere are the same documents in the same order.
    assert files_of(tmp_path / "model") == files_of(centuries / "model")


def test_copies_count_once_and_contradictions_not_at_all(tmp_path: Path) -> None:
    good, bad = [f"good text number {i}" for i in range(100)], [f"bad text number {i}" for i in range(100)]
    positive = write_documents(tmp_path / "good", [*good, *good[:30], "both", "both"])
    negative = write_documents(tmp_path / "bad", [*bad, "both"])
    metrics = train_quality(positive, negative, SMALL, LocalOutput(tmp_path / "model"))
    assert (metrics.num_positive, metrics.num_negative) == (100, 100)
    assert (metrics.num_repeated, metrics.num_contradicting) == (30, 3)
    clean = train_quality(
        write_documents(tmp_path / "good2", good),
        write_documents(tmp_path / "bad2", bad),
        SMALL,
        LocalOutput(tmp_path / "model2"),
    )
    assert clean.num_held_out == metrics.num_held_out
    weights = [(tmp_path / name / "weights.f32").read_bytes() for name in ("model", "model2")]
    assert weights[0] == weights[1]


def test_more_documents_move_none_to_the_other_side(tmp_path: Path) -> None:
    good, bad = [f"good text number {i}" for i in range(400)], [f"bad text number {i}" for i in range(100)]
    negative = write_documents(tmp_path / "bad", bad)
    held_out = []
    for count in (200, 400):
        positive = write_documents(tmp_path / f"good{count}", good[:count])
        metrics = train_quality(positive, negative, SMALL, LocalOutput(tmp_path / f"model{count}"))
        held_out.append(metrics.num_held_out)
    only_new = write_documents(tmp_path / "rest", good[200:])
    rest = train_quality(only_new, negative, SMALL, LocalOutput(tmp_path / "model-rest"))
    alone = held_out[0] + rest.num_held_out - held_out[1]  # of the negatives, which both count
    assert 0 < alone < 30
    assert held_out[1] - held_out[0] == rest.num_held_out - alone


def test_a_sample_is_taken_of_too_many(tmp_path: Path) -> None:
    positive = write_documents(tmp_path / "good", [f"good text number {i}" for i in range(500)])
    negative = write_documents(tmp_path / "bad", [f"bad text number {i}" for i in range(80)])
    config = QualityConfig(max_documents_per_label=150, linear=SMALL.linear)
    metrics = train_quality(positive, negative, config, LocalOutput(tmp_path / "model"))
    assert (metrics.num_positive, metrics.num_negative) == (150, 80)


def test_too_few_documents_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    positive = write_documents(tmp_path / "good", [f"good text number {i}" for i in range(100)])
    negative = write_documents(tmp_path / "bad", ["only one"])
    with pytest.raises(BadInput, match=r"no negative document to (learn from|measure on)"):
        train_quality(positive, negative, SMALL, LocalOutput(tmp_path / "model"))
    assert not (tmp_path / "model").exists()


def test_scoring_refuses_what_is_no_model(centuries: Path, tmp_path: Path) -> None:
    documents = write_documents(tmp_path / "documents", ["text"])
    with pytest.raises(Mismatch, match="quality model"):
        score_quality(documents, str(tmp_path / "documents"), LocalOutput(tmp_path / "scores"))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.json").write_bytes((centuries / "model/model.json").read_bytes())
    (broken / "weights.f32").write_bytes(b"1234")
    with pytest.raises(CorruptData, match="4 bytes"):
        score_quality(documents, str(broken), LocalOutput(tmp_path / "scores"))
    assert not (tmp_path / "scores").exists()


@pytest.mark.parametrize(("field", "value"), [("held_out_fraction", 1.0), ("max_documents_per_label", 1)])
def test_wrong_settings_are_refused(field: str, value: float) -> None:
    with pytest.raises(BadConfig, match=field):
        QualityConfig(**{field: value})  # type: ignore[arg-type]


def test_attribute_has_its_type(centuries: Path, tmp_path: Path) -> None:
    score_quality(
        write_documents(tmp_path / "documents", ["a b"]), str(centuries / "model"), LocalOutput(tmp_path / "scores")
    )
    (part,) = AttributeSet.open(tmp_path / "scores").parts
    assert read_attributes(part).schema.remove_metadata() == pa.schema([("quality", pa.float64())])
