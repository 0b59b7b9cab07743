"""Reading sets of documents."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from marin_corpus.documents.schema import SCHEMA
from marin_corpus.documents.write import MANIFEST
from marin_corpus.errors import CorruptData
from marin_corpus.files import Location, open_parquet
from marin_corpus.manifest import read_manifest

_BATCH_ROWS = 4096


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
        parts = tuple(
            DocumentPart(url=str(folder / part["name"]), **part)
            for part in read_manifest(folder, MANIFEST, kind="documents")["parts"]
        )
        return cls(url=str(folder), parts=parts)

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


@contextmanager
def opened_part(url: str) -> Iterator[pq.ParquetFile]:
    """A parquet file of ours. Raises CorruptData if it is missing or damaged, on opening and within the block."""
    try:
        with open_parquet(url) as file:
            yield file
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise CorruptData(f"{url} is missing or damaged", why=str(error), next="make the data again") from error


def read_batches(part: DocumentPart, columns: Sequence[str] = tuple(SCHEMA.names)) -> Iterator[pa.RecordBatch]:
    """The rows of a part in order, a row group (about 16 MB of text) in memory at a time.

    Raises:
        CorruptData: the file is not the one the manifest describes.
    """
    with opened_part(part.url) as file:
        recorded = (file.schema_arrow.metadata or {}).get(b"rows_digest") or (file.metadata.metadata or {}).get(
            b"rows_digest"
        )
        if recorded is None or recorded.decode() != part.rows_digest or file.metadata.num_rows != part.num_documents:
            raise CorruptData(
                f"{part.url} does not hold the documents that its manifest names",
                why=f"{file.metadata.num_rows} rows instead of {part.num_documents}, or others",
                next="make the documents again",
            )
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=list(columns))
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)
