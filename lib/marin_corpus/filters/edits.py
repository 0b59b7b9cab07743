"""Applying spans (columns of type `SPANS`) to a text."""

from collections.abc import Iterable, Sequence

from marin_corpus.errors import BadInput

Span = tuple[int, int, str]
"""Start and end, in characters, and what takes their place."""


def merge_spans(columns: Sequence[Iterable[Span]]) -> list[Span]:
    """Spans of several columns as one list, in order and without overlap.

    Spans that overlap become one over all of their text, with the replacement of the longest of them; of equally long
    ones, of the column that comes first, then of the one that starts first. Spans that only touch stay apart.
    """
    found = sorted(
        (start, end, rank, replacement) for rank, column in enumerate(columns) for start, end, replacement in column
    )
    merged: list[Span] = []
    best = (0, 0, 0)
    for start, end, rank, replacement in found:
        # Smaller is better.
        candidate = (start - end, rank, start)
        if merged and start < merged[-1][1]:
            first, last, kept = merged[-1]
            if candidate < best:
                best, kept = candidate, replacement
            merged[-1] = (first, max(last, end), kept)
        else:
            merged.append((start, end, replacement))
            best = candidate
    return merged


def apply_spans(text: str, spans: Sequence[Span]) -> str:
    """The text with each span replaced; spans as `merge_spans` returns them."""
    pieces: list[str] = []
    position = 0
    for start, end, replacement in spans:
        pieces += (text[position:start], replacement)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def checked_spans(value: object, text: str, *, column: str, document: str) -> list[Span]:
    """A value of a `SPANS` column, whose every span must be a piece of `text`.

    Raises:
        BadInput: a null, an empty span, or one that reaches beyond the text; names the column and the document's id.
    """
    if not isinstance(value, list):
        raise BadInput(
            f"the column {column!r} has no list of spans for document {document}",
            next="whoever wrote it should give an empty list where nothing is to be replaced",
        )
    spans = []
    for span in value:
        start, end, replacement = span["start"], span["end"], span["replacement"]
        if start is None or end is None or replacement is None or not 0 <= start < end <= len(text):
            raise BadInput(
                f"the column {column!r} has the span {start} to {end} ({replacement!r}) for document {document}",
                why=f"spans are of characters, 0 <= start < end <= {len(text)} in this text, and a replacement",
                next="correct the function that wrote the column; offsets are those of the Python string",
            )
        spans.append((start, end, replacement))
    return spans
