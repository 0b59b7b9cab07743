"""The lease by itself: who gets it, who keeps it, and what a former owner can still do to it."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule
from marin_storage import Conflict, Store, open_store

from marin_pipe.execution import lease as leases
from marin_pipe.execution.lease import (
    Held,
    LeaseTimes,
    Newer,
    Taken,
    Watch,
    acquire,
    beat,
    force_release,
    owner_is_dead,
    release,
    renew,
    request_cancel,
    still_held,
    this_process,
)
from marin_pipe.execution.observe import NOTHING, observe, read_lease
from marin_pipe.execution.records import Lease, Withdrawn, encode

_numbers = itertools.count()
DIRECTORY = "step-0123456789abcdef"
TIMES = LeaseTimes()


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://test-lease-{next(_numbers)}")


def take(store: Store, **arguments: Any) -> Held | Taken | Newer:
    return acquire(store, DIRECTORY, seen=observe(store, DIRECTORY), times=TIMES, **arguments)


def hold(store: Store, **arguments: Any) -> Held:
    held = take(store, **arguments)
    assert isinstance(held, Held)
    return held


def stored(store: Store) -> tuple[Lease, str]:
    present = read_lease(store, DIRECTORY)
    assert present is not None
    return present


def commit(store: Store, number: int) -> None:
    name = "commit.json" if number == 1 else f"commit.{number}.json"
    body = Withdrawn(number=number, owner="somebody", reason="a test")
    store.create(f"{DIRECTORY}/{name}", encode(body))


def take_over(store: Store) -> Held:
    return hold(store, expired=stored(store)[1])


def test_the_holder_gives_up_before_a_watcher_takes_over() -> None:
    times = LeaseTimes()
    assert (times.ttl_s, times.beat_s, times.give_up_s) == (60, 10, 40)


def test_the_first_gets_it_and_the_second_learns_who_has_it(store: Store) -> None:
    held = hold(store)
    assert (held.lease.epoch, held.lease.commit) == (1, 1)
    assert held.attempt == f"000001-{str(held.lease.owner)[:6]}"
    other = take(store)
    assert isinstance(other, Taken)
    assert (other.lease, other.version) == (held.lease, held.version)


def test_a_released_lease_goes_to_the_next_epoch(store: Store) -> None:
    first = hold(store)
    release(store, first)
    assert stored(store)[0].owner is None
    second = hold(store)
    assert (second.lease.epoch, second.lease.owner != first.lease.owner) == (2, True)


def test_the_number_of_the_commit_is_that_after_the_highest(store: Store) -> None:
    commit(store, 1)
    commit(store, 2)
    assert hold(store).lease.commit == 3


def test_a_commit_that_was_not_seen_is_reported_instead_of_a_lease(store: Store) -> None:
    """The owner before committed and released between our look and our try: doing the work again would be in vain."""
    release(store, hold(store))
    seen = observe(store, DIRECTORY)
    commit(store, 1)
    got = acquire(store, DIRECTORY, seen=seen, times=TIMES)
    assert isinstance(got, Newer)
    assert got.observation.highest == 1
    assert stored(store)[0].owner is None
    # The same, if nothing at all was there at our look.
    got = acquire(store, DIRECTORY, seen=NOTHING, times=TIMES)
    assert isinstance(got, Newer)


def test_a_former_owner_can_do_nothing_to_its_successor(store: Store) -> None:
    former = hold(store)
    successor = take_over(store)
    assert successor.lease.epoch == 2
    for attempt in (beat, release, renew):
        with pytest.raises(Conflict):
            attempt(store, former)
    assert not still_held(store, former)
    assert still_held(store, successor)
    assert stored(store) == (successor.lease, successor.version)


def test_belief_in_a_death_is_about_one_version_of_the_lease(store: Store) -> None:
    held = hold(store)
    expired = held.version
    held = beat(store, held)
    assert isinstance(take(store, expired=expired), Taken)
    assert still_held(store, held)


def test_renewing_is_a_new_epoch_of_the_same_number(store: Store) -> None:
    held = hold(store)
    renewed = renew(store, held)
    assert (renewed.lease.epoch, renewed.lease.commit) == (2, held.lease.commit)
    assert renewed.attempt != held.attempt
    with pytest.raises(Conflict):
        beat(store, held)


def test_no_two_bodies_are_equal(store: Store) -> None:
    """On stores whose versions are content hashes, a body that came back would let an outdated write pass."""
    bodies = []
    held = hold(store)
    for _ in range(3):
        held = beat(store, held)
        bodies.append(stored(store)[1])
        request_cancel(store, DIRECTORY, by="somebody")
        bodies.append(stored(store)[1])
        held = beat(store, held)
        bodies.append(stored(store)[1])
        release(store, held)
        bodies.append(stored(store)[1])
        held = hold(store)
        bodies.append(stored(store)[1])
        held = renew(store, held)
        bodies.append(stored(store)[1])
    assert len(set(bodies)) == len(bodies)


def test_requests_to_stop_never_cost_the_owner_its_lease(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another one comes whenever the owner has looked at the last."""
    held = hold(store)
    asked = request_cancel(store, DIRECTORY, by="first")
    assert asked is not None
    assert asked.owner == held.lease.owner
    pending = ["third", "second"]

    def read_and_be_asked_again(*arguments: Any) -> Any:
        present = read_lease(*arguments)
        if pending:
            request_cancel(store, DIRECTORY, by=pending.pop())
        return present

    with monkeypatch.context() as patch:
        patch.setattr(leases, "read_lease", _once_nested(read_and_be_asked_again))
        held = beat(store, held)
    assert held.lease.cancel == "third"
    assert still_held(store, held)
    release(store, held)
    assert stored(store)[0].cancel is None


