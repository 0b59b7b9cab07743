"""Reading sets of documents."""

import errno
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marin_corpus.documents.schema import SCHEMA
from marin_corpus.documents.write import MANIFEST
from marin_corpus.errors import CorruptData, Mismatch
from marin_corpus.files import Location, open_parquet
from marin_corpus.manifest import parts_of, read_manifest

_BATCH_ROWS = 4096
_AGAIN = "make the data again"


@dataclass(frozen=True, kw_only=True)
class DocumentPart:
    """One parquet file of documents. Plain data: it travels to worker processes as it is."""

    name: str
    """File name within the set."""
    url: str
    num_documents: int
    text_bytes: int
    rows_digest: str
    sources: dict[str, int]
    """Number of documents by source."""


@dataclass(frozen=True, kw_only=True)
class DocumentSet:
    """All documents of a directory, in the order of its parts."""

    url: str
    parts: tuple[DocumentPart, ...]

    @classmethod
    def open(cls, url: Location) -> "DocumentSet":
        """Read the manifest `documents.json` below a path or URL. Raises `Mismatch`, `CorruptData`."""
        from upath import UPath

        folder = UPath(url)
        manifest = read_manifest(folder, MANIFEST, kind="documents")
        return cls(url=str(folder), parts=parts_of(manifest, folder, DocumentPart))

    @property
    def num_documents(self) -> int:
        return sum(part.num_documents for part in self.parts)

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of text."""
        return sum(part.text_bytes for part in self.parts)

    @property
    def sources(self) -> dict[str, int]:
        """Number of documents by source."""
        counts: Counter[str] = Counter()
        for part in self.parts:
            counts.update(part.sources)
        return dict(sorted(counts.items()))


class MadeFromPart(Protocol):
    """What was made from one part of documents, as a manifest says it."""

    @property
    def name(self) -> str: ...
    @property
    def rows_digest(self) -> str: ...


def check_made_for(documents: DocumentSet, parts: Sequence[MadeFromPart], *, what: str) -> None:
    """Raises `Mismatch` unless `parts` were made from exactly these documents; `what` says of what they are parts."""
    mine = [(part.name, part.rows_digest) for part in parts]
    theirs = [(part.name, part.rows_digest) for part in documents.parts]
    if mine != theirs:
        differing = next((b or a)[0] for a, b in zip_longest(mine, theirs) if a != b)
        raise Mismatch(
            f"{what} were not made for the documents of {documents.url}",
            why=f"{differing} differs",
            next="make them from these documents",
        )


class PartFile(Protocol):
    """A parquet file of ours, as its manifest describes it."""

    @property
    def url(self) -> str: ...
    @property
    def num_documents(self) -> int: ...
    @property
    def rows_digest(self) -> str: ...


@contextmanager
def opened_part(part: PartFile) -> Iterator[pq.ParquetFile]:
    """The file of a part of documents or of their attributes.

    Raises:
        CorruptData: it is missing, damaged (found on opening or within the block) or not the one that was described.
    """
    try:
        with open_parquet(part.url) as file:
            recorded = (file.metadata.metadata or {}).get(b"rows_digest", b"").decode()
            if (recorded, file.metadata.num_rows) != (part.rows_digest, part.num_documents):
                raise CorruptData(
                    f"{part.url} is not the file that its manifest describes",
                    why=f"{file.metadata.num_rows} rows instead of {part.num_documents}, or others",
                    next=_AGAIN,
                )
            yield file
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            raise  # of the disk or the network; Arrow's, about what the file holds, have no number
        raise CorruptData(f"{part.url} is missing or damaged", why=str(error), next=_AGAIN) from error


def read_batches(part: DocumentPart, columns: Sequence[str] = tuple(SCHEMA.names)) -> Iterator[pa.RecordBatch]:
    """The rows of a part in order, a row group (about 16 MB of text) in memory at a time. Raises `CorruptData`."""
    with opened_part(part) as file:
        if not file.schema_arrow.equals(SCHEMA):
            raise CorruptData(f"{part.url} is damaged", why="its columns are not those of documents", next=_AGAIN)
        if sum(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)) != part.num_documents:
            raise CorruptData(f"{part.url} is damaged", why="its row groups lack rows", next=_AGAIN)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=list(columns))
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def rows_by_part(documents: DocumentSet, positions: np.ndarray) -> Iterator[tuple[DocumentPart, np.ndarray]]:
    """For each part, the rows within it of some ascending positions in the whole set."""
    begin = 0
    for part in documents.parts:
        low, high = np.searchsorted(positions, [begin, begin + part.num_documents])
        yield part, positions[low:high] - begin
        begin += part.num_documents
