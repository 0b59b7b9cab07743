"""`split_documents`: long documents in pieces, so that no later step meets a text of unbounded length."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.schema import Document
from marin_corpus.documents.write import Written
from marin_corpus.errors import BadConfig
from marin_corpus.output import Output
from marin_corpus.transform.map import map_documents

_JOINER = "\u200d"


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """How long a document may be."""

    max_characters: int = 1_000_000

    def __post_init__(self) -> None:
        if self.max_characters < 1:
            raise BadConfig(f"max_characters={self.max_characters} must be at least 1")


def split_documents(documents: DocumentSet, config: SplitConfig, output: Output) -> Written:
    """Write the documents, those of more than `max_characters` in pieces; see `split_text`.

    A piece's meta is that of its document and `piece` (from 0), `num_pieces`, and `split_from`, the document's id.
    """
    return map_documents(documents, _split_document, config, output=output)


def _split_document(document: Document, config: SplitConfig) -> str | Iterator[Document]:
    if len(document.text) <= config.max_characters:
        return document.text
    return _pieces(document, config.max_characters)


def _pieces(document: Document, max_characters: int) -> Iterator[Document]:
    pieces = split_text(document.text, max_characters)
    parent = document.id
    for number, piece in enumerate(pieces):
        meta = {**document.meta, "piece": number, "num_pieces": len(pieces), "split_from": parent}
        yield Document(piece, document.source, meta)


def split_text(text: str, max_characters: int) -> list[str]:
    """Pieces of at most `max_characters`, which put together are the text.

    Each ends after the last empty line that leaves it at least half full, or else after the last line, or else after
    the last whitespace that does; or else where it is full, but not before an accent or within a joined emoji.
    """
    pieces = []
    start = 0
    while len(text) - start > max_characters:
        end = _cut(text, start + max_characters // 2, start + max_characters)
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces


def _cut(text: str, first: int, last: int) -> int:
    """Where to cut, from `first` + 1 to `last`."""
    for separator in ("\n\n", "\n"):
        found = text.rfind(separator, first, last)
        if found >= 0:
            return found + len(separator)
    for position in range(last, first, -1):
        if text[position - 1].isspace() and not _is_within_character(text, position):
            return position
    for position in range(last, first, -1):
        if not _is_within_character(text, position):
            return position
    return last


def _is_within_character(text: str, position: int) -> bool:
    """Whether a reader sees one character there: marks and joiners belong to what stands before them."""
    before, after = text[position - 1], text[position]
    return unicodedata.category(after)[0] == "M" or _JOINER in (before, after) or (before, after) == ("\r", "\n")
