"""Retries, deadlines and writes whose reply was lost."""

import itertools
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from faults import Fault, FaultyBackend, Killed
from hypothesis import given
from hypothesis import strategies as st
from marin_storage import (
    AlreadyExists,
    Blob,
    Conflict,
    Entry,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    RetryPolicy,
    Store,
    Transient,
    Unavailable,
    UnknownOutcome,
)
from marin_storage.memory import MemoryBackend

_numbers = itertools.count()
TRANSIENT = (Fault.FAILED, Fault.REPLY_LOST, Fault.TOO_MANY_REQUESTS)
FINAL = {Fault.NO_SPACE: OutOfSpace, Fault.DENIED: PermissionDenied, Fault.KILLED_BEFORE: Killed}
FOREVER = range(1, 1000)


def new_backend() -> MemoryBackend:
    return MemoryBackend(f"test-store-{next(_numbers)}")


def no_wait() -> RetryPolicy:
    now = itertools.count()
    return RetryPolicy(clock=lambda: next(now) * 1e-3, sleep=lambda _: None, random=lambda: 0.5)


OPERATIONS = ("create", "replace", "write", "delete", "delete version", "delete_tree", "upload")


def operate(name: str, store: Store, version: str, tmp_path: Path) -> None:
    match name:
        case "create":
            store.create("fresh", b"new")
        case "replace":
            store.replace("key", b"new", version=version)
        case "write":
            store.write("key", b"new")
        case "delete":
            store.delete("key")
        case "delete version":
            store.delete("key", version=version)
        case "delete_tree":
            store.delete_tree("tree")
        case "upload":
            (tmp_path / "source").write_bytes(b"new")
            store.upload(tmp_path / "source", "key")


def run_operation(name: str, faults: dict[int, Fault], tmp_path: Path) -> dict[str, bytes]:
    """The contents of a store after the operation."""
    backend = new_backend()
    version = backend.create("key", b"old", durable=False)
    backend.write("tree/a", b"x")
    operate(name, Store(FaultyBackend(backend, faults), retry=no_wait()), version, tmp_path)
    return {entry.key: backend.read(entry.key).data for entry in backend.list_files("")}


@pytest.mark.parametrize("fault", TRANSIENT)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_passing_failure_changes_nothing_in_the_outcome(name: str, fault: Fault, tmp_path: Path) -> None:
    undisturbed = run_operation(name, {}, tmp_path)
    assert run_operation(name, {1: fault}, tmp_path) == undisturbed
    assert run_operation(name, {1: fault, 2: fault, 3: Fault.REPLY_LOST}, tmp_path) == undisturbed


@pytest.mark.parametrize("fault", FINAL)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_final_failure_is_raised_at_once(name: str, fault: Fault, tmp_path: Path) -> None:
    with pytest.raises(FINAL[fault]):
        run_operation(name, {1: fault}, tmp_path)


@pytest.mark.parametrize("name", OPERATIONS)
def test_refused_for_good_is_unavailable_and_not_unknown(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="8 tries failed") as caught:
        run_operation(name, dict.fromkeys(FOREVER, Fault.TOO_MANY_REQUESTS), tmp_path)
    assert not isinstance(caught.value, UnknownOutcome)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_write_that_never_got_a_reply_is_of_unknown_outcome(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownOutcome, match="may or may not have been applied"):
        run_operation(name, dict.fromkeys(FOREVER, Fault.FAILED), tmp_path)


class Unreadable(FaultyBackend):
    """Fails every read."""

    def read(self, key: str, *, version: str | None = None) -> Blob:
        del version
        raise Transient(f"injected: no reply to read {key}")


def test_a_lost_reply_that_cannot_be_read_back_is_of_unknown_outcome() -> None:
    backend = new_backend()
    store = Store(Unreadable(backend, {1: Fault.REPLY_LOST}), retry=no_wait())
    with pytest.raises(UnknownOutcome, match="could not be read back"):
        store.create("key", b"ours")
    assert backend.read("key").data == b"ours"


def test_a_refusal_that_cannot_be_read_back_is_of_unknown_outcome() -> None:
    backend = new_backend()
    backend.write("key", b"whose?")
    with pytest.raises(UnknownOutcome):
        Store(Unreadable(backend), retry=no_wait()).create("key", b"ours")


@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.REPLY_LOST])
def test_lost_replies_and_another_writer_give_one_winner(fault: Fault) -> None:
    backend = new_backend()

    def other_writes_before_the_second_try(_name: str, key: str) -> None:
        if faulty.mutations == 2:
            backend.create(key, b"theirs", durable=False)

    faulty = FaultyBackend(backend, {1: fault}, before=other_writes_before_the_second_try)
    store = Store(faulty, retry=no_wait())
    if fault is Fault.REPLY_LOST:
        store.create("key", b"ours")
        assert backend.read("key").data == b"ours"
    else:
        with pytest.raises(AlreadyExists):
            store.create("key", b"ours")
        assert backend.read("key").data == b"theirs"


