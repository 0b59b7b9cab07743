"""The normal form of a document, and of a part of a set of documents.

A document is `id` (xxh3-128 of the UTF-8 text, 32 hex digits), `text`, `source` (where it came from: the name of a
corpus) and `meta` (a JSON object as text: what is known about it). Parts are parquet files (zstd) of such rows.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("meta", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Document:
    """One text. `meta` holds JSON values by name."""

    text: str
    source: str
    meta: Mapping[str, Any]

    @property
    def id(self) -> str:
        """xxh3-128 of the text, 32 hex digits."""
        return document_id(self.text)


def document_id(text: str) -> str:
    """xxh3-128 of the UTF-8 text, 32 hex digits. Raises UnicodeEncodeError for a lone surrogate."""
    return xxhash.xxh3_128_hexdigest(text.encode())


def encode_meta(meta: Mapping[str, Any]) -> str:
    """Equal values give equal text, whatever the order of the names.

    Raises:
        ValueError, TypeError: a value that JSON cannot say, such as NaN.
    """
    return json.dumps(meta, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


class RowsDigest:
    """Digest of which documents a part holds and in what order: xxh3-128 of their ids, 32 hex digits."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, ids: Iterable[str]) -> None:
        """Go on with the next documents."""
        self._state.update("".join(ids).encode())

    def hexdigest(self) -> str:
        """Of all ids so far."""
        return self._state.hexdigest()
