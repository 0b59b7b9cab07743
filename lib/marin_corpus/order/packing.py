"""How a store's tokens become sequences: equal windows, or whole documents packed together.

A sequence of S positions needs S inputs and, for each, the token that follows it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marin_corpus.order.permutation import Integers

# Pieces of documents that are packed together. More would waste no less; fewer keep a sequence's documents close to
# each other in the store, and the time of packing even.
_PACKED_TOGETHER = 4096


class Packing(Protocol):
    """Sequences made of one store's tokens."""

    @property
    def num_sequences(self) -> int: ...

    @property
    def num_targets(self) -> int:
        """Tokens that are predicted when every sequence is read once."""

    def report(self) -> dict[str, int]:
        """What no sequence holds, and what sequences hold besides tokens."""


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows of S + 1 tokens that begin every S tokens: each token but the first is the target of one position.

    Tokens behind the last whole window are left out: fewer than S.
    """

    num_tokens: int
    sequence_length: int

    @property
    def num_sequences(self) -> int:
        return max(self.num_tokens - 1, 0) // self.sequence_length

    @property
    def num_targets(self) -> int:
        return self.num_sequences * self.sequence_length

    def report(self) -> dict[str, int]:
        return {"tail": max(self.num_tokens - 1 - self.num_targets, 0), "padding": 0}

    def starts(self, sequences: Integers) -> Integers:
        """Where in the store each sequence's window begins."""
        return sequences * self.sequence_length


@dataclass(frozen=True, eq=False)
class PackedDocuments:
    """Sequences that hold whole documents, one behind the other, then padding.

    Arrays describe pieces, which lie in the order of their sequences: `piece_starts` [P] and `piece_lengths` [P] say
    where in the store a piece's inputs are (its targets are one token on), `first_pieces` [num_sequences + 1] which
    pieces are a sequence's. 12 bytes a piece and 8 a sequence of memory; about a second a million documents.
    """

    sequence_length: int
    piece_starts: NDArray[np.int64]
    piece_lengths: NDArray[np.int32]
    first_pieces: NDArray[np.int64]

    @property
    def num_sequences(self) -> int:
        return len(self.first_pieces) - 1

    @property
    def num_targets(self) -> int:
        return int(self.piece_lengths.sum(dtype=np.int64))

    def report(self) -> dict[str, int]:
        return {"tail": 0, "padding": self.num_sequences * self.sequence_length - self.num_targets}


def pack_documents(document_ends: NDArray[np.int64], sequence_length: int) -> PackedDocuments:
    """Pack documents by best fit, longest first, among each few thousand neighbours: a function of their lengths.

    A document of n tokens has n - 1 targets (nothing before its first token says what it is), so it takes n - 1
    positions. One that needs more than a sequence is cut; the cut loses no target, since a piece begins with the
    token the one before it ended with as a target. A document of one token takes no part.
    """
    starts, lengths = _pieces(document_ends, sequence_length)
    ordered, ends, so_far = [], [np.zeros(1, np.int64)], 0
    for low in range(0, len(starts), _PACKED_TOGETHER):
        bins = _best_fit_decreasing(lengths[low : low + _PACKED_TOGETHER].tolist(), sequence_length)
        ordered.append(np.fromiter((low + piece for pieces in bins for piece in pieces), np.int64))
        counts = np.fromiter(map(len, bins), np.int64)
        ends.append(so_far + np.cumsum(counts))
        so_far += len(ordered[-1])
    order = np.concatenate(ordered) if ordered else np.zeros(0, np.int64)
    return PackedDocuments(
        sequence_length=sequence_length,
        piece_starts=starts[order],
        piece_lengths=lengths[order].astype(np.int32),
        first_pieces=np.concatenate(ends),
    )


def _pieces(document_ends: NDArray[np.int64], sequence_length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where pieces begin and how many positions each takes, in the order of the store."""
    document_starts = np.concatenate((np.zeros(1, np.int64), document_ends[:-1]))
    targets = np.maximum(document_ends - document_starts - 1, 0)
    num_pieces = (targets + sequence_length - 1) // sequence_length
    document, within = ranges(num_pieces)
    within = within * sequence_length
    return document_starts[document] + within, np.minimum(targets[document] - within, sequence_length)


def ranges(lengths: Integers) -> tuple[Integers, Integers]:
    """Of each element of ranges laid end to end: which range it is in, and its place there."""
    which = np.repeat(np.arange(len(lengths)), lengths)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _best_fit_decreasing(lengths: list[int], capacity: int) -> list[list[int]]:
    """Bins of indices of `lengths`; each goes into the bin with the least room that has enough.

    Bit r of `rooms` says whether some bin has room r left: the best bin is one shift and one lowest bit away.
    """
    bins: list[list[int]] = []
    by_room: dict[int, list[int]] = {}
    rooms = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            waiting = by_room[room]
            chosen = waiting.pop()
            if not waiting:
                rooms ^= 1 << room
            bins[chosen].append(index)
        else:
            room, chosen = capacity, len(bins)
            bins.append([index])
        if left := room - length:
            by_room.setdefault(left, []).append(chosen)
            rooms |= 1 << left
    return bins
