"""The log of an attempt: `log/000001.jsonl`, ... of `{"t": seconds since the epoch, "text": line}`.

A line longer than 64 KiB is kept as several entries; all but its last have `"more": true`. Control characters and
escape sequences are kept as the program wrote them: whoever shows them must escape them.
"""

import codecs
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Protocol

from marin_storage import Store

from marin_pipe.execution.segments import Chunk, SegmentWriter, list_segments, read_segment

LOG_CAP_BYTES = 64 << 20
LINE_CHARACTERS = 1 << 16
OVERLAP_CHARACTERS = 1 << 12
"""Held back at the end of an unfinished long line, so that a secret shorter than this is never cut in two."""
RECENT_BYTES = 1 << 16


class Redacts(Protocol):
    """Removes secrets from text."""

    def redact(self, text: str) -> str: ...


class LogWriter:
    """Takes what one attempt prints and keeps it, redacted, in `<attempt directory>/log`. A `LogSink`; thread-safe."""

    def __init__(
        self, store: Store, attempt_directory: str, redactor: Redacts, *, cap_bytes: int = LOG_CAP_BYTES
    ) -> None:
        self._redactor = redactor
        self._recent: deque[bytes] = deque()
        self._recent_bytes = 0
        self._lock = threading.Lock()
        self._segments = SegmentWriter(
            store, f"{attempt_directory}/log", render=_Renderer(redactor).render, cap_bytes=cap_bytes
        )

    def write(self, data: bytes) -> None:
        """Take bytes in any cut; returns at once."""
        if not data:
            return
        recent = self._recent
        with self._lock:
            recent.append(data)
            self._recent_bytes += len(data)
            while self._recent_bytes - len(recent[0]) >= RECENT_BYTES:
                self._recent_bytes -= len(recent.popleft())
            self._segments.append(data)

    def tail(self, count: int = 20) -> tuple[str, ...]:
        """The last lines, redacted; at most 64 KiB of text is looked at."""
        with self._lock:
            data = b"".join(self._recent)
        # The first line may begin in the middle, and with it a secret: it is shown only if nothing was cut off.
        whole = len(data) < RECENT_BYTES
        text = self._redactor.redact(data[-RECENT_BYTES - OVERLAP_CHARACTERS :].decode("utf-8", "replace"))
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        if not whole:
            lines = lines[1:] or [f"[the last line is long; it ends:] {text[-1024:]}"]
        return tuple(line.rstrip("\r") for line in lines[-count:]) if count else ()

    def close(self) -> None:
        """Write what is left. Idempotent; raises `StorageError` if storage does not take it."""
        self._segments.close()


class _Renderer:
    """Bytes as printed -> JSON lines. Keeps the unfinished line between segments."""

    def __init__(self, redactor: Redacts):
        self._redactor = redactor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._carry = ""

    def render(self, chunks: list[Chunk], after_gap: bool, last: bool) -> bytes:
        if after_gap:
            self._decoder.reset()
            self._carry = ""
        decoded = self._decoder.decode(b"".join(chunk.data for chunk in chunks), final=last)
        text = self._redactor.redact(self._carry + decoded)
        times = _line_times(chunks)
        if after_gap:
            # The gap may have cut a secret in two: its second half would not be known as one.
            times = times[text.count("\n", 0, OVERLAP_CHARACTERS) :]
            text = text[OVERLAP_CHARACTERS:]
        lines = text.split("\n")
        self._carry = lines.pop()
        out: list[str] = []
        for index, line in enumerate(lines):
            _render_line(out, times[min(index, len(times) - 1)], line.removesuffix("\r"))
        self._render_unfinished(out, times[-1], last)
        return "".join(out).encode()

    def _render_unfinished(self, out: list[str], time_s: float, last: bool) -> None:
        if last:
            if self._carry:
                _render_line(out, time_s, self._carry)
            self._carry = ""
        elif len(self._carry) > LINE_CHARACTERS + OVERLAP_CHARACTERS:
            _render_line(out, time_s, self._carry[:-OVERLAP_CHARACTERS], more=True)
            self._carry = self._carry[-OVERLAP_CHARACTERS:]


def _render_line(out: list[str], time_s: float, line: str, *, more: bool = False) -> None:
    while len(line) > LINE_CHARACTERS:
        out.append(f'{{"t":{time_s:.3f},"text":{encode_basestring(line[:LINE_CHARACTERS])},"more":true}}\n')
        line = line[LINE_CHARACTERS:]
    goes_on = ',"more":true' if more else ""
    out.append(f'{{"t":{time_s:.3f},"text":{encode_basestring(line)}{goes_on}}}\n')


def _line_times(chunks: list[Chunk]) -> list[float]:
    """When each line ended, then the time of the last chunk."""
    times: list[float] = []
    for chunk in chunks:
        times.extend([chunk.time] * chunk.data.count(b"\n"))
    times.append(chunks[-1].time)
    return times


@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry. `more`: the line goes on in the next entry. `time` in seconds since the epoch."""

    time: float
    text: str
    more: bool = False


def read_log(store: Store, attempt_directory: str, *, after: int = 0) -> Iterator[LogLine]:
    """The stored lines of an attempt, oldest first, from the segment after number `after`."""
    yield from (line for _, line in _read_numbered(store, f"{attempt_directory}/log", after))


def follow_log(
    store: Store,
    attempt_directory: str,
    *,
    finished: Callable[[], bool],
    poll_s: float = 1.0,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[LogLine]:
    """Like `read_log`, then the lines that come, until `finished()` says that none will."""
    seen = 0
    while True:
        # Asked before reading: what was written before the end is then always read.
        done = finished()
        for number, line in _read_numbered(store, f"{attempt_directory}/log", seen):
            seen = max(seen, number)
            yield line
        if done:
            return
        pause(poll_s)


def _read_numbered(store: Store, prefix: str, after: int) -> Iterator[tuple[int, LogLine]]:
    numbers, gap = list_segments(store, prefix)
    for number in numbers:
        if number <= after:
            continue
        if gap is not None and number > gap.after:
            yield (
                number,
                LogLine(0.0, f"[{gap.lines} lines, {gap.size_bytes} bytes were dropped here: the log is capped]"),
            )
            gap = None
        for entry in read_segment(store, prefix, number):
            yield number, LogLine(entry["t"], entry["text"], entry.get("more", False))
