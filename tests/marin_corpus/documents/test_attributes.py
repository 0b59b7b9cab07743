"""Attributes run parallel to documents, and belong to no others."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from marin_corpus.documents.attributes import AttributeSet, map_attributes, read_attributes
from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.errors import CorruptData, Mismatch
from marin_corpus.output import LocalOutput
from source_files import contents
from text_lengths import SCHEMA, measure


def too_few(batch: pa.RecordBatch, _config: None) -> Mapping[str, Any]:
    return {name: column[1:] for name, column in measure(batch, 3).items()}


def documents(folder: Path, texts: list[str]) -> DocumentSet:
    folder.mkdir()
    with DocumentWriter(folder / "part-00000", part_text_bytes=10) as writer:
        for text in texts:
            writer.add(text, source="s")
    write_documents_manifest(LocalOutput(folder), writer.summary())
    return DocumentSet.open(folder)


TEXTS = ["one", "three", "four", "eleven", "hundred"]


def test_rows_and_sums(tmp_path: Path) -> None:
    made = documents(tmp_path / "docs", TEXTS)
    summaries = map_attributes(made, measure, 3, schema=SCHEMA, output=LocalOutput(tmp_path / "attributes"))
    found = AttributeSet.open(tmp_path / "attributes")
    found.check_made_for(made)
    assert found.columns == ("length", "long", "first")
    assert [part.name for part in found.parts] == [part.name for part in made.parts]
    table = pa.concat_tables([read_attributes(part) for part in found.parts])
    assert table["length"].to_pylist() == [3, 5, 4, 6, 7]
    assert table["long"].to_pylist() == [False, True, True, True, True]
    assert table["first"].to_pylist() == list("otfeh")
    assert sum(summary["sums"]["length"] for summary in summaries) == 25
    assert sum(summary["sums"]["long"] for summary in summaries) == 4
    assert sum(summary["num_documents"] for summary in summaries) == 5


def test_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    made = documents(tmp_path / "docs", TEXTS)
    for workers in (1, 2):
        map_attributes(made, measure, 3, schema=SCHEMA, output=LocalOutput(tmp_path / str(workers), workers=workers))
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_attributes_of_other_documents_are_refused(tmp_path: Path) -> None:
    made = documents(tmp_path / "docs", TEXTS)
    map_attributes(made, measure, 3, schema=SCHEMA, output=LocalOutput(tmp_path / "attributes"))
    found = AttributeSet.open(tmp_path / "attributes")
    others = {
        "edited": [*TEXTS[:-1], "hundreD"],
        "fewer": TEXTS[:2],
        "more": [*TEXTS, "new text"],
        "moved": TEXTS[::-1],
    }
    for name, texts in others.items():
        with pytest.raises(Mismatch, match="were not made for the documents"):
            found.check_made_for(documents(tmp_path / name, texts))


def test_a_file_of_other_attributes_is_refused(tmp_path: Path) -> None:
    for name, texts in (("a", TEXTS), ("b", ["ONE", *TEXTS[1:]])):
        made = documents(tmp_path / f"docs-{name}", texts)
        map_attributes(made, measure, 3, schema=SCHEMA, output=LocalOutput(tmp_path / name))
    first = AttributeSet.open(tmp_path / "a").parts[0]
    shutil.copy(tmp_path / "b" / first.name, tmp_path / "a" / first.name)
    with pytest.raises(CorruptData, match="is not the file that its manifest describes"):
        read_attributes(first)


def test_a_damaged_or_missing_file_is_refused(tmp_path: Path) -> None:
    made = documents(tmp_path / "docs", TEXTS)
    map_attributes(made, measure, 3, schema=SCHEMA, output=LocalOutput(tmp_path / "attributes"))
    part = AttributeSet.open(tmp_path / "attributes").parts[0]
    path = Path(part.url)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptData, match=part.name):
        read_attributes(part)
    path.unlink()
    with pytest.raises(CorruptData, match=part.name):
        read_attributes(part)


def test_a_row_too_few_is_a_mistake_of_the_code(tmp_path: Path) -> None:
    made = documents(tmp_path / "docs", TEXTS)
    with pytest.raises(AssertionError, match="1 rows for 2 documents"):
        map_attributes(made, too_few, None, schema=SCHEMA, output=LocalOutput(tmp_path / "attributes"))
    assert not (tmp_path / "attributes" / "attributes.json").exists()


def test_types_that_have_no_name_are_refused(tmp_path: Path) -> None:
    made = documents(tmp_path / "docs", TEXTS)
    with pytest.raises(TypeError, match="cannot have the type float"):
        map_attributes(
            made, measure, 3, schema=pa.schema([("x", pa.float32())]), output=LocalOutput(tmp_path / "attributes")
        )
