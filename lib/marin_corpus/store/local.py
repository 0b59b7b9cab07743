"""A store's files on this machine, mapped into memory."""

import mmap
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin_corpus.errors import CorruptData
from marin_corpus.store.manifest import StorePart
from marin_corpus.store.windows import Piece

_MAX_MAPS = 256
"""Files mapped at once: each costs a file descriptor, of which processes often have 1,024."""


@dataclass(frozen=True, slots=True)
class _Map:
    buffer: mmap.mmap | bytes

    def windows(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """[items - count + 1, count]: row i is the stretch from item i on. No copy."""
        num_rows = len(self.buffer) // dtype.itemsize - count + 1
        strides = (dtype.itemsize, dtype.itemsize)
        return np.ndarray((num_rows, count), dtype, buffer=self.buffer, strides=strides)


class LocalFiles:
    """Reads parts of the store in `folder`. Safe to use from several threads."""

    def __init__(self, folder: Path, parts: Sequence[StorePart]) -> None:
        self._folder = folder
        self._parts = parts
        self._maps: OrderedDict[tuple[int, str], _Map] = OrderedDict()

    def url(self, part: int, suffix: str) -> str:
        """Where the file is, for messages."""
        return str(self._folder / (self._parts[part].name + suffix))

    def read(
        self, suffix: str, dtype: np.dtype[Any], pieces: Sequence[Piece], num_rows: int, length: int
    ) -> NDArray[Any]:
        """[num_rows, length] items that `pieces` lay out. Raises `CorruptData` for a missing or truncated file."""
        if len(pieces) == 1 and len(pieces[0].rows) == num_rows and pieces[0].count == length:
            (piece,) = pieces
            windows = self._map(piece.part, suffix).windows(dtype, length)[piece.begins]
            return windows if num_rows == 1 or bool((piece.rows[1:] > piece.rows[:-1]).all()) else windows[piece.rows]
        out = np.empty((num_rows, length), dtype)
        for piece in pieces:
            windows = self._map(piece.part, suffix).windows(dtype, piece.count)
            columns = slice(piece.column, piece.column + piece.count)
            if len(piece.rows) < 4:
                for row, begin in zip(piece.rows.tolist(), piece.begins.tolist(), strict=True):
                    out[row, columns] = windows[begin]
            else:
                out[piece.rows, columns] = windows[piece.begins]
        return out

    def read_whole(self, suffix: str, dtype: np.dtype[Any], parts: Sequence[int]) -> list[NDArray[Any]]:
        """All items of the files of `parts`."""
        return [np.frombuffer(self._map(part, suffix).buffer, dtype) for part in parts]

    def prefetch(self, suffix: str, dtype: np.dtype[Any], pieces: Sequence[Piece]) -> None:
        """Nothing: the operating system reads files ahead."""

    def read_range(self, part: int, suffix: str, start: int, stop: int) -> bytes:
        """Bytes of a file."""
        return self._map(part, suffix).buffer[start:stop]

    def _map(self, part: int, suffix: str) -> _Map:
        key = part, suffix
        found = self._maps.get(key)
        if found is None:
            found = _Map(self._open(part, suffix))
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
