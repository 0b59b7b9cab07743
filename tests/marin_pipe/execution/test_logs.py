"""Logs: lines, redaction, caps and following."""

import json
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_storage import Store, Unavailable, open_store

from marin_pipe.execution import segments
from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.logs import LINE_CHARACTERS, LogLine, LogWriter, follow_log, read_log
from marin_pipe.execution.secret import Redactor

SECRET = "s3cr3t/value+of.the-key"
REDACTOR = Redactor({SECRET: "KEY"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def texts(store: Store, directory: str = "a") -> list[str]:
    """Whole lines: pieces of long ones are joined."""
    lines, line = [], ""
    for entry in read_log(store, directory):
        line += entry.text
        if not entry.more:
            lines.append(line)
            line = ""
    return lines


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


def memory_store() -> Store:
    memory_store.count += 1  # type: ignore[attr-defined]
    return open_store(f"memory://logs-{memory_store.count}")  # type: ignore[attr-defined]


memory_store.count = 0  # type: ignore[attr-defined]


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=30)),
    places=st.lists(st.integers(min_value=0), max_size=10),
)
def test_lines_do_not_depend_on_how_bytes_arrive(lines: list[str], places: list[int]) -> None:
    store = memory_store()
    log = LogWriter(store, "a", Redactor({}))
    for piece in cut("".join(f"{line}\n" for line in lines).encode(), places):
        log.write(piece)
    log.close()
    assert texts(store) == lines


@given(data=st.binary(max_size=200), places=st.lists(st.integers(min_value=0), max_size=5))
def test_any_bytes_are_logged(data: bytes, places: list[int]) -> None:
    store = memory_store()
    log = LogWriter(store, "a", Redactor({}))
    for piece in cut(data, places):
        log.write(piece)
    log.close()
    expected = data.decode("utf-8", "replace").split("\n")
    if expected[-1] == "":
        expected.pop()
    last_is_whole = data.endswith(b"\n")
    stripped = [line.removesuffix("\r") for line in expected]
    if expected and not last_is_whole:
        stripped[-1] = expected[-1]
    assert texts(store) == stripped


@given(
    before=st.integers(0, 3 * LINE_CHARACTERS),
    after=st.integers(0, 100),
    places=st.lists(st.integers(min_value=0), max_size=6),
    flushes=st.sets(st.integers(0, 6)),
)
def test_a_secret_is_redacted_wherever_bytes_are_cut(
    before: int, after: int, places: list[int], flushes: set[int]
) -> None:
    store = memory_store()
    log = LogWriter(store, "a", REDACTOR)
    for index, piece in enumerate(cut(b"x" * before + SECRET.encode() + b"y" * after, places)):
        log.write(piece)
        if index in flushes:
            log._segments._flush_all()
    log.close()
    assert "".join(texts(store)) == "x" * before + "[KEY redacted]" + "y" * after
    assert SECRET[4:16] not in "".join(log.tail())


def test_nothing_printed_leaves_nothing(store: Store) -> None:
    log = LogWriter(store, "a", REDACTOR)
    log.write(b"")
    assert log.tail() == ()
    log.close()
    log.close()
    assert store.list_files("") == []


