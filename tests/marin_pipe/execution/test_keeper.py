"""Heartbeats under a store that fails, hangs or loses the lease; time passes only when a test says so."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults import Fault, FaultyBackend
from launching import eventually
from marin_storage import Conflict, RetryPolicy, Store, Transient
from marin_storage.memory import MemoryBackend

from marin_pipe.execution import keeper as keeper_module
from marin_pipe.execution import lease as lease_module
from marin_pipe.execution.keeper import Callbacks, Holding, Keeper
from marin_pipe.execution.lease import Held, LeaseTimes, acquire, request_cancel
from marin_pipe.execution.observe import observe, read_lease
from marin_pipe.execution.records import Lease

_numbers = itertools.count()
TIMES = LeaseTimes()


class Clock:
    """Seconds since boot."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Failing(MemoryBackend):
    """Writes to a lease fail while `broken`, and hang while `hung` is not set."""

    def __init__(self) -> None:
        super().__init__(f"test-keeper-{next(_numbers)}")
        self.broken = False
        self.hanging: dict[str, threading.Event] = {}
        self.tries = 0

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        self.tries += 1
        if key in self.hanging:
            self.hanging[key].wait(60)
        if self.broken:
            raise Transient("injected: 503")
        return super().replace(key, data, version=version, durable=durable)


class World:
    """A keeper, its store, and what it told."""

    def __init__(self, clock: Clock):
        self.clock = clock
        self.backend = Failing()
        self.store = Store(self.backend, retry=RetryPolicy(tries=2, sleep=lambda _: None))
        self.keeper = Keeper(self.store, TIMES)
        self.lost: list[tuple[str, float, str]] = []
        self.cancelled: list[str] = []

    def acquire(self, directory: str, **arguments: Any) -> Held:
        held = acquire(self.store, directory, seen=observe(self.store, directory), times=TIMES, **arguments)
        assert isinstance(held, Held)
        return held

    def hold(self, directory: str = "step-1") -> Holding:
        callbacks = Callbacks(
            lost=lambda why: self.lost.append((directory, self.clock.now_s, why)), cancelled=self.cancelled.append
        )
        return self.keeper.hold(self.acquire(directory), callbacks)

    def stored(self, directory: str = "step-1") -> Lease:
        present = read_lease(self.store, directory)
        assert present is not None
        return present[0]

    def pass_time(self, seconds: int, *, num_hanging: int = 0) -> None:
        """A second at a time, with every beat that comes due; at most `num_hanging` of them do not end."""
        for _ in range(seconds):
            self.clock.now_s += 1.0
            self.keeper.tick()
            eventually(lambda: num_beating() <= num_hanging, what="the beats end")


def num_beating() -> int:
    return sum(thread.name == "lease-beat" for thread in threading.enumerate())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = Clock()
    monkeypatch.setattr(keeper_module, "boottime", clock)
    monkeypatch.setattr(lease_module, "boottime", clock)
    made = World(clock)
    yield made
    made.keeper.close()
    for event in made.backend.hanging.values():
        event.set()
    eventually(lambda: num_beating() == 0, what="all beats end")


def test_a_lease_is_renewed_as_long_as_it_is_held(world: World) -> None:
    holding = world.hold()
    world.pass_time(300)
    beats = world.stored().beat
    # One every 8 to 10 s, looked at every second.
    assert 300 / 11 <= beats <= 300 / 8
    holding.release()
    world.pass_time(100)
    assert world.stored().owner is None
    assert world.stored().beat == beats + 1
    assert not world.lost


def test_a_lease_is_lost_two_thirds_of_its_life_after_the_last_beat_that_arrived(world: World) -> None:
    world.hold()
    world.pass_time(25)
    (confirmed_s,) = {holding.confirmed_s for holding in world.keeper._holdings}
    world.backend.broken = True
    world.pass_time(60)
    ((_, lost_s, why),) = world.lost
    assert lost_s - confirmed_s == pytest.approx(40, abs=1)
    assert "40 s" in why