def _once_nested(look: Callable[..., Any]) -> Callable[..., Any]:
    """`look`, but the calls it makes itself read plainly."""
    inside = False

    def looked(*arguments: Any) -> Any:
        nonlocal inside
        if inside:
            return read_lease(*arguments)
        inside = True
        try:
            return look(*arguments)
        finally:
            inside = False

    return looked


def test_nobody_to_stop(store: Store) -> None:
    assert request_cancel(store, DIRECTORY, by="somebody") is None
    release(store, hold(store))
    assert request_cancel(store, DIRECTORY, by="somebody") is None


def test_only_the_owner_that_was_seen_is_unlocked(store: Store) -> None:
    first = hold(store)
    assert first.lease.owner is not None
    second = take_over(store)
    with pytest.raises(Conflict, match=str(second.lease.owner)):
        force_release(store, DIRECTORY, owner=first.lease.owner)
    assert second.lease.owner is not None
    force_release(store, DIRECTORY, owner=second.lease.owner)
    assert stored(store)[0].owner is None


def test_a_dead_process_of_this_host_is_known_to_be_dead(store: Store) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = hold(store).lease
    start = leases.process_start(process.pid)
    assert start is not None
    theirs = mine.model_copy(update={"pid": process.pid, "pid_start": start})
    assert not owner_is_dead(mine)
    assert not owner_is_dead(theirs)
    # A process that has ended but was not waited for, and one whose number went to another.
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert owner_is_dead(theirs)
    process.communicate()
    assert owner_is_dead(theirs)
    assert owner_is_dead(mine.model_copy(update={"pid_start": "1"}))
    # Elsewhere nobody can tell.
    for elsewhere in ({"host": "other"}, {"boot_id": "other"}, {"pid_namespace": "other"}):
        assert not owner_is_dead(theirs.model_copy(update=elsewhere))


def test_a_dead_owner_of_this_host_is_replaced_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(this_process(), pid=10_000_000, pid_start="1")
    with monkeypatch.context() as patch:
        patch.setattr(leases, "this_process", lambda: gone)
        hold(store)
    assert hold(store).lease.epoch == 2


