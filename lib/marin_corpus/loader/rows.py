"""Reading sequences out of a store into the rows of a batch.

Legend: B batch, S sequence, N sequences of one store, P pieces of documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marin_corpus.order.packing import PackedDocuments, Packing, Windows
from marin_corpus.order.permutation import Integers

# Reading a short piece of a document asks for at least so many tokens, and less than twice as many as it needs.
_SHORTEST_READ = 64

Batch = dict[str, NDArray[Any]]


class Tokens(Protocol):
    """What is needed of a token store: `marin_corpus.store.read.TokenStore`, or anything like it."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def num_documents(self) -> int: ...
    @property
    def tokenizer(self) -> str: ...
    @property
    def has_mask(self) -> bool: ...

    def read_windows(self, starts: Integers, length: int) -> NDArray[Any]: ...
    def read_weights(self, starts: Integers, length: int) -> NDArray[np.float32]: ...
    def prefetch(self, starts: Integers, length: int) -> None: ...
    def document_ends(self) -> NDArray[np.int64]: ...
    def document_of(self, offsets: Integers) -> Integers: ...
    def document_ids(self, indices: Integers) -> list[str]: ...


class Reader(Protocol):
    """The sequences of one store."""

    @property
    def store(self) -> Tokens: ...
    @property
    def packing(self) -> Packing: ...
    @property
    def varies(self) -> bool:
        """Whether loss weights, segments or positions differ from row to row."""

    def fill(self, batch: Batch, rows: slice | Integers, sequences: Integers) -> None:
        """Write sequences [N] into these rows of a batch."""

    def prefetch(self, sequences: Integers) -> None:
        """Have the store fetch what `fill` will read."""

    def spans(self, sequence: int) -> list[tuple[int, int]]:
        """Where in the store a sequence's tokens, last target included, begin and end; one span a piece."""


def new_batch(num_rows: int, sequence_length: int, *, varies: bool) -> Batch:
    """Arrays [B, S] of a batch. What is the same in every batch is shared and read-only."""
    shape = (num_rows, sequence_length)
    batch: Batch = {"tokens": np.empty(shape, np.int32), "targets": np.empty(shape, np.int32)}
    if varies:
        return batch | {
            "loss_weights": np.empty(shape, np.float32),
            "segment_ids": np.empty(shape, np.int32),
            "positions": np.empty(shape, np.int32),
        }
    return batch | _constant(num_rows, sequence_length)


@lru_cache(maxsize=16)
def _constant(num_rows: int, sequence_length: int) -> Batch:
    shape = (num_rows, sequence_length)
    constant: Batch = {
        "loss_weights": np.ones(shape, np.float32),
        "segment_ids": np.ones(shape, np.int32),
        "positions": np.ascontiguousarray(np.broadcast_to(np.arange(sequence_length, dtype=np.int32), shape)),
    }
    for array in constant.values():
        array.flags.writeable = False
    return constant


@dataclass(frozen=True, kw_only=True)
class WindowReader:
    """Equal windows. With `document_ends`, documents inside of them are told apart."""

    store: Tokens
    packing: Windows
    document_ends: NDArray[np.int64] | None = None

    @property
    def varies(self) -> bool:
        return self.store.has_mask or self.document_ends is not None

    def fill(self, batch: Batch, rows: slice | Integers, sequences: Integers) -> None:
        starts, length = self.packing.starts(sequences), self.packing.sequence_length + 1
        tokens = self.store.read_windows(starts, length)
        batch["tokens"][rows] = tokens[:, :-1]
        batch["targets"][rows] = tokens[:, 1:]
        if not batch["loss_weights"].flags.writeable:
            return
        batch["loss_weights"][rows] = self.store.read_weights(starts, length)[:, 1:] if self.store.has_mask else 1.0
        if self.document_ends is None:
            batch["segment_ids"][rows] = 1
            batch["positions"][rows] = np.arange(length - 1, dtype=np.int32)
            return
        begins = self._begins(starts, length)
        segments = np.cumsum(begins, axis=1, dtype=np.int32) + 1
        batch["segment_ids"][rows] = segments[:, :-1]
        places = np.arange(length, dtype=np.int32)
        positions = places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)
        batch["positions"][rows] = positions[:, :-1]
        # Nothing that attention sees tells how the next document begins.
        weights = np.array(batch["loss_weights"][rows])
        weights[begins[:, 1:]] = 0.0
        batch["loss_weights"][rows] = weights

    def _begins(self, starts: Integers, length: int) -> NDArray[np.bool_]:
        """Where a document begins inside of each window [N, S + 1]; not at its first token."""
        assert self.document_ends is not None
        first = np.searchsorted(self.document_ends, starts, side="right")
        counts = np.searchsorted(self.document_ends, starts + length, side="left") - first
        rows = np.repeat(np.arange(len(starts)), counts)
        ends = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
        begins = np.zeros((len(starts), length), bool)
        begins[rows, self.document_ends[ends] - starts[rows]] = True
        return begins

    def prefetch(self, sequences: Integers) -> None:
        self.store.prefetch(self.packing.starts(sequences), self.packing.sequence_length + 1)

    def spans(self, sequence: int) -> list[tuple[int, int]]:
        start = sequence * self.packing.sequence_length
        return [(start, start + self.packing.sequence_length + 1)]


