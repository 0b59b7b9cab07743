from collections.abc import Callable
from dataclasses import replace

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import Store, open_store

from marin_pipe.execution.errors import Busy, ConfigurationError
from marin_pipe.execution.layout import attempt_directory, commit_key, lease_key
from marin_pipe.execution.lease import Held, LeaseTimes, acquire, beat, release
from marin_pipe.execution.observe import NOTHING, list_attempts, read_ended, read_lease
from marin_pipe.execution.owners import cancel, unlock
from marin_pipe.execution.records import encode

STEP = "a-0123456789abcdef"


@pytest.fixture
def store() -> Store:
    store = open_store("memory://owners")
    store.delete(lease_key(STEP))
    return store


def hold(store: Store, **changes: object) -> Held:
    """A lease, with what it says of its owner changed."""
    got = acquire(store, STEP, seen=NOTHING, times=LeaseTimes(ttl_s=6.0))
    assert isinstance(got, Held)
    lease = got.lease.model_copy(update=changes)
    return replace(got, lease=lease, version=store.replace(lease_key(STEP), encode(lease), version=got.version))


def owner(store: Store) -> str | None:
    present = read_lease(store, STEP)
    assert present is not None
    return present[0].owner


def doing(*actions: Callable[[], object]) -> Callable[[float], None]:
    """A pause in which the first action happens at the first pause, and so on."""
    waiting = list(actions)

    def pause(_: float) -> None:
        if waiting:
            waiting.pop(0)()

    return pause


def test_cancel_asks_through_the_lease_and_sees_the_owner_stop(store: Store) -> None:
    held = hold(store)
    asked: list[str | None] = []

    def owner_stops() -> None:
        present = read_lease(store, STEP)
        assert present is not None
        asked.append(present[0].cancel)
        release(store, held)

    assert cancel(store, STEP, by="ada", pause=doing(lambda: None, owner_stops)).outcome == "stopped"
    assert asked == ["ada"]


def test_cancel_of_what_finishes_meanwhile_says_so(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    store = open_store(lab.root)
    commit = store.read(commit_key(step.directory, 1)).data
    lab.delete(step)
    held = acquire(store, step.directory, seen=NOTHING, times=LeaseTimes())
    assert isinstance(held, Held)

    def finishes() -> None:
        store.create(commit_key(step.directory, 1), commit)
        release(store, held)

    assert cancel(store, step.directory, by="ada", pause=doing(finishes)).outcome == "finished"


@pytest.mark.parametrize(("outcome", "told"), [("failed", "failed"), ("interrupted", "stopped"), ("lost", "stopped")])
def test_cancel_says_how_the_attempt_ended(lab: Lab, outcome: str, told: str) -> None:
    step = node("a", fail=True)
    lab.run(step)
    store = open_store(lab.root)
    (attempt,) = list_attempts(store, step.directory)
    ended = read_ended(store, step.directory, attempt)
    assert ended is not None
    held = acquire(store, step.directory, seen=NOTHING, times=LeaseTimes())
    assert isinstance(held, Held)

    def ends() -> None:
        key = f"{attempt_directory(step.directory, held.attempt)}/ended.json"
        store.create(key, encode(ended.model_copy(update={"outcome": outcome})))
        release(store, held)

    assert cancel(store, step.directory, by="ada", pause=doing(ends)).outcome == told


def test_cancel_of_a_dead_owner_says_that_it_is_gone(store: Store) -> None:
    asked = []
    held = hold(store, pid_start="1")
    cancelled = cancel(store, STEP, by="ada", on_asked=lambda lease: asked.append(lease.owner))
    assert cancelled.outcome == "gone"
    assert asked == [held.lease.owner]


def test_an_owner_that_does_not_answer_was_asked(store: Store) -> None:
    held = hold(store)
    cancelled = cancel(store, STEP, by="ada", wait_s=1.0, pause=doing())
    assert cancelled.outcome == "asked"
    assert cancelled.lease is not None
    assert cancelled.lease.owner == held.lease.owner


def test_cancel_of_what_nobody_runs_writes_nothing(store: Store) -> None:
    assert cancel(store, STEP, by="ada").outcome == "idle"
    release(store, hold(store))
    before = store.read(lease_key(STEP))
    assert cancel(store, STEP, by="ada").outcome == "idle"
    assert store.read(lease_key(STEP)) == before


def test_unlock_frees_a_dead_owner_of_this_host_at_once(store: Store) -> None:
    held = hold(store, pid_start="1")
    assert held.lease.owner is not None

    def no_waiting(_: float) -> None:
        raise AssertionError("its process is known to be gone")

    unlock(store, STEP, owner=held.lease.owner, pause=no_waiting)
    assert owner(store) is None


def test_unlock_frees_a_silent_owner_elsewhere(store: Store) -> None:
    held = hold(store, host="elsewhere")
    assert held.lease.owner is not None
    paused: list[float] = []
    unlock(store, STEP, owner=held.lease.owner, pause=paused.append)
    assert owner(store) is None
    assert sum(paused) >= 3 * LeaseTimes(ttl_s=6.0).beat_s


def test_unlock_refuses_a_live_owner_of_this_host(store: Store) -> None:
    held = hold(store)
    assert held.lease.owner is not None
    with pytest.raises(Busy, match="its owner is alive: process"):
        unlock(store, STEP, owner=held.lease.owner)
    assert owner(store) == held.lease.owner


def test_unlock_refuses_an_owner_that_beats(store: Store) -> None:
    held = hold(store, host="elsewhere")
    assert held.lease.owner is not None
    with pytest.raises(Busy, match="renewed a moment ago") as caught:
        unlock(store, STEP, owner=held.lease.owner, pause=doing(lambda: None, lambda: beat(store, held)))
    assert caught.value.exit_code == 4
    assert owner(store) == held.lease.owner


def test_unlock_needs_the_nonce_of_the_present_owner(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="nobody holds its lease"):
        unlock(store, STEP, owner="0" * 16)
    held = hold(store, pid_start="1")
    with pytest.raises(ConfigurationError, match=f"belongs to {held.lease.owner}"):
        unlock(store, STEP, owner="0" * 16)
    assert owner(store) == held.lease.owner