@given(
    faults=st.dictionaries(st.integers(1, 5), st.sampled_from(TRANSIENT)),
    rival_at=st.integers(1, 7),
    rival_first=st.booleans(),
)
def test_who_is_told_that_he_created_it_did(faults: dict[int, Fault], rival_at: int, rival_first: bool) -> None:
    """Whatever fails and whenever a rival comes: success means that one's own bytes are stored, refusal that not."""
    backend = new_backend()
    rival_won: list[bool] = []

    def rival(_name: str, key: str) -> None:
        if faulty.mutations == rival_at or (rival_first and faulty.mutations == 1 and not rival_won):
            try:
                backend.create(key, b"theirs", durable=False)
                rival_won.append(True)
            except AlreadyExists:
                rival_won.append(False)

    faulty = FaultyBackend(backend, faults, before=rival)
    try:
        Store(faulty, retry=no_wait()).create("key", b"ours")
    except AlreadyExists:
        assert any(rival_won)
        assert backend.read("key").data == b"theirs"
    else:
        assert not any(rival_won)
        assert backend.read("key").data == b"ours"


@given(
    faults=st.dictionaries(st.integers(1, 30), st.sampled_from(TRANSIENT)),
    turns=st.lists(st.integers(0, 2), min_size=1, max_size=8),
)
def test_compare_and_swap_counts_each_success_once(faults: dict[int, Fault], turns: list[int]) -> None:
    backend = new_backend()
    backend.create("counter", b"0", durable=False)
    store = Store(FaultyBackend(backend, faults), retry=no_wait())
    succeeded = 0
    stale: dict[int, Blob] = {}
    for turn, client in enumerate(turns):
        # Each client works on what it saw at its previous turn, if there was one.
        blob = stale.pop(client, None) or store.read("counter")
        try:
            store.replace("counter", f"{int(blob.data.split()[0]) + 1} {turn}".encode(), version=blob.version)
            succeeded += 1
        except Conflict:
            pass
        stale[(client + 1) % 3] = store.read("counter")
    assert int(backend.read("counter").data.split()[0]) == succeeded


def test_a_lost_replace_followed_by_another_writer_is_a_conflict() -> None:
    backend = new_backend()
    version = backend.create("lease", b"epoch 1", durable=False)

    class Overtaken(FaultyBackend):
        def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
            ours = self.inner.replace(key, data, version=version, durable=durable)
            self.inner.replace(key, b"epoch 3", version=ours, durable=durable)
            raise Transient("injected: reply lost")

    with pytest.raises(Conflict):
        Store(Overtaken(backend), retry=no_wait()).replace("lease", b"epoch 2", version=version)
    assert backend.read("lease").data == b"epoch 3"


def test_a_lost_delete_of_what_is_there_again_is_a_conflict() -> None:
    backend = new_backend()
    version = backend.create("key", b"1", durable=False)

    def somebody_creates_it_again(_name: str, key: str) -> None:
        if faulty.mutations == 2:
            backend.create(key, b"2", durable=False)

    faulty = FaultyBackend(backend, {1: Fault.REPLY_LOST}, before=somebody_creates_it_again)
    with pytest.raises(Conflict):
        Store(faulty, retry=no_wait()).delete("key", version=version)
    assert backend.read("key").data == b"2"


def test_durable_bytes_that_were_there_already_are_made_durable() -> None:
    synced: list[str] = []

    class Recording(FaultyBackend):
        def make_durable(self, prefix: str) -> None:
            synced.append(prefix)

    backend = new_backend()
    backend.create("key", b"ours", durable=False)
    store = Store(Recording(backend), retry=no_wait())
    store.create("key", b"ours")
    assert synced == []
    store.create("key", b"ours", durable=True)
    assert synced == ["key"]


class Failing(FaultyBackend):
    """Fails every `stat` in a given way."""

    def __init__(self, error: Transient):
        super().__init__(new_backend())
        self.error = error
        self.calls = 0

    def stat(self, key: str) -> Entry:
        del key
        self.calls += 1
        raise self.error


def test_pauses_are_jittered_below_a_growing_limit() -> None:
    pauses_s: dict[float, list[float]] = {0.0: [], 0.999999: []}
    for number, record in pauses_s.items():
        policy = RetryPolicy(tries=10, total_s=1e9, sleep=record.append, random=iter([number] * 10).__next__)
        with pytest.raises(Unavailable):
            Store(Failing(Transient("503")), retry=policy).stat("key")
    assert pauses_s[0.999999] == pytest.approx([0.5, 1, 2, 4, 8, 16, 32, 32, 32], rel=1e-3)
    assert pauses_s[0.0] == [0.0] * 9


