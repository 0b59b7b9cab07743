"""Parts of documents: ids, where one part ends and the next begins, and bytes that repeat."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.documents.schema import Document
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.output import LocalOutput
from source_files import contents, rows

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def write(folder: Path, texts: list[str], *, part_text_bytes: int | None = 1 << 20) -> list[dict[str, object]]:
    folder.mkdir(parents=True, exist_ok=True)
    with DocumentWriter(folder / "part-00000", part_text_bytes=part_text_bytes) as writer:
        for index, text in enumerate(texts):
            writer.add(text, source="ab"[index % 2], meta={"z": index, "a": "\u00fc"})
    write_documents_manifest(LocalOutput(folder), writer.summary())
    return writer.summary()


@settings(max_examples=40)
@given(texts=st.lists(TEXT, max_size=12), limit=st.integers(1, 60))
def test_documents_come_back_in_order_with_their_ids(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    parts = write(folder, texts, part_text_bytes=limit)
    found = rows(folder)
    assert [row["text"] for row in found] == texts
    assert [row["id"] for row in found] == [xxhash.xxh3_128(text.encode()).hexdigest() for text in texts]
    assert [row["id"] for row in found] == [Document(text=text, source="", meta={}).id for text in texts]
    assert [row["meta"] for row in found] == [{"z": index, "a": "\u00fc"} for index in range(len(texts))]
    for part in parts:
        # A part exceeds the limit only by its first document.
        assert part["text_bytes"] <= limit or part["num_documents"] == 1  # type: ignore[operator]
    opened = DocumentSet.open(folder)
    assert opened.num_documents == len(texts)
    assert opened.text_bytes == sum(len(text.encode()) for text in texts)
    assert sum(opened.sources.values()) == len(texts)


def test_parts_are_numbered_and_described(tmp_path: Path) -> None:
    parts = write(tmp_path, ["aaaa", "bbbb", "cc", "dd"], part_text_bytes=8)
    assert [(p["name"], p["num_documents"], p["text_bytes"]) for p in parts] == [
        ("part-00000-000.parquet", 2, 8),
        ("part-00000-001.parquet", 2, 4),
    ]
    assert parts[0]["sources"] == {"a": 1, "b": 1}
    assert [part.name for part in DocumentSet.open(tmp_path).parts] == [p["name"] for p in parts]


def test_without_a_limit_the_path_is_the_part(tmp_path: Path) -> None:
    (part,) = write(tmp_path / "out", ["a" * 100] * 50, part_text_bytes=None)
    assert part["name"] == "part-00000"
    assert set(contents(tmp_path / "out")) == {"part-00000", "documents.json"}


def test_no_document_makes_one_part_without_rows(tmp_path: Path) -> None:
    (part,) = write(tmp_path, [])
    assert part["num_documents"] == 0
    (opened,) = DocumentSet.open(tmp_path).parts
    assert list(read_batches(opened)) == []


def test_equal_documents_make_equal_bytes(tmp_path: Path) -> None:
    texts = [f"text {index} " * 20 for index in range(200)]
    write(tmp_path / "a", texts, part_text_bytes=4000)
    write(tmp_path / "b", texts, part_text_bytes=4000)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert len(contents(tmp_path / "a")) > 5


def test_meta_is_equal_whatever_the_order_of_its_names(tmp_path: Path) -> None:
    for name, meta in (("a", {"x": 1, "y": {"p": 1, "q": 2}}), ("b", {"y": {"q": 2, "p": 1}, "x": 1})):
        (tmp_path / name).mkdir()
        with DocumentWriter(tmp_path / name / "part") as writer:
            writer.add("text", source="s", meta=meta)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_the_digest_tells_other_documents_and_another_order(tmp_path: Path) -> None:
    digests = [
        write(tmp_path / str(index), texts)[0]["rows_digest"]
        for index, texts in enumerate((["a", "b"], ["b", "a"], ["a", "b", "c"], ["a", "b"]))
    ]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3


def test_row_groups_are_small_enough_to_stream(tmp_path: Path) -> None:
    text_group = 16 << 20
    write(tmp_path / "long", ["x" * (1 << 20)] * 40, part_text_bytes=None)
    file = pq.ParquetFile(tmp_path / "long" / "part-00000")
    sizes = [file.metadata.row_group(index).total_byte_size for index in range(file.num_row_groups)]
    assert len(sizes) == 3
    assert max(sizes) < text_group + (2 << 20)
    write(tmp_path / "short", ["x"] * 150_000, part_text_bytes=None)
    file = pq.ParquetFile(tmp_path / "short" / "part-00000")
    assert max(file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)) < 100_000


def test_a_lone_surrogate_adds_nothing(tmp_path: Path) -> None:
    with DocumentWriter(tmp_path / "part") as writer:
        writer.add("a", source="s")
        with pytest.raises(UnicodeEncodeError):
            writer.add("\ud800", source="s")
        writer.add("b", source="s")
    assert writer.summary()[0]["num_documents"] == 2


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    parts = write(tmp_path, ["a"])
    manifest = json.loads((tmp_path / "documents.json").read_bytes())
    assert manifest == {"kind": "documents", "format": 1, "parts": parts}
    assert str(tmp_path) not in (tmp_path / "documents.json").read_text()
