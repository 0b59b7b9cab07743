"""Waiting for steps of other owners: what ends a wait, and what does not."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from launching import eventually
from marin_storage import Blob, RetryPolicy, Store, Transient, open_store
from marin_storage.memory import MemoryBackend

import marin_pipe
from marin_pipe import step
from marin_pipe.execution import lease as leases
from marin_pipe.execution import observe as observing
from marin_pipe.execution.lease import Held, LeaseTimes, Taken, Watch, acquire, beat, release
from marin_pipe.execution.observe import observe
from marin_pipe.execution.report import StepEvent
from marin_pipe.execution.waiting import LeaseWatcher

_numbers = itertools.count()
DIRECTORY = "step-0123456789abcdef"


class Flaky(MemoryBackend):
    """Reads fail as long as `failures` last."""

    failures = 0

    def read(self, key: str, *, version: str | None = None) -> Blob:
        if self.failures:
            self.failures -= 1
            raise Transient("injected: 503")
        return super().read(key, version=version)


class Waiting:
    """A lease of a live owner elsewhere, and a watcher that waits for it."""

    def __init__(self) -> None:
        self.backend = Flaky(f"test-waiting-{next(_numbers)}")
        self.store = Store(self.backend, retry=RetryPolicy(tries=1))
        held = acquire(self.store, DIRECTORY, seen=observe(self.store, DIRECTORY), times=LeaseTimes())
        assert isinstance(held, Held)
        self.held = held
        self.watcher = LeaseWatcher(self.store)
        self.over = threading.Event()
        self.watch = Watch()

    def wait(self) -> None:
        taken = Taken(lease=self.held.lease, version=self.held.version)
        self.watcher.watch(DIRECTORY, self.watch, taken, self.over.set)

    def ends(self) -> bool:
        return self.over.wait(10)

    def goes_on(self) -> bool:
        """For long enough to look again several times: a look at this store comes after 50 ms, then a little later."""
        return not self.over.wait(0.3)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    made = Waiting()
    yield made
    made.watcher.close()
    eventually(lambda: not any(t.name == "lease-watch" for t in threading.enumerate()), what="the waits end")


def test_a_live_owner_is_waited_for_until_it_releases(waiting: Waiting) -> None:
    waiting.wait()
    waiting.held = beat(waiting.store, waiting.held)
    assert waiting.goes_on()
    release(waiting.store, waiting.held)
    assert waiting.ends()
    assert waiting.watch.dead_version is None


def test_a_wait_ends_when_the_owner_dies(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting.wait()
    assert waiting.goes_on()
    monkeypatch.setattr(leases, "owner_is_dead", lambda lease: lease.owner == waiting.held.lease.owner)
    assert waiting.ends()
    assert waiting.watch.dead_version == waiting.held.version


def test_a_store_that_fails_for_a_while_ends_no_wait(waiting: Waiting) -> None:
    waiting.wait()
    waiting.backend.failures = 3
    assert waiting.goes_on()
    release(waiting.store, waiting.held)
    assert waiting.ends()


def test_a_lease_that_cannot_be_understood_is_believed_held_until_it_has_not_changed_for_a_while(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "UNREADABLE_TTL_S", 2.0)
    waiting.wait()
    version = waiting.store.write(f"{DIRECTORY}/lease.json", b'{"owner": "me"}')
    assert waiting.goes_on()
    assert waiting.ends()
    assert waiting.watch.dead_version == version


def test_a_launch_that_ends_waits_for_nobody(waiting: Waiting) -> None:
    waiting.wait()
    waiting.watcher.close()
    assert waiting.ends()


@step
def number(value: int) -> int:
    if value < 0:
        raise ValueError("negative")
    return value


def test_fail_fast_does_not_wait_for_other_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose steps may run for hours."""
    root = str(tmp_path / "root")
    theirs, mine = number(1), number(-1)
    elsewhere = replace(leases.this_process(), host="elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr(leases, "this_process", lambda: elsewhere)
        store = open_store(root)
        held = acquire(store, theirs.directory, seen=observe(store, theirs.directory), times=LeaseTimes())
    assert isinstance(held, Held)
    events: list[StepEvent] = []
    report = marin_pipe.run(
        [theirs, mine], root=root, backend="inline", keep_going=False, on_event=events.append, max_concurrent=1
    )
    assert "waiting" in [event.kind for event in events]
    assert {end.directory: end.status for end in report.steps} == {
        theirs.directory: "not run",
        mine.directory: "failed",
    }
    assert report.exit_code == 1
    assert report.duration_s < 10
