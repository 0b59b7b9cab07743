"""Attributes: columns computed for documents, in files that run parallel to the documents' parts.

Filters never rewrite text. They leave, for each part of documents, a parquet file of the same name with the same number
of rows in the same order, whose footer names the documents it was made for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from marin_corpus.documents.read import DocumentPart, DocumentSet, check_made_for, opened_part, read_batches
from marin_corpus.files import Location
from marin_corpus.manifest import encode_manifest, parts_of, read_manifest
from marin_corpus.output import Output

MANIFEST = "attributes.json"
SPANS = pa.list_(
    pa.struct([pa.field("start", pa.int64()), pa.field("end", pa.int64()), pa.field("replacement", pa.string())])
)
"""Type of a column of edits: replace characters `start` to `end` (of the Python string) by `replacement`."""


@dataclass(frozen=True, kw_only=True)
class AttributePart:
    """The attributes of one part of documents."""

    name: str
    url: str
    num_documents: int
    rows_digest: str


@dataclass(frozen=True, kw_only=True)
class AttributeSet:
    """Attributes of a whole set of documents, in the order of its parts."""

    url: str
    columns: tuple[str, ...]
    parts: tuple[AttributePart, ...]

    @classmethod
    def open(cls, url: Location) -> "AttributeSet":
        """Read the manifest `attributes.json` below a path or URL. Raises `Mismatch`, `CorruptData`."""
        from upath import UPath

        folder = UPath(url)
        manifest = read_manifest(folder, MANIFEST, kind="attributes")
        parts = parts_of(manifest, folder, AttributePart)
        return cls(url=str(folder), columns=tuple(manifest["columns"]), parts=parts)

    def check_made_for(self, documents: DocumentSet) -> None:
        """Raises `Mismatch` unless these are attributes of exactly these documents."""
        check_made_for(documents, self.parts, what=f"the attributes of {self.url}")


Compute = Callable[[pa.RecordBatch, Any], Mapping[str, Any]]
"""Columns (arrays or sequences of the batch's length, by name) for a batch of documents and a configuration."""


@dataclass(frozen=True, kw_only=True)
class _AttributeJob:
    part: DocumentPart
    compute: Compute
    config: Any
    schema: tuple[tuple[str, str], ...]


def map_attributes(
    documents: DocumentSet, compute: Compute, config: Any, *, schema: pa.Schema, output: Output
) -> list[Any]:
    """Compute attributes batch by batch and write them with their manifest.

    Args:
        documents: the documents.
        compute: at the top level of a module; called as `compute(batch, config)`.
        config: plain data.
        schema: the columns that `compute` returns.
        output: where the files go.

    Returns:
        For each part `{"num_documents": ..., "sums": {column: sum}}`, sums of the numeric and boolean columns without
        nulls, NaN and infinities.
    """
    shards = {
        part.name: _AttributeJob(
            part=part, compute=compute, config=config, schema=tuple((f.name, _type_name(f.type)) for f in schema)
        )
        for part in documents.parts
    }
    summaries = output.run_shards(shards, _attribute_shard)
    write_attributes_manifest(output, documents, schema.names)
    return list(summaries.values())


# Types travel to workers, and into the identity of a shard, by name.
TYPES = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "spans": SPANS,
}


def _type_name(kind: pa.DataType) -> str:
    for name, known in TYPES.items():
        if known == kind:
            return name
    raise TypeError(f"attributes cannot have the type {kind}; use one of {', '.join(TYPES)}")


def _attribute_shard(job: _AttributeJob, path: Path) -> dict[str, Any]:
    schema = pa.schema([(name, TYPES[kind]) for name, kind in job.schema])
    sums: dict[str, int | float] = {name: 0 for name, kind in job.schema if kind in ("bool", "int64", "float64")}
    with AttributeWriter(path, job.part, schema) as writer:
        for batch in read_batches(job.part):
            columns = job.compute(batch, job.config)
            table = pa.table({name: pa.array(columns[name], type=schema.field(name).type) for name in schema.names})
            writer.add(table)
            for name in sums:
                sums[name] += _sum(table[name])
    return {"num_documents": job.part.num_documents, "sums": sums}


def _sum(column: pa.ChunkedArray) -> int | float:
    if pa.types.is_floating(column.type):
        # JSON, in which a sum is kept for a later attempt, has neither NaN nor infinity.
        column = column.filter(pc.is_finite(column))
    return pc.sum(column).as_py() or 0


class AttributeWriter:
    """Writes the attributes of one part; use it as a context manager.

    Leaving it raises AssertionError if there are not as many rows as documents.
    """

    def __init__(self, path: Path, part: DocumentPart, schema: pa.Schema) -> None:
        self._part = part
        self._rows = 0
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", compression_level=3, write_page_checksum=True)
        self._writer.add_key_value_metadata({"rows_digest": part.rows_digest})

    def __enter__(self) -> "AttributeWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._writer.close()
        if kind is None:
            assert self._rows == self._part.num_documents, f"{self._rows} rows for {self._part.num_documents} documents"

    def add(self, table: pa.Table) -> None:
        """Append the attributes of the next documents."""
        self._rows += table.num_rows
        self._writer.write_table(table)


def write_attributes_manifest(output: Output, documents: DocumentSet, columns: Sequence[str]) -> None:
    """Write `attributes.json` for attribute files of all parts of `documents`."""
    parts = [
        {"name": part.name, "num_documents": part.num_documents, "rows_digest": part.rows_digest}
        for part in documents.parts
    ]
    output.write_file(MANIFEST, encode_manifest("attributes", {"columns": list(columns), "parts": parts}))


def read_attributes(part: AttributePart) -> pa.Table:
    """All attributes of a part. Raises `CorruptData` if the file is not the one its manifest describes."""
    with opened_part(part) as file:
        return file.read()
