"""One step from its lease to its commit: tries, resumable state, a lost lease, and what a failing store may hide."""

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import drivers
import pytest
from lab import Lab
from launching import eventually
from marin_storage import OutOfSpace, RetryPolicy, Store, Transient, open_store
from marin_storage.local import LocalBackend
from outputs import check_once, check_whole

import marin_pipe
from marin_pipe import Runtime, StepContext, step
from marin_pipe.execution import provenance
from marin_pipe.execution import run as run_module
from marin_pipe.execution.lease import LeaseTimes
from marin_pipe.execution.records import Lease, parse
from marin_pipe.execution.report import RunReport


@pytest.fixture(autouse=True)
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git_state", lambda _: (None, None))


@step
def third_time_lucky(*, seen: Runtime[str], ctx: StepContext) -> int:
    """Fails twice, each time leaving a checkpoint."""
    found = [(work / "checkpoint").read_text() for work in ctx.earlier_work]
    drivers.add_line(seen, ",".join(found) or "nothing")
    (ctx.work / "checkpoint").write_text(str(len(found)))
    if len(found) < 2:
        raise OSError("not yet")
    return len(found)


@step
def broken(*, ctx: StepContext) -> int:
    """Fails by itself."""
    print("the last words")
    (ctx.output / "half.txt").write_text("half")
    raise ValueError("broken by itself")


@step
def quick(number: int) -> int:
    return number


class Wayward(LocalBackend):
    """A disk whose writes to some objects fail."""

    def __init__(self, root: Path):
        super().__init__(str(root))
        self.broken: tuple[str, ...] = ()
        self.error: Exception = Transient("injected: 503")
        self.refused: list[tuple[str, float]] = []

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        self._refuse(key)
        return super().create(key, data, durable=durable)

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        self._refuse(key)
        return super().replace(key, data, version=version, durable=durable)

    def write(self, key: str, data: bytes) -> str:
        self._refuse(key)
        return super().write(key, data)

    def _refuse(self, key: str) -> None:
        if any(part in key for part in self.broken):
            self.refused.append((key, time.monotonic()))
            raise self.error


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wayward:
    """What launches in this process take for their root."""
    backend = Wayward(tmp_path / "root")
    now = itertools.count()
    policy = RetryPolicy(clock=lambda: next(now) * 1e-3, sleep=lambda _: None, tries=2)
    monkeypatch.setattr(run_module, "open_store", lambda _: Store(backend, retry=policy))
    return backend


def launch(disk: Wayward, target: Any, **options: Any) -> RunReport:
    return marin_pipe.run({"target": target}, root=disk.url, **{"backend": "inline", **options})


def test_each_try_finds_the_work_of_those_before_it_newest_first(disk: Wayward, tmp_path: Path) -> None:
    seen = tmp_path / "seen.txt"
    report = launch(disk, third_time_lucky(seen=str(seen)).retry(times=2, on=(OSError,)))
    assert report.ok, report.steps
    assert seen.read_text().splitlines() == ["nothing", "0", "1,0"]
    ((_, commits),) = check_once(open_store(disk.url), 1).items()
    assert commits[1]["attempt"].startswith("000003")
    assert commits[1]["record"]["attempt_count"] == 3


def test_a_lease_that_cannot_be_renewed_stops_the_body_within_two_thirds_of_its_life(
    disk: Wayward, tmp_path: Path
) -> None:
    times = LeaseTimes(ttl_s=3.0)
    side = tmp_path / "side.txt"
    killed_s: list[float] = []

    def watch() -> None:
        eventually(lambda: side.exists() and "ready" in side.read_text(), what="the body runs")
        disk.broken = ("lease.json",)
        eventually(lambda: disk.refused, what="a beat fails")
        # It notes each of its rounds, so it is dead when no more come.
        before = 0
        while before != (now := pulse.stat().st_mtime_ns):
            before = now
            time.sleep(0.2)
        killed_s.append(time.monotonic() - 0.2)

    pulse = tmp_path / "pulse.txt"
    thread = threading.Thread(target=watch)
    thread.start()
    report = launch(disk, drivers.pulsing(side=str(side), pulse=str(pulse)), backend="local", times=times)
    thread.join()
    (end,) = report.steps
    assert (end.status, report.exit_code) == ("lost", 75)
    # From the last beat that arrived, at most one beat before the first that failed.
    assert killed_s[0] - disk.refused[0][1] < times.give_up_s + 1
    assert not check_whole(open_store(disk.url))