@dataclass(frozen=True, kw_only=True)
class DocumentReader:
    """Packed documents. Padding has token 0, target 0, weight 0, segment 0 and position 0; segments count from 1."""

    store: Tokens
    packing: PackedDocuments

    @property
    def varies(self) -> bool:
        return True

    def fill(self, batch: Batch, rows: slice | Integers, sequences: Integers) -> None:
        pieces, row_of_piece, piece_in_row = self._pieces(sequences)
        lengths = self.packing.piece_lengths[pieces].astype(np.int64)
        shape = (len(sequences), self.packing.sequence_length)
        filled = {name: np.zeros(shape, array.dtype) for name, array in batch.items()}
        flat = {name: array.reshape(-1) for name, array in filled.items()}
        # Pieces of a row follow each other from the row's beginning.
        before = np.cumsum(lengths) - lengths
        row_starts = np.flatnonzero(piece_in_row == 0)
        into = row_of_piece * shape[1] + before - before[row_starts][row_of_piece]
        for length, chosen in self._reads(lengths):
            starts = self.packing.piece_starts[pieces[chosen]]
            # A read longer than its piece must not run over the end of the store.
            reads = np.minimum(starts, self.store.num_tokens - length)
            piece, within = _ranges(lengths[chosen])
            source = within + (starts - reads)[piece]
            target = within + into[chosen][piece]
            tokens = self.store.read_windows(reads, length)
            flat["tokens"][target] = tokens[piece, source]
            flat["targets"][target] = tokens[piece, source + 1]
            flat["segment_ids"][target] = (piece_in_row[chosen] + 1)[piece]
            flat["positions"][target] = within
            if self.store.has_mask:
                flat["loss_weights"][target] = self.store.read_weights(reads, length)[piece, source + 1]
            else:
                flat["loss_weights"][target] = 1.0
        for name, array in filled.items():
            batch[name][rows] = array

    def prefetch(self, sequences: Integers) -> None:
        pieces = self._pieces(sequences)[0]
        starts = self.packing.piece_starts[pieces]
        for length, chosen in self._reads(self.packing.piece_lengths[pieces].astype(np.int64)):
            self.store.prefetch(np.minimum(starts[chosen], self.store.num_tokens - length), length)

    def spans(self, sequence: int) -> list[tuple[int, int]]:
        pieces = self._pieces(np.array([sequence]))[0]
        starts, lengths = self.packing.piece_starts[pieces].tolist(), self.packing.piece_lengths[pieces].tolist()
        return [(start, start + length + 1) for start, length in zip(starts, lengths, strict=True)]

    def _pieces(self, sequences: Integers) -> tuple[Integers, Integers, Integers]:
        """Pieces [P] of these sequences, the row of each, and its number in that row."""
        first = self.packing.first_pieces[sequences]
        row, within = _ranges(self.packing.first_pieces[sequences + 1] - first)
        return first[row] + within, row, within

    def _reads(self, lengths: Integers) -> Sequence[tuple[int, Integers]]:
        """Pieces by the length of the read that serves them: a store reads many windows of one length at once."""
        longest = min(self.packing.sequence_length + 1, self.store.num_tokens)
        needed = np.maximum(lengths + 1, _SHORTEST_READ)
        rounded = np.minimum(1 << np.ceil(np.log2(needed)).astype(np.int64), longest)
        return [(int(length), np.flatnonzero(rounded == length)) for length in np.unique(rounded)]


def _ranges(lengths: Integers) -> tuple[Integers, Integers]:
    """Of each element of ranges laid end to end: which range it is in, and its place there."""
    which = np.repeat(np.arange(len(lengths)), lengths)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
