"""`map_documents`: what each kind of result does, errors that name the document, and bytes whatever the workers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.documents.schema import Document, document_id
from marin_corpus.documents.write import Written
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.output import LocalOutput
from marin_corpus.transform.map import Drop, map_documents
from speeches import write_documents

TEXTS = ["keep", "shout", "none", "drop", "twice", "nothing", "keep too"]


def act(document: Document, options: str) -> Any:
    """Does what the text says."""
    match document.text:
        case "shout":
            return document.text.upper() + options
        case "none":
            return None
        case "drop":
            return Drop("as asked")
        case "twice":
            return (Document(f"{n}", f"source {n}", {"n": n}) for n in range(2))
        case "nothing":
            return []
    return document


def divide(document: Document, options: int) -> str:
    return str(options / (document.text != "drop"))


def divide_later(document: Document, _options: None) -> Iterator[Document]:
    yield document
    yield Document(divide(document, 1), document.source, {})


def returns(_document: Document, options: str) -> Any:
    return {
        "number": 3,
        "bytes": b"text",
        "texts": ["text"],
        "no text": Document(None, "s", {}),  # type: ignore[arg-type]
        "no source": Document("t", 1, {}),  # type: ignore[arg-type]
        "set": Document("t", "s", {"x": {1}}),
        "not a number": Document("t", "s", {"x": float("nan")}),
        "surrogate": "\ud800",
    }[options]


def rows(folder: Path) -> list[tuple[str, str, Any]]:
    return [
        (row["text"], row["source"], json.loads(row["meta"]))
        for part in DocumentSet.open(folder).parts
        for batch in read_batches(part)
        for row in batch.to_pylist()
    ]


def mapped(tmp_path: Path, function: Any, options: Any = None, *, num_parts: int = 1) -> Written:
    documents = write_documents(tmp_path / "documents", TEXTS, num_parts=num_parts)
    return map_documents(documents, function, options, output=LocalOutput(tmp_path / "out"))


@pytest.mark.parametrize("num_parts", [1, 3, 9])
def test_each_kind_of_result(tmp_path, num_parts) -> None:
    result = mapped(tmp_path, act, "!", num_parts=num_parts)
    assert rows(tmp_path / "out") == [
        ("keep", "test", {}),
        ("SHOUT!", "test", {}),
        ("0", "source 0", {"n": 0}),
        ("1", "source 1", {"n": 1}),
        ("keep too", "test", {}),
    ]
    assert result.dropped == {"as asked": 1, "dropped by the function": 2}
    before = DocumentSet.open(tmp_path / "documents")
    assert [part.name for part in DocumentSet.open(tmp_path / "out").parts] == [part.name for part in before.parts]
    assert DocumentSet.open(tmp_path / "out").num_documents == 5


@pytest.mark.parametrize("function", [divide, divide_later])
def test_a_failing_function_is_reported_with_its_document(tmp_path, function) -> None:
    with pytest.raises(BadInput) as caught:
        mapped(tmp_path, function, 1, num_parts=2)
    message = str(caught.value)
    for expected in (document_id("drop"), "'test'", "part-00001.parquet", "row 0", "ZeroDivisionError", __file__):
        assert expected in message
    assert not (tmp_path / "out/documents.json").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("number", "int"),
        ("bytes", "int"),
        ("texts", "str"),
        ("no text", "text is a value of type NoneType"),
        ("no source", "source is a value of type int"),
        ("set", "set"),
        ("not a number", "JSON compliant"),
        ("surrogate", "surrogates not allowed"),
    ],
)
def test_results_that_are_no_documents_are_refused(tmp_path, options, expected) -> None:
    with pytest.raises(BadInput, match=expected):
        mapped(tmp_path, returns, options)


def test_functions_without_a_place_are_refused(tmp_path) -> None:
    def local(document: Document, _options: None) -> Document:
        return document

    for function in (local, lambda document, _options: document, str.upper):
        with pytest.raises(BadConfig, match="top level"):
            mapped(tmp_path / getattr(function, "__name__", "x"), function)
