"""Lines of pieces are the lines of the file, wherever it is cut; remote files are read as local ones."""

from itertools import pairwise
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marin_corpus.output import LocalOutput
from marin_corpus.sources import plan
from marin_corpus.sources.config import ReadConfig
from marin_corpus.sources.problems import BadRecord
from marin_corpus.sources.read import read_documents
from marin_corpus.sources.streams import Lines, Piece, find_files
from source_files import compressed, json_lines, texts

LINES = st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"\r")), max_size=30)


@settings(max_examples=60)
@given(lines=LINES, ended=st.booleans(), cuts=st.lists(st.integers(0, 400), max_size=6))
def test_pieces_have_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, cuts: list[int]
) -> None:
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(data)
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = []
    for start, end in pairwise(ends):
        piece = Piece(
            name="a", url=str(path), format="jsonl", compression="", size_bytes=len(data), start=start, end=end
        )
        reader = Lines(piece, max_bytes=1000)
        found += [(line, reader.offset, reader.number) for line in reader]
    expected, offset = [], 0
    for number, line in enumerate(_lines(data), 1):
        expected.append((line, offset, number))
        offset += len(line)
    assert found == expected


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def test_a_line_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    data = b"a" * 10 + b"\n" + b"b" * 11 + b"\n" + b"c" * 10
    (tmp_path / "a").write_bytes(data)
    piece = Piece(name="a", url=str(tmp_path / "a"), format="jsonl", compression="", size_bytes=len(data))
    first, second, third = Lines(piece, max_bytes=10)
    assert (first, third) == (b"a" * 10 + b"\n", b"c" * 10)
    assert isinstance(second, BadRecord)


def test_remote_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", 2000)
    records = [{"text": f"remote {index}"} for index in range(500)]
    memory = fsspec.filesystem("memory")
    memory.pipe("/sources-test/raw/a.jsonl", json_lines(records[:300]))
    memory.pipe("/sources-test/raw/b/c.jsonl.zst", compressed(".zst", json_lines(records[300:])))
    try:
        files = find_files("memory://sources-test/raw", "**/*")
        assert [file.name for file in files] == ["a.jsonl", "b/c.jsonl.zst"]
        read_documents(files, ReadConfig(source="x"), LocalOutput(tmp_path))
    finally:
        memory.rm("/sources-test", recursive=True)
    assert texts(tmp_path) == [record["text"] for record in records]
