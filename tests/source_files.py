"""Input files for tests of sources, and what was read of them."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.documents.write import Written
from marin_corpus.output import LocalOutput
from marin_corpus.sources.config import ReadConfig
from marin_corpus.sources.read import read_documents
from marin_corpus.sources.streams import find_files


def compressed(name: str, data: bytes) -> bytes:
    """`data` as a file of this name has it."""
    if name.endswith(".gz"):
        return gzip.compress(data, mtime=0)
    return zstandard.compress(data) if name.endswith(".zst") else data


def json_lines(records: Sequence[Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def read(folder: Path, out: Path, *, workers: int = 1, **options: Any) -> Written:
    """Read all files of a folder."""
    config = ReadConfig(**{"source": "test", **options})
    return read_documents(find_files(folder, "**/*"), config, LocalOutput(out, workers=workers))


def rows(out: Path) -> list[dict[str, Any]]:
    """The documents of an output in order, `meta` as an object; each part is checked against its manifest."""
    found = []
    for part in DocumentSet.open(out).parts:
        for batch in read_batches(part):
            found += [{**row, "meta": json.loads(row["meta"])} for row in batch.to_pylist()]
    return found


def texts(out: Path) -> list[str]:
    return [row["text"] for row in rows(out)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def write_parquet(path: Path, columns: Mapping[str, Any], **options: Any) -> None:
    import pyarrow as pa

    pq.write_table(pa.table(dict(columns)), path, **options)
