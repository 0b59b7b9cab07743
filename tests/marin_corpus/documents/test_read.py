"""A reader takes the documents that the manifest names, and nothing else."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.errors import CorruptData, Mismatch
from marin_corpus.output import LocalOutput


def make(folder: Path, texts: list[str]) -> Path:
    folder.mkdir()
    with DocumentWriter(folder / "part-00000", part_text_bytes=6) as writer:
        for text in texts:
            writer.add(text, source="s")
    write_documents_manifest(LocalOutput(folder), writer.summary())
    return folder


def read_all(folder: Path) -> list[str]:
    batches = [batch for part in DocumentSet.open(folder).parts for batch in read_batches(part, ["text"])]
    return [text for batch in batches for text in batch["text"].to_pylist()]


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    (part,) = DocumentSet.open(make(tmp_path / "a", ["one"])).parts
    (batch,) = read_batches(part, ["source", "id"])
    assert batch.schema.names == ["source", "id"]


def test_a_part_of_other_documents_is_refused(tmp_path: Path) -> None:
    first, second = make(tmp_path / "a", ["one", "two", "three"]), make(tmp_path / "b", ["one", "too", "three"])
    shutil.copy(second / "part-00000-000.parquet", first / "part-00000-000.parquet")
    with pytest.raises(CorruptData, match=r"part-00000-000\.parquet is not the file that its manifest describes"):
        read_all(first)


def test_parts_that_changed_places_are_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", ["aaaaaa", "bbbbbb"])
    (folder / "part-00000-000.parquet").rename(folder / "x")
    (folder / "part-00000-001.parquet").rename(folder / "part-00000-000.parquet")
    (folder / "x").rename(folder / "part-00000-001.parquet")
    with pytest.raises(CorruptData, match="is not the file that its manifest describes"):
        read_all(folder)


@pytest.mark.parametrize("kept", [0, 20, -1])
def test_a_truncated_part_is_refused(tmp_path: Path, kept: int) -> None:
    folder = make(tmp_path / "a", ["one"])
    path = folder / "part-00000-000.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptData, match=r"part-00000-000\.parquet"):
        read_all(folder)


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    texts = ["one text of some words", "another one of them"]
    folder = tmp_path / "a"
    folder.mkdir()
    with DocumentWriter(folder / "part.parquet", part_text_bytes=None) as writer:
        for text in texts:
            writer.add(text, source="s", meta={"n": 1})
    write_documents_manifest(LocalOutput(folder), writer.summary())
    path = folder / "part.parquet"
    whole = path.read_bytes()
    (part,) = DocumentSet.open(folder).parts
    expected = [batch.to_pydict() for batch in read_batches(part)]
    found: Counter[str] = Counter()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            found["same" if [batch.to_pydict() for batch in read_batches(part)] == expected else "other"] += 1
        except CorruptData:
            found["refused"] += 1
    assert found["other"] == 0
    assert found["refused"] > len(whole) / 2


def test_an_error_of_the_disk_is_not_one_of_the_data(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", ["one"])
    path = folder / "part-00000-000.parquet"
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        read_all(folder)


def test_a_missing_part_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", ["one"])
    (folder / "part-00000-000.parquet").unlink()
    with pytest.raises(CorruptData, match=r"part-00000-000\.parquet"):
        read_all(folder)


def test_a_folder_that_holds_no_documents(tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match=r"it has no documents\.json"):
        DocumentSet.open(tmp_path)
    with pytest.raises(Mismatch, match=r"it has no documents\.json"):
        DocumentSet.open(tmp_path / "absent")


@pytest.mark.parametrize(
    ("manifest", "kind", "message"),
    [
        ("{", CorruptData, "is not JSON"),
        ("[]", Mismatch, "no manifest of documents"),
        ('{"kind": "attributes", "format": 1, "parts": []}', Mismatch, "no manifest of documents"),
        ('{"kind": "documents", "format": 1}', CorruptData, "not as this library writes it"),
        ('{"kind": "documents", "format": 1, "parts": [{"name": "a"}]}', CorruptData, "not as this library writes it"),
        ('{"kind": "documents", "format": 2, "parts": []}', Mismatch, "format 2; this version reads format 1"),
    ],
)
def test_another_manifest(tmp_path: Path, manifest: str, kind: type[Exception], message: str) -> None:
    (tmp_path / "documents.json").write_text(manifest)
    with pytest.raises(kind, match=message):
        DocumentSet.open(tmp_path)
