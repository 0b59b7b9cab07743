"""Append-only streams kept as numbered objects (`000001.jsonl`, ...), for stores that cannot append.

A segment is closed when it is 1 MiB or 10 s old (the first ones earlier, for whoever waits to see something), and
written once. Writing happens in one background thread that all
streams of a process share, so the caller never waits for storage and an idle stream costs nothing.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from marin_storage import NotFound, StorageError, Store

from marin_pipe.execution.errors import RecordError

SEGMENT_BYTES = 1 << 20
SEGMENT_AGE_S = 10.0
FIRST_AGES_S = (1.0, 2.0, 5.0)
"""How old the first segments get."""
DROPPED_FILE = "dropped.json"


class Flusher:
    """Calls functions after a delay, from one thread that starts with the first request."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._due: dict[Callable[[], None], float] = {}
        self._wakes_at = float("inf")
        self._thread: threading.Thread | None = None

    def schedule(self, function: Callable[[], None], *, delay_s: float) -> None:
        """Call `function` in `delay_s` seconds, or earlier if that was asked before."""
        when = time.monotonic() + delay_s
        with self._condition:
            if self._due.get(function, float("inf")) <= when:
                return
            self._due[function] = when
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._loop, name="marin_pipe-flusher", daemon=True)
                self._thread.start()
            elif when < self._wakes_at:
                self._condition.notify()

    def cancel(self, function: Callable[[], None]) -> None:
        """Forget `function`. A call that has begun is not waited for."""
        with self._condition:
            self._due.pop(function, None)

    def _loop(self) -> None:
        while True:
            with self._condition:
                now = time.monotonic()
                ready = [function for function, when in self._due.items() if when <= now]
                for function in ready:
                    del self._due[function]
                if not ready:
                    self._wakes_at = min(self._due.values(), default=float("inf"))
                    self._condition.wait(None if not self._due else self._wakes_at - now)
                    self._wakes_at = 0.0
            for function in ready:
                function()


FLUSHER = Flusher()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that arrived together. `time` in seconds since the epoch."""

    time: float
    data: bytes


@dataclass(slots=True, eq=False)
class _Segment:
    number: int
    chunks: list[Chunk]
    size_bytes: int
    lines: int
    rendered: bytes | None = None
    stored: bool = False


Render = Callable[[list[Chunk], bool, bool], bytes]
"""(chunks, after a gap, last) -> the segment's bytes; called once a segment, in order."""


def join_chunks(chunks: list[Chunk], after_gap: bool, last: bool) -> bytes:
    """Render lines that are complete already."""
    del after_gap, last
    return b"".join(chunk.data for chunk in chunks)


