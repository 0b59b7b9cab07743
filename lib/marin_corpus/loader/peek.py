"""Looking into a batch: which documents its rows hold, and where they come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from marin_corpus.loader.rows import Reader, Tokens
from marin_corpus.order.order import Draws

# Characters of a document's text in a line of `str(row)`.
_SHOWN = 80


class Decoder(Protocol):
    """Turns ids back into text."""

    def decode(self, ids: Sequence[int], /) -> str: ...


@dataclass(frozen=True, kw_only=True)
class PeekedDocument:
    """The part of a document that a row holds: tokens [start, end) of the document of this id."""

    id: str
    start: int
    end: int
    text: str | None


@dataclass(frozen=True, kw_only=True)
class PeekedRow:
    """A row of a batch: sequence number `sequence` of a component, in its `epoch`, from store token `start` on."""

    row: int
    component: str
    epoch: int
    sequence: int
    start: int
    documents: tuple[PeekedDocument, ...]

    def __str__(self) -> str:
        lines = [f"row {self.row}: {self.component}, epoch {self.epoch}, sequence {self.sequence}, token {self.start}"]
        for document in self.documents:
            text = "" if document.text is None else f"  {document.text[:_SHOWN]!r}"
            lines.append(f"  {document.id} [{document.start}:{document.end}]{text}")
        return "\n".join(lines)


def peek_rows(
    rows: Sequence[int],
    draws: Draws,
    *,
    names: Sequence[str],
    readers: Sequence[Reader],
    tokenizer: Decoder | None,
) -> list[PeekedRow]:
    """Rows of a batch by what was drawn for them; `names` and `readers` by component."""
    found = []
    for at, row in enumerate(rows):
        component, sequence = int(draws.component[at]), int(draws.sequence[at])
        reader = readers[component]
        spans = reader.spans(sequence)
        documents = [part for start, end in spans for part in _documents(reader.store, start, end, tokenizer)]
        found.append(
            PeekedRow(
                row=row,
                component=names[component],
                epoch=int(draws.epoch[at]),
                sequence=sequence,
                start=spans[0][0],
                documents=tuple(documents),
            )
        )
    return found


def _documents(store: Tokens, start: int, end: int, tokenizer: Decoder | None) -> list[PeekedDocument]:
    """Documents that share tokens [start, end) of a store."""
    first, last = store.document_of(np.array([start, end - 1])).tolist()
    numbers = np.arange(first, last + 1)
    ends = store.document_ends()
    found = []
    for number, name in zip(numbers.tolist(), store.document_ids(numbers), strict=True):
        begin = int(ends[number - 1]) if number else 0
        low, high = max(start, begin), min(end, int(ends[number]))
        if low == high:
            continue
        text = None
        if tokenizer is not None:
            text = tokenizer.decode(store.read_windows(np.array([low]), high - low)[0].tolist())
        found.append(PeekedDocument(id=name, start=low - begin, end=high - begin, text=text))
    return found