def test_a_watch_counts_unchanged_time_by_its_own_clock(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5000.0
    monkeypatch.setattr(leases, "boottime", lambda: now)
    held = hold(store)
    watch = Watch()
    assert not watch.expired(Taken(lease=held.lease, version=held.version))
    now += 59.9
    assert not watch.expired(Taken(lease=held.lease, version=held.version))
    held = beat(store, held)
    assert not watch.expired(Taken(lease=held.lease, version=held.version))
    now += 59.9
    assert not watch.expired(Taken(lease=held.lease, version=held.version))
    now += 0.1
    assert watch.expired(Taken(lease=held.lease, version=held.version))
    assert watch.dead_version == held.version


def test_a_holder_counts_from_before_its_write(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher may have seen the write long before the holder got the reply."""
    now = 100.0
    monkeypatch.setattr(leases, "boottime", lambda: now)
    slow_create, slow_replace = store.create, store.replace

    def late(write: Callable[..., str]) -> Callable[..., str]:
        def written(*arguments: Any, **keywords: Any) -> str:
            nonlocal now
            version = write(*arguments, **keywords)
            now += 25.0
            return version

        return written

    monkeypatch.setattr(store, "create", late(slow_create))
    monkeypatch.setattr(store, "replace", late(slow_replace))
    held = hold(store)
    assert held.confirmed_s == 100.0
    assert beat(store, held).confirmed_s == 125.0


@pytest.mark.parametrize("torn", [b"", b"\0" * 300])
def test_a_lease_that_a_power_failure_tore_is_free_and_its_epochs_go_on(store: Store, torn: bytes) -> None:
    """A lease is not synced: its name may survive without its bytes."""
    store.write(f"{DIRECTORY}/attempts/000007-9f3c2a/log/000001.jsonl", b"{}")
    store.write(f"{DIRECTORY}/lease.json", torn)
    held = hold(store)
    assert held.lease.epoch == 8
    assert still_held(store, beat(store, held))


def test_a_lease_that_a_power_failure_took_goes_on_with_its_epochs(store: Store) -> None:
    store.write(f"{DIRECTORY}/attempts/000007-9f3c2a/log/000001.jsonl", b"{}")
    assert hold(store).lease.epoch == 8


def test_eight_threads_and_one_lease(store: Store) -> None:
    for _ in range(20):
        results = race(lambda: take(store))
        (held,) = [result for result in results if isinstance(result, Held)]
        assert {r.lease.owner for r in results if isinstance(r, Taken)} <= {held.lease.owner}
        release(store, held)


def test_eight_threads_take_over_one_lease_on_disk(tmp_path: Path) -> None:
    disk = open_store(str(tmp_path / "root"))
    hold(disk)
    for _ in range(20):
        expired = stored(disk)[1]
        results = race(lambda expired=expired: take(disk, expired=expired))  # type: ignore[misc]
        assert [isinstance(result, Held) for result in results].count(True) == 1


def race(work: Callable[[], Any], *, count: int = 8) -> list[Any]:
    """What `count` threads get that begin at one moment."""
    barrier = threading.Barrier(count)
    results: list[Any] = []

    def run() -> None:
        barrier.wait()
        results.append(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == count
    return results


RACE = """
import json, os, sys, time
from marin_storage import open_store
from marin_pipe.execution.lease import Held, LeaseTimes, acquire
from marin_pipe.execution.observe import observe

store, rounds = open_store(sys.argv[1]), int(sys.argv[2])
children = []
begin = time.monotonic() + 0.2
for number in range(8):
    pid = os.fork()
    if pid == 0:
        for index in range(rounds):
            # All begin each round at one moment.
            while time.monotonic() < begin + 0.01 * index:
                pass
            directory = f"step-{index:016x}"
            got = acquire(store, directory, seen=observe(store, directory), times=LeaseTimes())
            if isinstance(got, Held):
                os.write(1, (json.dumps([index, number, got.lease.epoch]) + chr(10)).encode())
        # A dead owner's lease is free: nobody ends before all have looked.
        time.sleep(0.5)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""


def test_eight_processes_and_one_lease(tmp_path: Path) -> None:
    rounds = 20
    output = subprocess.run(
        [sys.executable, "-c", RACE, str(tmp_path / "root"), str(rounds)], capture_output=True, text=True, check=True
    ).stdout
    winners = [json.loads(line) for line in output.splitlines()]
    assert sorted(index for index, _, _ in winners) == list(range(rounds)), "a lease had two holders, or none"
    assert {epoch for _, _, epoch in winners} == {1}
    assert len({number for _, number, _ in winners}) > 1, "the processes did not race"


class LeaseMachine(RuleBasedStateMachine):
    """Several owners do to one lease what they can, also those that were taken over long ago."""

    owners = Bundle("owners")

    def __init__(self) -> None:
        super().__init__()
        self.store = open_store(f"memory://test-lease-{next(_numbers)}")
        self.current: str | None = None
        """The owner's nonce, by the model."""
        self.epoch = 0
        self.highest = 0
        self.seen_versions: set[str] = set()

    @rule(target=owners, disbelief=st.booleans())
    def acquire(self, disbelief: bool) -> list[Held]:
        present = read_lease(self.store, DIRECTORY)
        got = take(self.store, expired=present[1] if present is not None and disbelief else None)
        if self.current is not None and not disbelief:
            assert isinstance(got, Taken)
            assert got.lease.owner == self.current
            return []
        assert isinstance(got, Held)
        assert got.lease.commit == self.highest + 1
        self._now(got)
        return [got]

    @rule(owner=owners)
    def beat(self, owner: list[Held]) -> None:
        self._do(beat, owner)

    @rule(owner=owners)
    def renew(self, owner: list[Held]) -> None:
        self._do(renew, owner)

    @rule(owner=owners)
    def release(self, owner: list[Held]) -> None:
        if not owner:
            return
        if owner[0].lease.owner == self.current:
            release(self.store, owner.pop())
            self.current = None
        else:
            with pytest.raises(Conflict):
                release(self.store, owner[0])

    @rule()
    def ask_to_stop(self) -> None:
        asked = request_cancel(self.store, DIRECTORY, by="somebody")
        assert (asked.owner if asked is not None else None) == self.current

    @rule()
    @precondition(lambda self: self.current is not None)
    def commit(self) -> None:
        """By the owner, who holds the next number."""
        lease = stored(self.store)[0]
        if lease.commit > self.highest:
            commit(self.store, lease.commit)
            self.highest = lease.commit

    @invariant()
    def storage_agrees(self) -> None:
        present = read_lease(self.store, DIRECTORY)
        if present is None:
            assert self.epoch == 0
            return
        assert (present[0].owner, present[0].epoch) == (self.current, self.epoch)

    def _do(self, operation: Callable[[Store, Held], Held], owner: list[Held]) -> None:
        if not owner:
            return
        if owner[0].lease.owner == self.current:
            owner[0] = operation(self.store, owner[0])
            self._now(owner[0])
        else:
            with pytest.raises(Conflict):
                operation(self.store, owner[0])

    def _now(self, held: Held) -> None:
        lease = held.lease
        assert lease.epoch > self.epoch or (lease.epoch, lease.owner) == (self.epoch, self.current)
        assert held.version not in self.seen_versions, "a body came back"
        self.seen_versions.add(held.version)
        self.epoch, self.current = lease.epoch, lease.owner

    def teardown(self) -> None:
        self.store.delete_tree(DIRECTORY)


TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(max_examples=60, stateful_step_count=25)
