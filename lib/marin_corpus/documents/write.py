"""Writing parts of documents."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from marin_corpus.documents.schema import SCHEMA, RowsDigest, encode_meta
from marin_corpus.manifest import encode_manifest
from marin_corpus.output import Output

MANIFEST = "documents.json"
PART_TEXT_BYTES = 128 << 20
"""Text in a part before the next one begins: small enough for one worker's memory, large enough for object storage."""
ROW_GROUP_TEXT_BYTES = 16 << 20
"""Text and meta in a row group, which is what a reader holds in memory at a time."""
_ROW_BYTES = 256
"""Counted for a row beside its text and meta, so that short texts do not make groups of a million Python objects."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a call that writes documents wrote."""

    parts: tuple[Mapping[str, Any], ...]
    """The manifest's entries."""
    dropped: dict[str, int]
    """Number of documents or records for which nothing was written, by reason."""


class DocumentWriter:
    """Writes documents to one part, or to several: `<path>-000.parquet`, `<path>-001.parquet`, ...

    Use it as a context manager; `summary()` after that is JSON for the manifest. The bytes depend on the documents
    alone. Where no document was added, there is one empty part.
    """

    def __init__(self, path: Path, *, part_text_bytes: int | None = PART_TEXT_BYTES) -> None:
        """
        Args:
            path: the shard's path. With `part_text_bytes=None` it is the one part itself.
            part_text_bytes: begin another part after this much text; None for a single part.
        """
        self._path = path
        self._limit = part_text_bytes
        self._parts: list[dict[str, Any]] = []
        self._writer: pq.ParquetWriter | None = None
        self._reset_part()

    def _reset_part(self) -> None:
        self._num_documents = 0
        self._text_bytes = 0
        self._sources: Counter[str] = Counter()
        self._digest = RowsDigest()
        self._columns: dict[str, list[str]] = {name: [] for name in SCHEMA.names}
        self._pending_bytes = 0

    def __enter__(self) -> "DocumentWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            if self._writer is not None or self._num_documents or not self._parts:
                self._finish_part()
        elif self._writer is not None:
            self._writer.close()

    def add(self, text: str, *, source: str, meta: Mapping[str, Any] | str = "{}") -> None:
        """Append a document; `meta` as JSON text is taken as it is.

        Raises:
            UnicodeEncodeError: the text holds a lone surrogate; nothing was added.
        """
        data = text.encode()
        size = len(data)
        if self._limit is not None and self._num_documents and self._text_bytes + size > self._limit:
            self._finish_part()
        columns = self._columns
        columns["id"].append(xxhash.xxh3_128_hexdigest(data))  # as `document_id`, without encoding again
        columns["text"].append(text)
        columns["source"].append(source)
        if not isinstance(meta, str):
            meta = encode_meta(meta)
        columns["meta"].append(meta)
        self._num_documents += 1
        self._text_bytes += size
        self._pending_bytes += size + len(meta) + _ROW_BYTES
        self._sources[source] += 1
        if self._pending_bytes >= ROW_GROUP_TEXT_BYTES:
            self._flush()

    def summary(self) -> list[dict[str, Any]]:
        """An entry of the manifest for each part, in order."""
        return self._parts

    def _part_path(self) -> Path:
        if self._limit is None:
            return self._path
        return self._path.with_name(f"{self._path.name}-{len(self._parts):03d}.parquet")

    def _flush(self) -> None:
        if self._writer is None:
            # Dictionary encoding of texts and ids costs time and saves nothing.
            self._writer = pq.ParquetWriter(
                self._part_path(),
                SCHEMA,
                compression="zstd",
                compression_level=3,
                use_dictionary=["source"],
                write_page_checksum=True,
            )
        self._digest.update(self._columns["id"])
        self._writer.write_table(
            pa.table(self._columns, schema=SCHEMA), row_group_size=max(1, len(self._columns["id"]))
        )
        self._columns = {name: [] for name in SCHEMA.names}
        self._pending_bytes = 0

    def _finish_part(self) -> None:
        if self._columns["id"] or self._writer is None:
            self._flush()
        assert self._writer is not None
        rows_digest = self._digest.hexdigest()
        self._writer.add_key_value_metadata({"rows_digest": rows_digest})
        self._writer.close()
        self._parts.append(
            {
                "name": self._part_path().name,
                "num_documents": self._num_documents,
                "text_bytes": self._text_bytes,
                "rows_digest": rows_digest,
                "sources": dict(sorted(self._sources.items())),
            }
        )
        self._writer = None
        self._reset_part()


def write_documents_manifest(output: Output, parts: Sequence[Mapping[str, Any]]) -> None:
    """Write `documents.json`, from the writers' summaries in order."""
    output.write_file(MANIFEST, encode_manifest("documents", {"parts": list(parts)}))
