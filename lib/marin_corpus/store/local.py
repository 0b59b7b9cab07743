"""A store's files on this machine, mapped into memory."""

import mmap
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin_corpus.errors import CorruptData
from marin_corpus.store.manifest import StorePart
from marin_corpus.store.windows import Stretches

_MAX_MAPS = 256
"""Files mapped at once: each costs a file descriptor, of which processes often have 1,024."""
_FEW = 8
"""Stretches of a part that are copied one by one: what an indexed copy of them costs beside its bytes."""


class LocalFiles:
    """Reads parts of the store in `folder`. Safe to use from several threads."""

    def __init__(self, folder: Path, parts: Sequence[StorePart]) -> None:
        self._folder = folder
        self._parts = parts
        self._maps: OrderedDict[tuple[int, str], mmap.mmap | bytes] = OrderedDict()

    def url(self, part: int, suffix: str) -> str:
        """Where the file is, for messages."""
        return str(self._folder / (self._parts[part].name + suffix))

    def read(self, suffix: str, dtype: np.dtype[Any], stretches: Stretches, num_rows: int, length: int) -> NDArray[Any]:
        """[num_rows, length] items that `stretches` lay out. Raises `CorruptData` for a missing or truncated file."""
        part = stretches.part
        bounds = np.flatnonzero(part[1:] != part[:-1]) + 1
        if stretches.are_rows and len(part) and not len(bounds):
            # One part: the planned order is that of the rows.
            return self._windows(int(part[0]), suffix, dtype, length)[stretches.begin]
        out = np.empty((num_rows, length), dtype)
        if stretches.are_rows and len(part) > _FEW * (len(bounds) + 1):
            for rows, begins, number in zip(
                np.split(stretches.row, bounds),
                np.split(stretches.begin, bounds),
                part[np.concatenate([[0], bounds])].tolist(),
                strict=True,
            ):
                out[rows] = self._windows(number, suffix, dtype, length)[begins]
            return out
        array, mapped = None, -1
        for number, begin, count, row, column in zip(
            part.tolist(),
            stretches.begin.tolist(),
            stretches.count.tolist(),
            stretches.row.tolist(),
            stretches.column.tolist(),
            strict=True,
        ):
            if number != mapped:
                array, mapped = np.frombuffer(self._map(number, suffix), dtype), number
            assert array is not None
            out[row, column : column + count] = array[begin : begin + count]
        return out

    def _windows(self, part: int, suffix: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """[items - count + 1, count]: row i is the stretch from item i on. No copy."""
        buffer = self._map(part, suffix)
        num_rows = len(buffer) // dtype.itemsize - count + 1
        return np.ndarray((num_rows, count), dtype, buffer=buffer, strides=(dtype.itemsize, dtype.itemsize))

    def read_whole(self, suffix: str, dtype: np.dtype[Any], parts: Sequence[int]) -> list[NDArray[Any]]:
        """All items of the files of `parts`."""
        return [np.frombuffer(self._map(part, suffix), dtype) for part in parts]

    def read_range(self, part: int, suffix: str, start: int, stop: int) -> bytes:
        """Bytes of a file."""
        return self._map(part, suffix)[start:stop]

    def _map(self, part: int, suffix: str) -> mmap.mmap | bytes:
        key = part, suffix
        found = self._maps.get(key)
        if found is None:
            found = self._open(part, suffix)
            self._maps[key] = found
            while len(self._maps) > _MAX_MAPS:
                # Arrays that still look into the map keep it alive.
                self._maps.popitem(last=False)
        return found

    def _open(self, part: int, suffix: str) -> mmap.mmap | bytes:
        path = self.url(part, suffix)
        expected = self._parts[part].files[suffix].size_bytes
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size == expected:
                    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except FileNotFoundError as error:
            raise CorruptData(
                f"{path} is missing", why="the store's manifest names it", next="restore it, or tokenize again"
            ) from error
        raise CorruptData(
            f"{path} has {size} bytes", why=f"the manifest says {expected}", next="restore it, or tokenize again"
        )
