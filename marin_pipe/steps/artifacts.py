"""Typed results of the catalogue's steps, so that a record says documents, tokens, bytes and drops."""

from typing import TYPE_CHECKING

from pydantic import Field

from marin_pipe.execution.markers import Artifact

if TYPE_CHECKING:
    from marin_corpus.documents.attributes import AttributeSet
    from marin_corpus.documents.read import DocumentSet


class Documents(Artifact):
    """Parquet parts of documents with their manifest `documents.json`."""

    num_documents: int
    text_bytes: int
    """UTF-8 bytes of text."""
    num_parts: int
    sources: dict[str, int]
    """Number of documents by source."""
    dropped: dict[str, int] = Field(default_factory=dict)
    """Number of documents or records left out, by reason."""

    def open(self) -> "DocumentSet":
        """The documents, for reading."""
        from marin_corpus.documents.read import DocumentSet

        return DocumentSet.open(self.path)


class Attributes(Artifact):
    """Columns that run parallel to documents, with their manifest `attributes.json`."""

    columns: tuple[str, ...]
    num_documents: int
    sums: dict[str, float] = Field(default_factory=dict)
    """Sum of each numeric column; of a boolean one, the number of documents for which it holds."""

    def open(self) -> "AttributeSet":
        """The attributes, for reading."""
        from marin_corpus.documents.attributes import AttributeSet

        return AttributeSet.open(self.path)
