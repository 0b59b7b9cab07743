"""A launch whose storage fails at its n-th mutation, for every n and every kind of failure, and the launch after it."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from faults import KILLS, Fault, FaultyBackend, Killed
from marin_storage import Backend, RetryPolicy, StorageError, Store
from marin_storage.local import LocalBackend
from marin_storage.memory import MemoryBackend
from outputs import check_once, check_whole, read_commits

import marin_pipe
from marin_pipe import StepContext, step
from marin_pipe.execution import lease, provenance
from marin_pipe.execution import run as run_module
from marin_pipe.execution.backends import body
from marin_pipe.execution.report import RunReport

_numbers = itertools.count()
_ran: list[str] = []
PASSING = (Fault.FAILED, Fault.REPLY_LOST, Fault.TOO_MANY_REQUESTS)
FINAL = (Fault.NO_SPACE, Fault.DENIED)


@step
def lines(count: int, *, ctx: StepContext) -> int:
    _ran.append("lines")
    print("counting")
    ctx.metrics.log(1, {"count": count})
    (ctx.output / "lines.txt").write_text("line\n" * count)
    (ctx.output / "more").mkdir(exist_ok=True)
    (ctx.output / "more" / "lines.txt").write_text("more\n" * count)
    return count


@step
def total(count: int, *, ctx: StepContext) -> int:
    _ran.append("total")
    (ctx.output / "total.txt").write_text(str(count))
    return count


STEPS = {"total": total(lines(3))}


@pytest.fixture(autouse=True)
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processes a launch would be most of a sweep's time."""
    monkeypatch.setattr(provenance, "git_state", lambda _: (None, None))


@pytest.fixture(params=["local", "memory"])
def new_inner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Backend]]:
    made: list[Backend] = []

    def new() -> Backend:
        number = next(_numbers)
        inner = LocalBackend(str(tmp_path / str(number))) if request.param == "local" else MemoryBackend(f"f{number}")
        made.append(inner)
        return inner

    yield new
    if request.param == "memory":
        for inner in made:
            for entry in inner.list_files(""):
                inner.delete(entry.key)


def no_wait() -> RetryPolicy:
    now = itertools.count()
    return RetryPolicy(clock=lambda: next(now) * 1e-3, sleep=lambda _: None, random=lambda: 0.5)


class Sweep:
    """Launches over a backend that meets faults, as processes that are gone when they return."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self._monkeypatch = monkeypatch
        self._pids = itertools.count(10_000_000)

    def launch(self, backend: Backend) -> RunReport:
        store = Store(backend, retry=no_wait())
        _ran.clear()
        with self._monkeypatch.context() as patch:
            # No process has such a number: to the next launch this one is dead, whether it crashed or not.
            gone = replace(lease.this_process(), pid=next(self._pids), pid_start="1")
            patch.setattr(lease, "this_process", lambda: gone)
            patch.setattr(run_module, "open_store", lambda _: store)
            patch.setattr(body, "store_at", lambda _: store)
            return marin_pipe.run(STEPS, root=backend.url, backend="inline")


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Sweep:
    return Sweep(monkeypatch)


def test_nothing_fails(sweep: Sweep, new_inner: Callable[[], Backend]) -> None:
    backend = FaultyBackend(new_inner())
    assert sweep.launch(backend).ok
    assert _ran == ["lines", "total"]
    # The sweeps below mean something only if a launch makes many mutations.
    assert backend.mutations > 15
    check_once(Store(backend), 2)
    again = FaultyBackend(backend.inner)
    assert sweep.launch(again).ok
    assert (_ran, again.mutations) == ([], 0)


@pytest.mark.parametrize("fault", PASSING)
def test_a_failure_that_passes_is_not_noticed(sweep: Sweep, new_inner: Callable[[], Backend], fault: Fault) -> None:
    for n in itertools.count(1):
        backend = FaultyBackend(new_inner(), {n: fault})
        report = sweep.launch(backend)
        if backend.mutations < n:
            break
        assert [end.status for end in report.steps] == ["built", "built"], n
        assert _ran == ["lines", "total"], n
        check_once(Store(backend.inner), 2)


@pytest.mark.parametrize("fault", KILLS)
def test_a_crash_anywhere_is_made_good_by_the_next_launch(
    sweep: Sweep, new_inner: Callable[[], Backend], fault: Fault
) -> None:
    for n in itertools.count(1):
        backend = FaultyBackend(new_inner(), {n: fault})
        try:
            report = sweep.launch(backend)
        except Killed:
            check_next_launch(sweep, backend.inner, n)
            continue
        assert report.ok
        break
    assert n > 15


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fault", [*FINAL, Fault.FAILED, Fault.TOO_MANY_REQUESTS])
def test_a_failure_for_good_is_a_clear_error_and_the_next_launch_succeeds(
    sweep: Sweep, new_inner: Callable[[], Backend], fault: Fault, lasting: bool
) -> None:
    for n in itertools.count(1):
        backend = FaultyBackend(new_inner(), dict.fromkeys(range(n, n + (1000 if lasting else 1)), fault))
        end = launched(sweep, backend)
        if backend.mutations < n:
            break
        if isinstance(end, StorageError):
            # Before the first step: there is nobody but the user to tell.
            assert str(fault) in str(end), n
            assert not read_commits(Store(backend.inner)), n
        else:
            check_report(end, Store(backend.inner), fault, n)
        check_next_launch(sweep, backend.inner, n)
    assert n > 15


def launched(sweep: Sweep, backend: Backend) -> RunReport | StorageError:
    try:
        return sweep.launch(backend)
    except StorageError as error:
        return error


def check_report(report: RunReport, store: Store, fault: Fault, n: int) -> None:
    """Steps told as done are, with that commit; what failed says why; what it blocked says because of whom."""
    commits = read_commits(store)
    for end in report.steps:
        if end.status == "built":
            assert list(commits[end.directory]) == [1], n
        elif end.status == "failed":
            assert end.failure is not None
            assert str(fault) in end.failure.message, n
            # Only where the store never answered may there be a commit all the same, and then the message says so.
            assert end.directory not in commits or "may or may not" in end.failure.message, n
        else:
            assert (end.status, end.name) == ("blocked", "total"), n
            assert "because of lines" in end.why, n
    assert report.ok == all(end.status == "built" for end in report.steps), n
    assert report.exit_code == (0 if report.ok else 1), n


def check_next_launch(sweep: Sweep, inner: Backend, n: int) -> None:
    """It needs no help, repeats nothing that was committed, and leaves each step with one whole commit."""
    store = Store(inner)
    before = check_whole(store)
    report = sweep.launch(inner)
    assert report.ok, n
    assert report.duration_s < 5, n
    after = check_once(store, 2)
    assert before.items() <= after.items(), n
    assert {end.directory for end in report.steps if end.status == "cached"} == set(before), n
    assert len(_ran) == 2 - len(before), n