def test_the_store_may_ask_for_a_longer_pause(clock, retry: RetryPolicy) -> None:
    with pytest.raises(Unavailable):
        Store(Failing(Transient("429", applied=False, retry_after_s=20.0)), retry=retry).stat("key")
    assert len(clock.pauses_s) == 7
    assert min(clock.pauses_s) >= 20.0


def test_no_call_outlasts_its_deadline(clock) -> None:
    policy = RetryPolicy(tries=1000, total_s=60.0, clock=clock, sleep=clock.sleep, random=lambda: 1.0)
    failing = Failing(Transient("503 SlowDown"))
    with pytest.raises(Unavailable, match=r"no success within 60 s, the last with: 503 SlowDown") as caught:
        Store(failing, retry=policy).stat("some/key")
    assert "some/key" in str(caught.value)
    assert 0 < sum(clock.pauses_s) <= 60.0
    assert failing.calls == len(clock.pauses_s) + 1


def test_tries_that_take_long_count_against_the_deadline(clock) -> None:
    class Slow(Failing):
        def stat(self, key: str):
            clock.now_s += 50.0
            return super().stat(key)

    policy = RetryPolicy(tries=1000, total_s=300.0, clock=clock, sleep=clock.sleep, random=lambda: 0.0)
    slow = Slow(Transient("no answer within 50 s"))
    with pytest.raises(Unavailable):
        Store(slow, retry=policy).stat("key")
    assert slow.calls <= 6


def test_a_shorter_deadline_for_one_kind_of_call(clock) -> None:
    policy = RetryPolicy(tries=1000, clock=clock, sleep=clock.sleep, random=lambda: 1.0)
    failing = Failing(Transient("503"))
    with pytest.raises(Unavailable, match="no success within 10 s"):
        Store(failing, retry=policy).with_deadline(10.0).stat("key")
    assert 0 < sum(clock.pauses_s) <= 10.0


def test_retries_are_logged_at_most_every_30_s(clock, caplog: pytest.LogCaptureFixture) -> None:
    policy = RetryPolicy(tries=12, total_s=1e6, clock=clock, sleep=clock.sleep, random=lambda: 1.0)
    store = Store(Failing(Transient("503 SlowDown")), retry=policy)
    times: list[float] = []

    class Watch(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            times.append(clock.now_s)

    watch = Watch()
    logging.getLogger("marin_storage").addHandler(watch)
    try:
        for _ in range(3):
            with pytest.raises(Unavailable):
                store.stat("key")
    finally:
        logging.getLogger("marin_storage").removeHandler(watch)
    assert caplog.messages[0].startswith("retrying (2/12) in 0.5 s: 503 SlowDown [stat memory://")
    assert len(times) > 5
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 30.0


def test_an_undisturbed_call_says_and_waits_nothing(clock, retry, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(new_backend(), retry=retry)
    store.create("key", b"x")
    with pytest.raises(AlreadyExists):
        store.create("key", b"y")
    with pytest.raises(NotFound):
        store.read("absent")
    assert (clock.pauses_s, caplog.messages) == ([], [])


@pytest.mark.parametrize("field", ["tries", "total_s", "try_s", "base_s", "cap_s"])
def test_unbounded_policies_are_refused(field: str) -> None:
    settings: dict[str, Any] = {field: 0}
    with pytest.raises(ValueError, match=f"{field}=0"):
        RetryPolicy(**settings)


def test_map_keeps_as_many_requests_in_flight_as_the_store_bears() -> None:
    backend = FaultyBackend(new_backend())
    backend.parallelism = 8
    together = threading.Barrier(8)
    # Would wait for ever if fewer than eight ran at once.
    assert len(Store(backend).map(lambda _: together.wait(timeout=30), range(16))) == 16


def test_map_within_map_does_not_deadlock() -> None:
    backend = FaultyBackend(new_backend())
    backend.parallelism = 2
    store = Store(backend)
    assert store.map(lambda i: sum(store.map(lambda j: i * j, range(4))), range(4)) == [0, 6, 12, 18]


def test_map_starts_nothing_more_after_an_error() -> None:
    backend = FaultyBackend(new_backend())
    backend.parallelism = 2
    started: list[int] = []

    def fail(number: int) -> None:
        started.append(number)
        raise ArithmeticError(number)

    with pytest.raises(ArithmeticError, match="0"):
        Store(backend).map(fail, range(1000))
    assert len(started) < 1000
