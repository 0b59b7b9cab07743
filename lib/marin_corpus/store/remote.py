"""A store's files elsewhere, read by ranges."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin_corpus.errors import CorruptData
from marin_corpus.store.blocks import BlockCache, Range
from marin_corpus.store.manifest import StorePart
from marin_corpus.store.ranges import RangeReader
from marin_corpus.store.windows import Stretches

_WHOLE_FILE_RANGE_BYTES = 8 << 20


class RemoteFiles:
    """Reads parts of the store at `url`, many requests at a time. Safe to use from several threads."""

    def __init__(self, url: str, reader: RangeReader, parts: Sequence[StorePart], *, cache_bytes: int) -> None:
        self._url = url.rstrip("/")
        self._reader = reader
        self._parts = parts
        self._sizes = {part.name + suffix: file.size_bytes for part in parts for suffix, file in part.files.items()}
        self._cache = BlockCache(self._fetch, cache_bytes=cache_bytes)

    def url(self, part: int, suffix: str) -> str:
        """Where the file is, for messages."""
        return f"{self._url}/{self._parts[part].name}{suffix}"

    def read(self, suffix: str, dtype: np.dtype[Any], stretches: Stretches, num_rows: int, length: int) -> NDArray[Any]:
        """[num_rows, length] items that `stretches` lay out. Raises `CorruptData` for a missing or truncated file."""
        out = np.empty((num_rows, length), dtype)
        width = dtype.itemsize
        # All requests are under way before the first is waited for.
        begun = [
            (out[row, column : column + count].view(np.uint8), begin * width, ranges)
            for ranges, begin, count, row, column in zip(
                self._begin(suffix, width, stretches),
                stretches.begin.tolist(),
                stretches.count.tolist(),
                stretches.row.tolist(),
                stretches.column.tolist(),
                strict=True,
            )
        ]
        for target, start, ranges in begun:
            for (_, first, last), future in ranges:
                low, high = max(first, start), min(last, start + len(target))
                target[low - start : high - start] = np.frombuffer(
                    future.result(), np.uint8, count=high - low, offset=low - first
                )
        return out

    def read_whole(self, suffix: str, dtype: np.dtype[Any], parts: Sequence[int]) -> list[NDArray[Any]]:
        """All items of the files of `parts`; they do not go through the cache."""
        names = [self._parts[part].name + suffix for part in parts]
        ranges = [
            (name, start, min(start + _WHOLE_FILE_RANGE_BYTES, self._sizes[name]))
            for name in names
            for start in range(0, self._sizes[name], _WHOLE_FILE_RANGE_BYTES)
        ]
        data: dict[str, list[bytes]] = {name: [] for name in names}
        for (name, _, _), piece in zip(
            ranges, self._cache.pool.map(lambda one: self._fetch(*one), ranges), strict=True
        ):
            data[name].append(piece)
        return [np.frombuffer(b"".join(data[name]), dtype) for name in names]

    def prefetch(self, suffix: str, dtype: np.dtype[Any], stretches: Stretches) -> None:
        """Begin to fetch what `read` will want; less if much is under way already."""
        for _ in self._begin(suffix, dtype.itemsize, stretches):
            if self._cache.is_busy:
                return

    def read_range(self, part: int, suffix: str, start: int, stop: int) -> bytes:
        """Bytes of a file, not through the cache."""
        return self._fetch(self._parts[part].name + suffix, start, stop)

    def _begin(self, suffix: str, width: int, stretches: Stretches) -> "Iterator[list[tuple[Range, Future[bytes]]]]":
        for part, begin, count in zip(
            stretches.part.tolist(), stretches.begin.tolist(), stretches.count.tolist(), strict=True
        ):
            name = self._parts[part].name + suffix
            yield self._cache.begin(name, begin * width, (begin + count) * width, self._sizes[name])

    def _fetch(self, name: str, start: int, stop: int) -> bytes:
        try:
            data = self._reader.read_range(name, start, stop - start)
        except FileNotFoundError as error:
            raise CorruptData(
                f"{self._url}/{name} is missing",
                why="the store's manifest names it",
                next="restore it, or tokenize again",
            ) from error
        if len(data) != stop - start:
            raise CorruptData(
                f"{self._url}/{name} gave {len(data)} bytes from byte {start} on, not {stop - start}",
                why=f"the manifest says that it has {self._sizes[name]} bytes",
                next="restore it, or tokenize again",
            )
        return data
