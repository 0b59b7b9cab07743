"""Shards: many small files together, big ones cut, by names and sizes alone."""

from pathlib import Path

import pytest
from marin_corpus.sources import plan
from marin_corpus.sources.config import ReadConfig
from marin_corpus.sources.plan import ReadShard, plan_shards
from marin_corpus.sources.streams import find_files
from source_files import write_parquet


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", 1000)


def planned(folder: Path) -> dict[str, ReadShard]:
    return plan_shards(find_files(folder, "**/*"), ReadConfig(source="x"))


def test_small_files_are_read_together(tmp_path: Path) -> None:
    for index in range(100):
        (tmp_path / f"{index:03}.txt").write_bytes(b"a" * 100)
    shards = planned(tmp_path)
    assert list(shards) == [f"part-{index:05}" for index in range(10)]
    names = [piece.name for shard in shards.values() for piece in shard.pieces]
    assert names == [f"{index:03}.txt" for index in range(100)]


def test_one_big_file_of_lines_is_cut_into_ranges_that_join(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"a" * 10_500)
    pieces = [piece for shard in planned(tmp_path).values() for piece in shard.pieces]
    assert len(pieces) == len(planned(tmp_path)) == 10
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].end == 10_500


def test_parquet_is_cut_between_row_groups(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", {"text": [f"{i:0400}" for i in range(30)]}, row_group_size=3)
    pieces = [piece for shard in planned(tmp_path).values() for piece in shard.pieces]
    assert len(pieces) == 10
    assert [(piece.start, piece.end) for piece in pieces] == [(index, index + 1) for index in range(10)]


def test_what_cannot_be_cut_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text\n" + b"a\n" * 5000)
    (tmp_path / "b.jsonl.gz").write_bytes(b"a" * 5000)
    (tmp_path / "c.txt").write_bytes(b"a" * 5000)
    shards = planned(tmp_path)
    assert [[(piece.name, piece.end) for piece in shard.pieces] for shard in shards.values()] == [
        [("a.csv", None)],
        [("b.jsonl.gz", None)],
        [("c.txt", None)],
    ]


def test_a_parquet_file_without_rows_is_read(tmp_path: Path) -> None:
    import pyarrow as pa

    write_parquet(tmp_path / "a.parquet", {"text": pa.array([], pa.string())})
    assert len(planned(tmp_path)) == 1
