"""Drops add up, the first reason counts, edits are applied, and nothing is written that should not be."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marin_corpus.documents.attributes import SPANS, AttributeSet, map_attributes
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.documents.schema import document_id
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.errors import BadConfig, BadInput, CorruptData, Mismatch
from marin_corpus.filters.consolidate import consolidate
from marin_corpus.filters.heuristics import measure_heuristics
from marin_corpus.filters.pii import find_pii
from marin_corpus.filters.rules import C4, FINEWEB, GOPHER
from marin_corpus.output import LocalOutput
from speeches import files_of, paragraphs, speeches, write_documents


def look_up(batch: pa.RecordBatch, columns: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """Values given by text."""
    return {name: [values[text] for text in batch.column("text").to_pylist()] for name, values in columns.items()}


def attach(folder: Path, documents: DocumentSet, kinds: dict[str, pa.DataType], **columns: Any) -> AttributeSet:
    """Attributes with the values that are given by text."""
    map_attributes(documents, look_up, columns, schema=pa.schema(list(kinds.items())), output=LocalOutput(folder))
    return AttributeSet.open(folder)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for part in DocumentSet.open(folder).parts for batch in read_batches(part) for row in batch.to_pylist()]


def span(start: int, end: int, replacement: str = "") -> dict[str, Any]:
    return {"start": start, "end": end, "replacement": replacement}


@pytest.fixture
def small(tmp_path: Path) -> tuple[DocumentSet, AttributeSet]:
    """Eight documents of one letter each, a score from 0 to 7."""
    texts = list("abcdefgh")
    documents = write_documents(tmp_path / "documents", texts, num_parts=3)
    scores = {text: float(index) for index, text in enumerate(texts)}
    return documents, attach(tmp_path / "scores", documents, {"score": pa.float64()}, score=scores)


def test_the_first_reason_that_holds_counts(tmp_path, small) -> None:
    documents, scores = small
    drop = (("low", "score < 2"), ("below 4", "score < 4"), ("never", "score > 100"), ("g", "text = 'g'"))
    result = consolidate(documents, [scores], drop=drop, output=LocalOutput(tmp_path / "out"))
    assert result.dropped == {"low": 2, "below 4": 2, "never": 0, "g": 1}
    assert list(result.dropped) == [reason for reason, _ in drop]
    assert [row["text"] for row in rows(tmp_path / "out")] == ["e", "f", "h"]
    other = consolidate(documents, [scores], drop=drop[1::-1], output=LocalOutput(tmp_path / "other"))
    assert other.dropped == {"below 4": 4, "low": 0}


LIMIT = st.integers(-1, 8)


@given(limits=st.lists(st.tuples(LIMIT, LIMIT), max_size=4))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_kept_and_dropped_documents_add_up_to_all(tmp_path_factory, small, limits) -> None:
    documents, scores = small
    folder = tmp_path_factory.mktemp("out")
    drop = tuple((f"reason {i}", f"score >= {low} AND score <= {high}") for i, (low, high) in enumerate(limits))
    result = consolidate(documents, [scores], drop=drop, output=LocalOutput(folder))
    expected, kept = Counter[str](), []
    for score, text in enumerate("abcdefgh"):
        reason = next((f"reason {i}" for i, (low, high) in enumerate(limits) if low <= score <= high), None)
        if reason is None:
            kept.append(text)
        else:
            expected[reason] += 1
    assert [row["text"] for row in rows(folder)] == kept
    assert +Counter(result.dropped) == expected
    assert len(kept) + sum(result.dropped.values()) == 8
    report = json.loads((folder / "drops.json").read_text())
    assert report["num_kept"] == len(kept)
    assert {entry["reason"]: entry["num_documents"] for entry in report["reasons"]} == result.dropped
    assert [entry["text_bytes"] for entry in report["reasons"]] == list(result.dropped.values())


def test_published_rules_on_real_text_whatever_the_workers(tmp_path) -> None:
    page = "Menu\nHome\nAbout us\n" * 30
    texts = [
        *paragraphs(speeches(1900, 1905), min_characters=700)[:120],
        page,
        "lorem ipsum dolor sit amet " * 20,
        "if (x) { y(); }",
    ]
    texts[7] = f"Write to president@example.com or call (212) 555-0123. {texts[7]}"
    documents = write_documents(tmp_path / "documents", texts, num_parts=4)
    measure_heuristics(documents, LocalOutput(tmp_path / "heuristics"))
    find_pii(documents, LocalOutput(tmp_path / "pii"))
    attributes = [AttributeSet.open(tmp_path / "heuristics"), AttributeSet.open(tmp_path / "pii")]
    for workers in (1, 2):
        result = consolidate(
            documents,
            attributes,
            drop=(*C4, *GOPHER, *FINEWEB),
            edits=("email_spans", "phone_spans"),
            output=LocalOutput(tmp_path / f"{workers}", workers=workers),
        )
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
    found = {row["text"] for row in rows(tmp_path / "1")}
    assert len(found) + sum(result.dropped.values()) == len(texts)
    assert len(found) > 80
    assert not {page, "lorem ipsum dolor sit amet " * 20, "if (x) { y(); }"} & found
    assert sum(text.startswith("Write to <EMAIL> or call <PHONE>. ") for text in found) == 1
    assert result.dropped["c4: lorem ipsum"] == result.dropped["c4: curly brace"] == 1
    (sample,) = json.loads((tmp_path / "1/drops.json").read_text())["reasons"][1]["samples"]
    assert sample["id"] == document_id("if (x) { y(); }")
    assert sample["part"] == "part-00003.parquet"
    assert sample["values"] == {"num_curly_braces": 2}
    assert sample["excerpt"] == "if (x) { y(); }"


def test_samples_are_the_first_few_with_short_excerpts(tmp_path) -> None:
    texts = [f"{number} " + "x" * 300 for number in range(20)]
    documents = write_documents(tmp_path / "documents", texts, num_parts=6)
    consolidate(documents, [], drop=(("all", "length(text) > 1"),), output=LocalOutput(tmp_path / "out"))
    (entry,) = json.loads((tmp_path / "out/drops.json").read_text())["reasons"]
    assert [sample["id"] for sample in entry["samples"]] == [document_id(text) for text in texts[:5]]
    assert [sample["excerpt"] for sample in entry["samples"]] == [text[:200] for text in texts[:5]]
    assert entry["text_bytes"] == sum(map(len, texts))
    assert DocumentSet.open(tmp_path / "out").num_documents == 0


def test_infinite_values_are_shown_as_text(tmp_path) -> None:
    documents = write_documents(tmp_path / "documents", ["a"])
    attributes = attach(tmp_path / "scores", documents, {"loss": pa.float64()}, loss={"a": float("inf")})
    consolidate(documents, [attributes], drop=(("high", "loss > 9"),), output=LocalOutput(tmp_path / "out"))
    (entry,) = json.loads((tmp_path / "out/drops.json").read_text(), parse_constant=pytest.fail)["reasons"]
    assert entry["samples"][0]["values"] == {"loss": "inf"}


def test_edits_give_new_ids_and_say_where_from(tmp_path) -> None:
    output = LocalOutput(tmp_path / "documents")
    (tmp_path / "documents").mkdir()
    with DocumentWriter(tmp_path / "documents/part.parquet", part_text_bytes=None) as writer:
        writer.add("🙂 secret é", source="a", meta={"url": "u"})
        writer.add("as it is", source="b", meta={"edited_from": "before"})
        writer.add("secret", source="b")
        writer.add("gone anyway", source="b")
    write_documents_manifest(output, writer.summary())
    documents = DocumentSet.open(tmp_path / "documents")
    spans = {"🙂 secret é": [span(2, 8, "***")], "as it is": [], "secret": [span(0, 6, " \n")], "gone anyway": []}
    attributes = attach(tmp_path / "spans", documents, {"secrets": SPANS}, secrets=spans)
    drop = (("gone", "text LIKE 'gone%'"),)
    result = consolidate(documents, [attributes], drop=drop, edits=["secrets"], output=LocalOutput(tmp_path / "out"))
    assert result.dropped == {"gone": 1, "empty after edits": 1}
    first, second = rows(tmp_path / "out")
    assert (first["text"], first["id"], first["source"]) == ("🙂 *** é", document_id("🙂 *** é"), "a")
    assert json.loads(first["meta"]) == {"url": "u", "edited_from": document_id("🙂 secret é")}
    assert (second["text"], second["meta"]) == ("as it is", '{"edited_from":"before"}')
    report = json.loads((tmp_path / "out/drops.json").read_text())
    assert (report["num_edited"], report["num_kept"]) == (1, 2)
    assert report["reasons"][1]["samples"][0]["id"] == document_id("secret")


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_null_is_an_error_unless_an_earlier_reason_drops_it(tmp_path, missing) -> None:
    documents = write_documents(tmp_path / "documents", ["a", "b"])
    values = {"a": 1.0, "b": missing}
    attributes = attach(tmp_path / "scores", documents, {"score": pa.float64()}, score=values)
    expected = rf"'low'.*'score < 0.5'.*{document_id('b')}(.|\n)*COALESCE\(score, "
    with pytest.raises(BadInput, match=expected):
        consolidate(documents, [attributes], drop=(("low", "score < 0.5"),), output=LocalOutput(tmp_path / "out"))
    assert not (tmp_path / "out/documents.json").exists()
    drop = (("unknown", "score IS NULL"), ("low", "score < 0.5"))
    result = consolidate(documents, [attributes], drop=drop, output=LocalOutput(tmp_path / "out"))
    assert result.dropped == {"unknown": 1, "low": 0}
    coalesced = (("low", "COALESCE(score, 0) < 0.5"),)
    result = consolidate(documents, [attributes], drop=coalesced, output=LocalOutput(tmp_path / "other"))
    assert result.dropped == {"low": 1}


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / score > 1", r"'r'.*is null for document(.|\n)*it divides by zero"),
        ("CAST(text AS INT) > 1", r"'r'.*cannot be evaluated for documents of (.|\n)*conversion"),
    ],
)
def test_an_expression_without_a_value_drops_nothing_silently(tmp_path, small, expression, message) -> None:
    documents, scores = small
    with pytest.raises(BadInput, match=message):
        consolidate(documents, [scores], drop=(("r", expression),), output=LocalOutput(tmp_path / "out"))
    assert not (tmp_path / "out/documents.json").exists()


def test_columns_of_two_sets_need_prefixes_if_their_names_are_equal(tmp_path, small) -> None:
    documents, scores = small
    reversed_scores = {text: -float(index) for index, text in enumerate("abcdefgh")}
    others = attach(tmp_path / "others", documents, {"score": pa.float64()}, score=reversed_scores)
    with pytest.raises(BadConfig, match=r"'score'(.|\n)*prefixes="):
        consolidate(documents, [scores, others], drop=(("r", "score < 2"),), output=LocalOutput(tmp_path / "out"))
    drop = (("r", "score < 2 OR other_score < -5"),)
    with pytest.raises(BadConfig, match="'score'"):
        consolidate(documents, [scores, scores], drop=(), output=LocalOutput(tmp_path / "out"))
    own = attach(tmp_path / "own", documents, {"text": pa.int64()}, text=dict.fromkeys("abcdefgh", 1))
    with pytest.raises(BadConfig, match=r"'text' of .* one of the documents"):
        consolidate(documents, [own], drop=(), output=LocalOutput(tmp_path / "out"))
    result = consolidate(
        documents, [scores, others], drop=drop, prefixes=("", "other_"), output=LocalOutput(tmp_path / "out")
    )
    assert result.dropped == {"r": 4}


def test_attributes_of_other_documents_are_refused(tmp_path, small) -> None:
    _, scores = small
    others = write_documents(tmp_path / "others", list("abcdefgi"), num_parts=3)
    with pytest.raises(Mismatch, match=r"part-00002\.parquet differs"):
        consolidate(others, [scores], drop=(("r", "score < 2"),), output=LocalOutput(tmp_path / "out"))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"drop": (("r", "scor < 1"),)}, "did you mean score"),
    ({"drop": (("r", "score < 'a'"),)}, "cannot be evaluated"),
    ({"drop": (("r", "score"),)}, "not a boolean"),
    ({"drop": (("r", "score < AVG(score)"),)}, "'AVG', which is not allowed"),
    ({"drop": (("r", "score < 1"), ("r", "score < 2"))}, "'r', which is empty, given twice"),
    ({"drop": (("", "score < 1"),)}, "'', which is empty"),
    ({"drop": (("empty after edits", "score < 1"),)}, "reserved"),
    ({"drop": (), "edits": ("spans",)}, "'spans', which is no column"),
    ({"drop": (), "edits": ("score",)}, "whose type is double"),
    ({"drop": (), "edits": ("score", "score")}, "twice"),
    ({"drop": (), "prefixes": ("a", "b")}, "one for each of the 1 attributes"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_done_is_refused_before_anything_is_written(tmp_path, small, arguments, message) -> None:
    documents, scores = small
    with pytest.raises(BadConfig, match=message):
        consolidate(documents, [scores], output=LocalOutput(tmp_path / "out"), **arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("spans", "message"), [([span(0, 2)], "0 <= start < end <= 1"), (None, "empty list")], ids=["outside", "null"]
)
def test_a_span_that_does_not_fit_names_the_document(tmp_path, spans, message) -> None:
    documents = write_documents(tmp_path / "documents", ["a", "b"])
    attributes = attach(tmp_path / "spans", documents, {"edits": SPANS}, edits={"a": [], "b": spans})
    with pytest.raises(BadInput, match=message) as error:
        consolidate(documents, [attributes], drop=(), edits=("edits",), output=LocalOutput(tmp_path / "out"))
    assert document_id("b") in str(error.value)
    assert not (tmp_path / "out/documents.json").exists()


@pytest.mark.parametrize("exchange", ["documents", "scores"])
def test_a_file_that_was_exchanged_is_noticed(tmp_path, small, exchange) -> None:
    documents, scores = small
    one, two = (tmp_path / exchange / f"part-0000{index}.parquet" for index in (1, 2))
    one.write_bytes(two.read_bytes())
    with pytest.raises(CorruptData, match=r"part-00001\.parquet"):
        consolidate(documents, [scores], drop=(("r", "score < 2"),), output=LocalOutput(tmp_path / "out"))


def test_many_batches_and_row_groups_keep_rows_side_by_side(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("marin_corpus.documents.write.ROW_GROUP_TEXT_BYTES", 20_000)
    texts = [f"document {number}" for number in range(9_000)]
    documents = write_documents(tmp_path / "documents", texts)
    numbers = {text: number for number, text in enumerate(texts)}
    attributes = attach(tmp_path / "numbers", documents, {"number": pa.int64()}, number=numbers)
    consolidate(documents, [attributes], drop=(("r", "number % 7 <> 0"),), output=LocalOutput(tmp_path / "out"))
    assert [row["text"] for row in rows(tmp_path / "out")] == texts[::7]