class SegmentWriter:
    """One stream below `prefix`. Thread-safe.

    With `cap_bytes` the stream keeps its beginning and its end: when more than three quarters of the cap are written,
    or storage is more than a quarter of the cap behind, what follows is a ring of the last quarter. Memory is bounded
    by half of the cap and a few segments. How much was dropped is kept in `dropped.json`. Without a cap nothing is.
    """

    def __init__(self, store: Store, prefix: str, *, render: Render = join_chunks, cap_bytes: int | None = None):
        self._store, self._prefix, self._render = store, prefix, render
        self._tail_limit = None if cap_bytes is None else cap_bytes // 4
        self._head_limit = None if cap_bytes is None else cap_bytes - cap_bytes // 4
        # `_lock` guards the lists and is held for moments; `_upload_lock` is held while storage is written.
        self._lock = threading.Lock()
        self._upload_lock = threading.Lock()
        self._open: list[Chunk] = []
        self._open_bytes = 0
        self._pending: deque[_Segment] = deque()
        self._pending_bytes = 0
        self._next_number = 1
        self._head_bytes = 0
        self._head_number: int | None = None
        """Number of the last segment of the beginning, once the ring has begun."""
        self._ring: deque[_Segment] = deque()
        self._ring_bytes = 0
        self._uploading: _Segment | None = None
        self._to_delete: list[int] = []
        self._dropped_bytes = 0
        self._dropped_lines = 0
        self._last_rendered = 0
        self._closed = False
        self.error: StorageError | None = None
        """The last error of the background thread; what it could not write is tried again."""

    def append(self, data: bytes) -> None:
        """Take bytes; returns at once."""
        with self._lock:
            first, number = not self._open, self._next_number
            self._open.append(Chunk(time.time(), data))
            self._open_bytes += len(data)
            sealed = self._open_bytes >= SEGMENT_BYTES
            if sealed:
                self._seal()
            in_ring = self._head_number is not None
        if sealed and not in_ring:
            FLUSHER.schedule(self._flush_sealed, delay_s=0.0)
        elif first:
            # A flood behind the beginning is written every 10 s only: most of it would be dropped again.
            FLUSHER.schedule(self._flush_all, delay_s=_age_s(number))

    def close(self) -> None:
        """Write what is left. Idempotent; raises the storage error if it cannot be written."""
        FLUSHER.cancel(self._flush_sealed)
        FLUSHER.cancel(self._flush_all)
        if self._next_number == 1 and not self._open:
            return
        with self._upload_lock:
            with self._lock:
                if self._closed:
                    return
                # Even with nothing new: the renderer may hold an unfinished line.
                self._open.append(Chunk(time.time(), b""))
                self._seal()
            self._upload(last=True)
            self._closed = True

    def _seal(self) -> None:
        if not self._open:
            return
        segment = _Segment(
            number=self._next_number,
            chunks=self._open,
            size_bytes=self._open_bytes,
            lines=sum(chunk.data.count(b"\n") for chunk in self._open),
        )
        self._next_number += 1
        self._open, self._open_bytes = [], 0
        self._pending.append(segment)
        self._pending_bytes += segment.size_bytes
        if self._tail_limit is None or self._head_limit is None:
            return
        if self._head_number is None:
            if self._head_bytes + segment.size_bytes <= self._head_limit and self._pending_bytes <= self._tail_limit:
                self._head_bytes += segment.size_bytes
                return
            self._head_number = segment.number - 1
        self._ring.append(segment)
        self._ring_bytes += segment.size_bytes
        while self._ring_bytes > self._tail_limit and len(self._ring) > 1:
            self._drop(self._ring.popleft())

    def _drop(self, segment: _Segment) -> None:
        self._ring_bytes -= segment.size_bytes
        self._dropped_bytes += segment.size_bytes
        self._dropped_lines += segment.lines
        if segment.stored or segment is self._uploading:
            self._to_delete.append(segment.number)
            return
        self._pending.remove(segment)
        self._pending_bytes -= segment.size_bytes

    def _flush_sealed(self) -> None:
        self._in_background(seal=False)

    def _flush_all(self) -> None:
        self._in_background(seal=True)

    def _in_background(self, *, seal: bool) -> None:
        with self._upload_lock:
            if self._closed:
                return
            with self._lock:
                if seal:
                    self._seal()
            try:
                self._upload(last=False)
                self.error = None
            except StorageError as error:
                self.error = error
                FLUSHER.schedule(self._flush_all, delay_s=SEGMENT_AGE_S)

    def _upload(self, *, last: bool) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    break
                segment = self._uploading = self._pending[0]
                final = last and len(self._pending) == 1
            if segment.rendered is None:
                after_gap = segment.number != self._last_rendered + 1
                segment.rendered = self._render(segment.chunks, after_gap, final)
                segment.chunks, self._last_rendered = [], segment.number
            # Another try must write these bytes: what the renderer carried over is used up.
            if segment.rendered:
                self._store.write(f"{self._prefix}/{segment_name(segment.number)}", segment.rendered)
            with self._lock:
                self._uploading = None
                segment.rendered, segment.stored = None, True
                self._pending.popleft()
                self._pending_bytes -= segment.size_bytes
        self._delete_dropped()

    def _delete_dropped(self) -> None:
        with self._lock:
            dropped, self._to_delete = self._to_delete, []
            if not self._dropped_bytes:
                return
            note = {"after": self._head_number, "bytes": self._dropped_bytes, "lines": self._dropped_lines}
        # The note comes first: a reader that meets the gap finds what it means.
        self._store.write(f"{self._prefix}/{DROPPED_FILE}", json.dumps(note).encode())
        for number in dropped:
            self._store.delete(f"{self._prefix}/{segment_name(number)}")


def _age_s(number: int) -> float:
    """How old segment `number` gets before it is closed."""
    return FIRST_AGES_S[number - 1] if number <= len(FIRST_AGES_S) else SEGMENT_AGE_S


def segment_name(number: int) -> str:
    return f"{number:06d}.jsonl"


@dataclass(frozen=True, slots=True)
class Gap:
    """What the cap dropped between the beginning and the end of a stream."""

    after: int
    size_bytes: int
    lines: int


def list_segments(store: Store, prefix: str) -> tuple[list[int], Gap | None]:
    """Numbers of the stored segments in order, and the gap if the cap dropped some."""
    names = [entry.key.rpartition("/")[2] for entry in store.list_directory(prefix).files]
    numbers = sorted(int(name.partition(".")[0]) for name in names if name.endswith(".jsonl"))
    if DROPPED_FILE not in names:
        return numbers, None
    note = json.loads(store.read(f"{prefix}/{DROPPED_FILE}").data)
    return numbers, Gap(after=note["after"], size_bytes=note["bytes"], lines=note["lines"])


def read_segment(store: Store, prefix: str, number: int) -> Iterator[dict[str, Any]]:
    """The JSON objects of one segment; nothing if the cap dropped it since it was listed."""
    key = f"{prefix}/{segment_name(number)}"
    try:
        data = store.read(key).data
    except NotFound:
        return
    for index, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            raise RecordError(
                f"{key}: line {index} is not JSON: {error}",
                why="the file was changed after it was written, or cut short by a crash",
            ) from error