@pytest.mark.parametrize("outage_s", [1, 12, 26])
def test_an_outage_shorter_than_that_costs_nothing(world: World, outage_s: int) -> None:
    world.hold()
    for _ in range(3):
        world.pass_time(20)
        world.backend.broken = True
        world.pass_time(outage_s)
        world.backend.broken = False
    world.pass_time(60)
    assert not world.lost
    assert world.stored().owner is not None


def test_a_beat_that_failed_is_tried_again_before_the_next_is_due(world: World) -> None:
    world.hold()
    world.backend.broken = True
    world.pass_time(10)
    tried = world.backend.tries
    assert tried > 0
    world.backend.broken = False
    world.pass_time(3)
    assert world.stored().beat == 1


def test_a_lost_reply_is_no_loss(world: World) -> None:
    faulty = FaultyBackend(world.backend, {1: Fault.REPLY_LOST, 3: Fault.REPLY_LOST})
    keeper = Keeper(Store(faulty, retry=RetryPolicy(tries=1)), TIMES)
    lost: list[str] = []
    holding = Holding(keeper, world.acquire("step-1"), Callbacks(lost=lost.append, cancelled=lost.append))
    for _ in range(4):
        holding.beat()
    assert not lost
    assert holding.held.lease == world.stored()


def test_a_call_that_hangs_silences_no_other_lease(world: World) -> None:
    stuck, fine = world.hold("step-1"), world.hold("step-2")
    world.backend.hanging["step-1/lease.json"] = threading.Event()
    world.pass_time(60, num_hanging=5)
    assert [directory for directory, _, _ in world.lost] == ["step-1"]
    assert world.stored("step-2").beat >= 5
    world.backend.hanging["step-1/lease.json"].set()
    stuck.release()
    fine.release()
    # What was lost is left to whoever takes it over.
    assert world.stored("step-1").owner is not None
    assert world.stored("step-2").owner is None


def test_a_lease_that_was_taken_over_is_lost_at_the_next_beat(world: World) -> None:
    holding = world.hold()
    present = read_lease(world.store, "step-1")
    assert present is not None
    successor = world.acquire("step-1", expired=present[1])
    world.pass_time(11)
    ((_, _, why),) = world.lost
    assert "another owner" in why
    holding.release()
    assert world.stored() == successor.lease


def test_a_release_after_a_takeover_does_no_harm(world: World) -> None:
    holding = world.hold()
    present = read_lease(world.store, "step-1")
    assert present is not None
    successor = world.acquire("step-1", expired=present[1])
    holding.release()
    assert world.stored() == successor.lease
    with pytest.raises(Conflict):
        holding.renew()


def test_a_release_that_fails_is_said_and_spoils_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    holding = world.hold()
    world.backend.broken = True
    holding.release()
    assert "could not be released" in caplog.text
    world.pass_time(60)
    assert not world.lost


def test_a_request_to_stop_is_told_once(world: World) -> None:
    world.hold()
    request_cancel(world.store, "step-1", by="somebody: not needed")
    world.pass_time(11)
    assert world.cancelled == ["somebody: not needed"]
    world.pass_time(60)
    assert world.cancelled == ["somebody: not needed"]
    assert not world.lost


def test_a_lease_overwritten_by_hand_is_lost_in_time_and_not_a_crash(world: World) -> None:
    world.hold()
    world.store.write("step-1/lease.json", b"{}")
    world.pass_time(60)
    assert [directory for directory, _, _ in world.lost] == ["step-1"]


def test_the_thread_beats_without_being_asked() -> None:
    store = Store(Failing())
    keeper = Keeper(store, LeaseTimes(ttl_s=0.6))
    held = acquire(store, "step-1", seen=observe(store, "step-1"), times=keeper.times)
    assert isinstance(held, Held)
    beats: Callable[[], int] = lambda: read_lease(store, "step-1")[0].beat  # type: ignore[index]  # noqa: E731
    holding = keeper.hold(held, Callbacks(lost=lambda _: None, cancelled=lambda _: None))
    eventually(lambda: beats() >= 3, what="three beats")
    holding.release()
    keeper.close()