def test_entries_carry_the_time_they_arrived(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(segments.time, "time", lambda: next(times))
    log = LogWriter(store, "a", REDACTOR)
    log.write(b"one\ntw")
    log.write(b"o\nthree\n")
    log.write(b"four")
    log.close()
    assert list(read_log(store, "a")) == [
        LogLine(10.0, "one"),
        LogLine(20.0, "two"),
        LogLine(20.0, "three"),
        LogLine(40.0, "four"),
    ]


def test_segments_are_closed_by_size_and_numbered(store: Store) -> None:
    log = LogWriter(store, "a", REDACTOR)
    line = b"z" * 999 + b"\n"
    for _ in range(2500):
        log.write(line)
    log.close()
    keys = [entry.key for entry in store.list_files("a")]
    assert keys == ["a/log/000001.jsonl", "a/log/000002.jsonl", "a/log/000003.jsonl"]
    assert texts(store) == ["z" * 999] * 2500
    first = json.loads(store.read(keys[0]).data.split(b"\n")[0])
    assert set(first) == {"t", "text"}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"waited 20 s for {what}"
        time.sleep(0.005)


def test_a_segment_is_closed_by_age(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_AGE_S", 0.02)
    monkeypatch.setattr(segments, "FIRST_AGES_S", ())
    log = LogWriter(store, "a", REDACTOR)
    log.write(b"early\n")
    wait_for(lambda: texts(store) == ["early"], "the first segment")
    log.write(b"later\n")
    wait_for(lambda: texts(store) == ["early", "later"], "the second segment")
    log.close()


def test_who_follows_a_log_sees_its_beginning_early(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flusher:
        def __init__(self) -> None:
            self.ages: list[float] = []

        def schedule(self, function: Callable[[], None], *, delay_s: float) -> None:
            self.ages.append(delay_s)
            function()

        def cancel(self, function: Callable[[], None]) -> None: ...

    flusher = Flusher()
    monkeypatch.setattr(segments, "FLUSHER", flusher)
    log = LogWriter(store, "a", REDACTOR)
    for number in range(6):
        # The first byte of a segment sets its time; this flusher writes it with that byte already.
        log.write(b"%d\n" % number)
    log.close()
    assert flusher.ages == [1, 2, 5, 10, 10, 10]
    assert texts(store) == ["0", "1", "2", "3", "4", "5"]


class TestCap:
    CAP = 8 << 20

    def flood(self, store: Store, lines: int) -> LogWriter:
        log = LogWriter(store, "a", REDACTOR, cap_bytes=self.CAP)
        for number in range(lines):
            log.write(b"%07d %s\n" % (number, b"z" * 1015))
        log.close()
        return log

    def test_beginning_and_end_are_kept_and_the_gap_is_told(self, store: Store) -> None:
        lines = 30_000
        self.flood(store, lines)
        stored = texts(store)
        assert sum(entry.size_bytes for entry in store.list_files("a")) < self.CAP * 1.1
        gaps = [index for index, line in enumerate(stored) if "were dropped here" in line]
        assert len(gaps) == 1
        head, tail = stored[: gaps[0]], stored[gaps[0] + 1 :]
        numbers = [int(line[:7]) for line in head]
        assert numbers == list(range(len(head)))
        assert len(head) >= self.CAP // 4 // 1024 - 1024
        # The first lines after the gap may be cut.
        assert [int(line[:7]) for line in tail[8:]] == list(range(lines - len(tail) + 8, lines))
        assert len(tail) > 500
        told = int(stored[gaps[0]].split()[0][1:])
        assert abs(told - (lines - len(head) - len(tail))) <= 8

    def test_below_the_cap_nothing_is_dropped(self, store: Store) -> None:
        self.flood(store, 1000)
        assert len(texts(store)) == 1000

    def test_a_secret_cut_by_the_gap_does_not_show(self, store: Store) -> None:
        log = LogWriter(store, "a", REDACTOR, cap_bytes=self.CAP)
        piece = SECRET.encode() * 997
        for _ in range(2000):
            log.write(piece)
        log.close()
        assert SECRET[:6] not in "".join(texts(store)).replace("[KEY redacted]", "")
        assert SECRET[-6:] not in "".join(texts(store)).replace("[KEY redacted]", "")

    def test_memory_is_bounded_while_storage_does_not_answer(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> str:
            raise Unavailable("down")

        monkeypatch.setattr(store, "write", refuse)
        log = LogWriter(store, "a", REDACTOR, cap_bytes=self.CAP)
        piece = b"z" * (1 << 16)
        tracemalloc.start()
        try:
            for _ in range(1024):
                log.write(bytes(piece) + b"\n")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # Of 64 MiB: half of the cap, and the segment that is being rendered.
        assert peak < self.CAP * 2
        with pytest.raises(Unavailable):
            log.close()


def test_what_storage_refused_is_written_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write, refusals = store.write, iter([True, True])

    def sometimes(key: str, data: bytes) -> str:
        if next(refusals, False):
            raise Unavailable("down for a moment")
        return write(key, data)

    monkeypatch.setattr(store, "write", sometimes)
    log = LogWriter(store, "a", REDACTOR)
    log.write(b"one\n")
    log._segments._flush_all()
    assert isinstance(log._segments.error, Unavailable)
    log.write(b"two\n")
    log._segments._flush_all()
    log._segments._flush_all()
    assert log._segments.error is None
    log.close()
    assert texts(store) == ["one", "two"]


class TestTail:
    def test_last_lines(self, store: Store) -> None:
        log = LogWriter(store, "a", REDACTOR)
        log.write(b"".join(b"line %d\n" % number for number in range(100)))
        log.write(b"unfinished " + SECRET.encode())
        assert log.tail(3) == ("line 98", "line 99", "unfinished [KEY redacted]")
        assert log.tail(0) == ()
        log.close()

    @given(st.integers(0, 200))
    def test_a_secret_at_the_edge_does_not_show(self, shift: int) -> None:
        log = LogWriter(memory_store(), "a", REDACTOR)
        log.write(SECRET.encode() * 20_000 + b"x" * shift)
        log.write(b"\nend\n")
        shown = "\n".join(log.tail()).replace("[KEY redacted]", "")
        assert SECRET[:6] not in shown
        assert SECRET[-6:] not in shown
        assert shown.endswith("end")
        log.close()


class TestFollow:
    def test_lines_come_as_they_are_written(self, store: Store) -> None:
        log = LogWriter(store, "a", REDACTOR)
        steps = iter([b"one\n", b"two\nthree\n", b"last\n"])
        ended = False

        def pause(_: float) -> None:
            nonlocal ended
            piece = next(steps, None)
            if piece is None:
                log.close()
                ended = True
            else:
                log.write(piece)
                log._segments._flush_all()

        lines = follow_log(store, "a", finished=lambda: ended, pause=pause)
        assert [line.text for line in lines] == ["one", "two", "three", "last"]

    def test_a_finished_log_is_read_once(self, store: Store) -> None:
        log = LogWriter(store, "a", REDACTOR)
        log.write(b"one\n")
        log.close()
        assert [line.text for line in follow_log(store, "a", finished=lambda: True)] == ["one"]

    def test_reading_goes_on_after_a_segment(self, store: Store) -> None:
        log = LogWriter(store, "a", REDACTOR)
        log.write(b"one\n")
        log._segments._flush_all()
        log.write(b"two\n")
        log.close()
        assert [line.text for line in read_log(store, "a", after=1)] == ["two"]


def test_a_damaged_segment_is_named(store: Store) -> None:
    store.write("a/log/000001.jsonl", b'{"t": 1, "text": "fine"}\n{"t": 1, "te')
    with pytest.raises(RecordError, match=r"a/log/000001\.jsonl: line 2"):
        list(read_log(store, "a"))
