"""From windows of a whole store to stretches of its parts."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Piece:
    """Stretches of one part: its items from `begins[i]`, `count` of them, go to row `rows[i]` from `column` on."""

    part: int
    begins: Integers
    count: int
    rows: Integers
    column: int


def plan_windows(part_ends: Integers, starts: Integers, length: int) -> list[Piece]:
    """The pieces of `[n, length]` windows that begin at global offsets `starts`, in the order of the parts.

    Args:
        part_ends: global offset at which each part ends.
        starts: [n], may repeat and need not be sorted.
        length: items in each window.

    Raises:
        IndexError: a window does not lie within the store.
    """
    total = int(part_ends[-1]) if len(part_ends) else 0
    if length < 1 or (len(starts) and (int(starts.min()) < 0 or int(starts.max()) + length > total)):
        raise IndexError(f"windows of {length} tokens must lie within the {total} tokens of the store")
    if len(part_ends) == 1:
        return [Piece(0, starts, length, np.arange(len(starts)), 0)] if len(starts) else []
    part_of = np.searchsorted(part_ends, starts, side="right")  # skips parts without tokens
    order = np.argsort(part_of, kind="stable")
    parts, firsts = np.unique(part_of[order], return_index=True)
    pieces = []
    for part, rows in zip(parts.tolist(), np.split(order, firsts[1:]), strict=bool(len(order))):
        base = int(part_ends[part - 1]) if part else 0
        begins = starts[rows] - base
        is_inside = begins + length <= int(part_ends[part]) - base
        if is_inside.all():
            pieces.append(Piece(part, begins, length, rows, 0))
            continue
        if is_inside.any():
            pieces.append(Piece(part, begins[is_inside], length, rows[is_inside], 0))
        for row in rows[~is_inside]:
            pieces.extend(_across(part_ends, part, int(starts[row]), length, row))
    return pieces


def _across(part_ends: Integers, part: int, start: int, length: int, row: int) -> list[Piece]:
    """One window that does not end in the part where it begins."""
    pieces = []
    column = 0
    while column < length:
        base = int(part_ends[part - 1]) if part else 0
        begin = start + column - base
        count = min(length - column, int(part_ends[part]) - base - begin)
        if count:
            pieces.append(Piece(part, np.array([begin]), count, np.array([row]), column))
        column += count
        part += 1
    return pieces
