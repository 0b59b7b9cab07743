"""From windows of a whole store to stretches of its parts."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """Items of parts, and where they go: [n] each, n stretches in the order of their parts.

    Of part `part[i]` the items from `begin[i]` on, `count[i]` of them, go to row `row[i]` from `column[i]` on.
    """

    part: Integers
    begin: Integers
    count: Integers
    row: Integers
    column: Integers
    are_rows: bool
    """Whether each stretch is a whole row."""


def plan_windows(part_ends: Integers, starts: Integers, length: int) -> Stretches:
    """What `[n, length]` windows that begin at global offsets `starts` consist of.

    Args:
        part_ends: global offset at which each part ends.
        starts: [n], may repeat and need not be sorted.
        length: items in each window.

    Raises:
        IndexError: a window does not lie within the store.
    """
    total = int(part_ends[-1])
    if length < 1 or (len(starts) and (int(starts.min()) < 0 or int(starts.max()) + length > total)):
        raise IndexError(f"windows of {length} must lie within the {total} that the store has")
    rows = np.arange(len(starts))
    if len(part_ends) == 1:
        zeros = np.zeros_like(rows)
        return Stretches(
            part=zeros, begin=starts, count=np.full_like(rows, length), row=rows, column=zeros, are_rows=True
        )
    part = np.searchsorted(part_ends, starts, side="right")  # skips parts without items
    column = np.zeros_like(starts)
    count = np.minimum(part_ends[part] - starts, length)
    at = starts
    is_short = count < length
    if not (are_rows := not is_short.any()):
        across = [
            stretch
            for row in rows[is_short].tolist()
            for stretch in _across(part_ends, int(part[row]), int(starts[row]), length, row)
        ]
        added = np.array(across, np.int64).T
        part, at, count, rows, column = (
            np.concatenate([one[~is_short], more])
            for one, more in zip((part, at, count, rows, column), added, strict=True)
        )
    order = np.argsort(part, kind="stable")
    part = part[order]
    part_starts = np.concatenate([[0], part_ends[:-1]])
    return Stretches(
        part=part,
        begin=at[order] - part_starts[part],
        count=count[order],
        row=rows[order],
        column=column[order],
        are_rows=are_rows,
    )


def _across(part_ends: Integers, part: int, start: int, length: int, row: int) -> list[tuple[int, int, int, int, int]]:
    """One window that does not end in the part where it begins: part, global offset, count, row and column."""
    stretches = []
    column = 0
    while column < length:
        count = min(length - column, int(part_ends[part]) - start - column)
        if count:
            stretches.append((part, start + column, count, row, column))
        column += count
        part += 1
    return stretches
