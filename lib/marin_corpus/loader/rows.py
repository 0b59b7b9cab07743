"""Reading sequences out of a store into the rows of a batch.

Legend: B batch, S sequence, N sequences of one store, P pieces of documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marin_corpus.order.packing import PackedDocuments, Packing, Windows, ranges
from marin_corpus.order.permutation import Integers

# Reading a short piece of a document asks for at least so many tokens, and less than twice as many as it needs.
_SHORTEST_READ = 64

Batch = dict[str, NDArray[Any]]


class Manifest(Protocol):
    """What names a store's content."""

    def encode(self) -> bytes: ...


class Tokens(Protocol):
    """What is needed of a token store: `marin_corpus.store.read.TokenStore`, or anything like it."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def tokenizer(self) -> str: ...
    @property
    def has_mask(self) -> bool: ...
    @property
    def manifest(self) -> Manifest: ...

    def read_windows(self, starts: Integers, length: int, /) -> NDArray[Any]: ...
    def read_weights(self, starts: Integers, length: int, /) -> NDArray[np.float32]: ...
    def prefetch(self, starts: Integers, length: int, /) -> None: ...
    def document_ends(self) -> NDArray[np.int64]: ...
    def document_of(self, offsets: Integers, /) -> Integers: ...
    def document_ids(self, documents: Integers, /) -> list[str]: ...


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
        else:
            self._tell_documents_apart(batch, rows, starts, self.document_ends)

    def _tell_documents_apart(
        self, batch: Batch, rows: slice | Integers, starts: Integers, document_ends: NDArray[np.int64]
    ) -> None:
        shape = (len(starts), self.packing.sequence_length)
        first = np.searchsorted(document_ends, starts, side="right")
        # Documents that begin inside of a window behind its first input.
        counts = np.searchsorted(document_ends, starts + shape[1], side="left") - first
        row, number = ranges(counts + 1)
        begins = document_ends[np.minimum(first[row] + number - 1, len(document_ends) - 1)] - starts[row]
        begins = row * shape[1] + np.where(number == 0, 0, begins)
        batch["segment_ids"][rows], batch["positions"][rows] = _runs(begins, number + 1, shape)
        # Nothing that attention sees tells how the next document begins: no weight for its first token.
        counts = np.searchsorted(document_ends, starts + shape[1], side="right") - first
        row, number = ranges(counts)
        weights = np.array(batch["loss_weights"][rows])
        weights[row, document_ends[first[row] + number] - starts[row] - 1] = 0.0
        batch["loss_weights"][rows] = weights

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
        shape = (len(sequences), self.packing.sequence_length)
        pieces, row, number = self._pieces(sequences)
        lengths = self.packing.piece_lengths[pieces].astype(np.int64)
        buffer, weights, places = self._read(self.packing.piece_starts[pieces], lengths)
        # Runs of a row: its pieces, then padding, perhaps of length 0.
        run = np.arange(len(pieces)) + row
        padding = np.ones(len(pieces) + len(sequences), bool)
        padding[run] = False
        run_lengths, segments, sources = (np.zeros(len(padding), np.int64) for _ in range(3))
        run_lengths[run], segments[run], sources[run] = lengths, number + 1, places
        run_lengths[padding] = shape[1] - np.bincount(row, weights=lengths, minlength=len(sequences)).astype(np.int64)
        begins = np.cumsum(run_lengths) - run_lengths
        batch["segment_ids"][rows], positions = _runs(begins, segments, shape)
        real = np.repeat(~padding, run_lengths).reshape(shape)
        positions *= real
        batch["positions"][rows] = positions
        source = (positions + np.repeat(sources, run_lengths).reshape(shape)) * real
        batch["tokens"][rows] = buffer[source] * real
        source += 1
        batch["targets"][rows] = buffer[source] * real
        batch["loss_weights"][rows] = real if weights is None else weights[source] * real

    def _read(self, starts: Integers, lengths: Integers) -> tuple[NDArray[Any], NDArray[np.float32] | None, Integers]:
        """Tokens of all pieces, and their weights if they have any, in one flat array; where in it each begins."""
        tokens, weights, places, so_far = [], [], np.empty(len(starts), np.int64), 0
        for length, chosen in self._reads(lengths):
            # A read longer than its piece must not run over the end of the store.
            reads = np.minimum(starts[chosen], self.store.num_tokens - length)
            tokens.append(self.store.read_windows(reads, length).reshape(-1))
            if self.store.has_mask:
                weights.append(self.store.read_weights(reads, length).reshape(-1))
            places[chosen] = so_far + np.arange(len(chosen)) * length + starts[chosen] - reads
            so_far += len(tokens[-1])
        return np.concatenate(tokens), np.concatenate(weights) if weights else None, places

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
        row, within = ranges(self.packing.first_pieces[sequences + 1] - first)
        return first[row] + within, row, within

    def _reads(self, lengths: Integers) -> Sequence[tuple[int, Integers]]:
        """Pieces by the length of the read that serves them: a store reads many windows of one length at once."""
        longest = min(self.packing.sequence_length + 1, self.store.num_tokens)
        needed = np.maximum(lengths + 1, _SHORTEST_READ)
        rounded = np.minimum(1 << np.ceil(np.log2(needed)).astype(np.int64), longest)
        return [(int(length), np.flatnonzero(rounded == length)) for length in np.unique(rounded)]


def _runs(begins: Integers, segments: Integers, shape: tuple[int, int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Segment ids and positions [N, S] of runs that begin at these places of the flat array and fill it."""
    size = shape[0] * shape[1]
    lengths = np.diff(begins, append=size)
    positions = np.arange(size, dtype=np.int32) - np.repeat(begins.astype(np.int32), lengths)
    return np.repeat(segments.astype(np.int32), lengths).reshape(shape), positions.reshape(shape)
