"""A bounded cache of byte ranges that a pool of threads fetches."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias

BLOCK_BYTES = 1 << 20
"""A range that is fetched whole once two reads wanted something of it: 256 sequences of 2,048 16-bit tokens."""
PARALLELISM = 64
"""Requests in flight: an object store answers one in some 50 ms, whatever its size up to a block."""
_ENTRY_BYTES = 1 << 10
"""Counted for a range beside its bytes, so that short ones do not make a cache of a million Python objects."""

Range: TypeAlias = tuple[str, int, int]
"""File, first byte, byte after the last."""
Fetch: TypeAlias = Callable[[str, int, int], bytes]


@dataclass(frozen=True, slots=True)
class _Entry:
    future: "Future[bytes]"
    cost_bytes: int


@dataclass(slots=True)
class _Shared:
    """What threads change, under `lock`."""

    # Entered again by a fetch that ends while it is being begun.
    lock: threading.RLock = field(default_factory=threading.RLock)
    entries: "OrderedDict[Range, _Entry]" = field(default_factory=OrderedDict)
    cost_bytes: int = 0
    pending_bytes: int = 0
    touched: "OrderedDict[tuple[str, int], None]" = field(default_factory=OrderedDict)
    pool: ThreadPoolExecutor | None = None


class BlockCache:
    """Ranges of files, fetched at most once at a time, of which the last used are kept.

    A range that is wanted for the first time is fetched as it is, so that a random read costs its own bytes only. The
    aligned blocks of `BLOCK_BYTES` that it touches are remembered, as many as fit into the cache; when one of them is
    touched again, reads are local and the block is fetched whole.
    """

    def __init__(self, fetch: Fetch, *, cache_bytes: int) -> None:
        """
        Args:
            fetch: `fetch(file, start, stop)` returns exactly these bytes or raises; called from threads.
            cache_bytes: bytes to keep. Ranges being fetched count, and are never given up.
        """
        self._fetch = fetch
        self._cache_bytes = cache_bytes
        self._shared = _Shared()
        self._pid = os.getpid()

    def begin(self, file: str, start: int, stop: int, size_bytes: int) -> "list[tuple[Range, Future[bytes]]]":
        """Begin to fetch `[start, stop)` of a file that has `size_bytes`; returns ranges that together cover it."""
        if self._pid != os.getpid():
            # Threads do not follow into a forked process: what they were to fetch would be waited for for ever.
            self._pid, self._shared = os.getpid(), _Shared()
        blocks = range(start // BLOCK_BYTES, (stop - 1) // BLOCK_BYTES + 1)
        whole: list[Range] = [
            (file, block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, size_bytes)) for block in blocks
        ]
        exact: Range = (file, start, stop)
        with self._shared.lock:
            entries = self._shared.entries
            if not all(found in entries for found in whole):
                if exact in entries:
                    return [self._use(exact)]
                num_known = sum(self._touch(file, block) for block in blocks)
                if not num_known and stop - start < BLOCK_BYTES:
                    return [self._use(exact)]
            return [self._use(found) for found in whole]

    @property
    def is_busy(self) -> bool:
        """Whether so much is being fetched that more would push out what nobody has read yet."""
        return self._shared.pending_bytes > self._cache_bytes // 2

    @property
    def pool(self) -> ThreadPoolExecutor:
        """The threads that fetch."""
        if self._shared.pool is None:
            self._shared.pool = ThreadPoolExecutor(PARALLELISM, thread_name_prefix="marin_corpus-fetch")
        return self._shared.pool

    def _touch(self, file: str, block: int) -> bool:
        """Whether the block was touched before; remembers that it is."""
        touched = self._shared.touched
        known = (file, block) in touched
        touched[file, block] = None
        touched.move_to_end((file, block))
        while len(touched) > max(1, self._cache_bytes // BLOCK_BYTES):
            touched.popitem(last=False)
        return known

    def _use(self, wanted: Range) -> "tuple[Range, Future[bytes]]":
        """The entry, begun if it is new, as the last used."""
        shared = self._shared
        entry = shared.entries.get(wanted)
        if entry is not None:
            shared.entries.move_to_end(wanted)
            return wanted, entry.future
        file, start, stop = wanted
        entry = _Entry(self.pool.submit(self._fetch, file, start, stop), stop - start + _ENTRY_BYTES)
        shared.entries[wanted] = entry
        shared.cost_bytes += entry.cost_bytes
        shared.pending_bytes += entry.cost_bytes
        entry.future.add_done_callback(lambda _: self._finished(shared, wanted, entry))
        self._evict()
        return wanted, entry.future

    @staticmethod
    def _finished(shared: _Shared, wanted: Range, entry: _Entry) -> None:
        with shared.lock:
            shared.pending_bytes -= entry.cost_bytes
            # A failure is told to those who wait for it, and not remembered: the next read tries again.
            if (entry.future.cancelled() or entry.future.exception() is not None) and wanted in shared.entries:
                del shared.entries[wanted]
                shared.cost_bytes -= entry.cost_bytes

    def _evict(self) -> None:
        shared = self._shared
        excess = shared.cost_bytes - self._cache_bytes
        doomed = []
        for wanted, entry in shared.entries.items():
            if excess <= 0:
                break
            if entry.future.done():
                doomed.append(wanted)
                excess -= entry.cost_bytes
        for wanted in doomed:
            shared.cost_bytes -= shared.entries.pop(wanted).cost_bytes