@pytest.mark.parametrize(
    "broken_part", ["lease.json", "ended.json", "/log/"], ids=["the release", "how it ended", "the log"]
)
def test_a_store_that_fails_at_the_end_hides_no_error_of_the_body(disk: Wayward, broken_part: str) -> None:
    disk.error = OutOfSpace(28, "injected: the disk is full")
    if broken_part == "lease.json":
        release_breaks(disk)
    else:
        disk.broken = (broken_part,)
    report = launch(disk, broken())
    assert disk.refused
    (end,) = report.steps
    assert (end.status, report.exit_code) == ("failed", 1)
    assert end.failure is not None
    assert end.failure.message == "broken by itself"
    assert "the last words" in end.failure.log_tail
    assert "raise ValueError" in end.failure.traceback


@pytest.mark.parametrize("broken_part", ["lease.json", "/builds/"], ids=["the release", "the index of builds"])
def test_a_store_that_fails_after_the_commit_makes_no_failure_of_it(
    disk: Wayward, broken_part: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk.error = OutOfSpace(28, "injected: the disk is full")
    if broken_part == "lease.json":
        release_breaks(disk)
    else:
        disk.broken = (broken_part,)
    report = launch(disk, quick(1))
    assert disk.refused
    assert (report.exit_code, report.steps[0].status) == (0, "built")
    assert "injected" in caplog.text
    check_once(open_store(disk.url), 1)


def release_breaks(disk: Wayward) -> None:
    """Refuse bodies of the lease that name no owner."""
    replace = disk.replace

    def replace_unless_released(key: str, data: bytes, *, version: str, durable: bool) -> str:
        if key.endswith("lease.json") and parse(Lease, data, key=key).owner is None:
            disk.refused.append((key, time.monotonic()))
            raise disk.error
        return replace(key, data, version=version, durable=durable)

    disk.replace = replace_unless_released  # type: ignore[method-assign]


def test_a_commit_that_storage_never_confirmed_is_said_to_be_unknown(disk: Wayward) -> None:
    disk.broken = ("commit.json",)
    report = launch(disk, quick(1))
    (end,) = report.steps
    assert end.status == "failed"
    assert end.failure is not None
    assert "may or may not have been applied" in end.failure.message
    disk.broken = ()
    assert launch(disk, quick(1)).ok


def test_other_steps_go_on_when_storage_fails_one(disk: Wayward) -> None:
    one, other = quick(1).named("one"), quick(2).named("other")
    disk.broken = (f"{one.directory}/commit.json",)
    report = marin_pipe.run([one, other], root=disk.url, backend="inline")
    assert {end.name: end.status for end in report.steps} == {"one": "failed", "other": "built"}


def test_a_lease_that_was_overwritten_by_hand_keeps_its_step_waiting_and_no_other(disk: Wayward) -> None:
    one, other = quick(1).named("one"), quick(2).named("other")
    Path(disk.url, one.directory).mkdir(parents=True)
    Path(disk.url, one.directory, "lease.json").write_text('{"owner": "me"}')
    report = marin_pipe.run([one, other], root=disk.url, backend="inline", no_wait=True)
    assert {end.name: end.status for end in report.steps} == {"one": "blocked", "other": "built"}
    assert report.exit_code == 4
    assert "lease.json is damaged" in next(end.why for end in report.steps if end.name == "one")


def test_a_failure_is_told_without_the_secret_in_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "hf_" + "abcdefghijklmnopqrstuvwxyz0123456789"
    monkeypatch.setenv("HF_TOKEN", token)
    exp = lab.module(
        """
        import os
        from marin_pipe import step

        @step
        def leak() -> int:
            raise ValueError("refused: " + os.environ["HF_TOKEN"])
        """
    )
    events: list[Any] = []
    failure = lab.run(exp.leak(), on_event=events.append)["leak"].failure
    assert failure is not None
    assert "ValueError: refused" in failure.traceback
    assert token not in repr(failure) + repr(events)
