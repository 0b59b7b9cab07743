"""Each safeguard of the storage protocol is needed: without it, a check that passes with it fails."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import marin_storage.local
import pytest
from marin_storage import AlreadyExists, Store
from marin_storage.local import LocalBackend
from marin_storage.memory import MemoryBackend
from power_failure import check_every_instant, check_finished, check_next_launch, launch_on_disk
from protocol_model import CALM, DEADLY, Dangers, check, forget, play, play_lost_reply
from simulated_disk import Crash

import marin_pipe
from marin_pipe import StepContext, step
from marin_pipe.execution import attempt, decide, observe, provenance
from marin_pipe.execution import lease as leases
from marin_pipe.execution.commit import Commits
from marin_pipe.execution.selection import Selection

Sabotage = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[Path], None]

_text = "first"


@step
def source(*, ctx: StepContext) -> None:
    """Not the same bytes each time."""
    (ctx.output / "text.txt").write_text(_text)


@step
def consumer(text: Any) -> str:
    """Depends on the bytes of its input alone."""
    return f"{text} {_text}"


# --- checks --------------------------------------------------------------------------------------------------------


def check_deadly_schedules(_: Path) -> None:
    _check_schedules(range(150), DEADLY)


def check_calm_schedules(_: Path) -> None:
    """Nothing goes wrong, so nothing is done twice; and not because equal work is found and adopted."""
    for seed in range(150):
        outcome = play(seed, replace(CALM, adopting=False))
        check(outcome)
        assert len(outcome.started) == 1, "undisturbed drivers did the work twice"
        forget(outcome.backend)


def check_lost_replies(_: Path) -> None:
    """A driver that is alone loses nothing and waits for nobody."""
    for n in range(1, 10):
        outcome = play_lost_reply(n)
        check(outcome)
        assert (len(outcome.started), outcome.built) == (1, 1)
        forget(outcome.backend)


def check_racing_creates(path: Path) -> None:
    backend = LocalBackend(str(path / "racing"))
    for number in range(20):
        barrier = threading.Barrier(2)
        winners: list[int] = []

        def create(player: int, key: str = f"step/commit-{number}", start: threading.Barrier = barrier) -> None:
            start.wait()
            with suppress(AlreadyExists):
                backend.create(key, f"{player}".encode(), durable=False)
                winners.append(player)  # noqa: B023  the threads end before the next round

        threads = [threading.Thread(target=create, args=(player,)) for player in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1, "two creates of one object succeeded"
        assert backend.read(f"step/commit-{number}").data == f"{winners[0]}".encode()


def check_changed_input_is_noticed(path: Path) -> None:
    """An input that was rebuilt with other bytes makes its consumer run again."""
    global _text
    steps = {"consumer": consumer(source())}
    root = path / "changed"
    _text = "first"
    assert marin_pipe.run(steps, root=root, backend="inline").ok
    _text = "second"
    report = marin_pipe.run(steps, root=root, backend="inline", selection=Selection(force=("source",)))
    assert report.count("built") == 2, "a stale output was served"


def check_flipped_byte_is_noticed(path: Path) -> None:
    root = path / "flipped"
    assert marin_pipe.run({"source": source()}, root=root, backend="inline").ok
    (file,) = root.glob("source-*/attempts/*/output/text.txt")
    data = file.read_bytes()
    file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    report = marin_pipe.run({"consumer": consumer(source())}, root=root, backend="inline", verify="digests")
    assert report.exit_code == 5, "a flipped byte was not noticed"


def check_power_failures(path: Path) -> None:
    disk = launch_on_disk(path / "disk")
    check_every_instant(disk, path, stride=7)
    check_finished(disk, path)


def check_launch_after_power_failure(path: Path) -> None:
    disk = launch_on_disk(path / "disk")
    check_next_launch(disk, Crash(keeps_names=True, keeps_data=False), path, instants=15)


def _check_schedules(seeds: range, dangers: Dangers) -> None:
    for seed in seeds:
        outcome = play(seed, dangers)
        check(outcome)
        forget(outcome.backend)


# --- sabotage ------------------------------------------------------------------------------------------------------


def always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def no_link(patch: pytest.MonkeyPatch) -> None:
    """A look and a rename, which both of two writers get through."""
    meeting = threading.Barrier(2)

    def look_and_rename(source: str, target: str) -> None:
        if os.path.exists(target):
            raise FileExistsError(target)
        with suppress(threading.BrokenBarrierError):
            meeting.wait(timeout=1)
        os.rename(source, target)

    patch.setattr(os, "link", look_and_rename)


def no_create_if_absent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryBackend, "create", lambda self, key, data, **_: MemoryBackend._put(self, key, data))


def no_compare_and_swap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryBackend, "_require_version", always(None))


def no_nonce(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "new_nonce", lambda: "0" * 16)


def no_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "_read_back", always(None))


def no_epoch(patch: pytest.MonkeyPatch) -> None:
    make = leases._new_lease
    patch.setattr(leases, "_new_lease", lambda **facts: make(**{**facts, "epoch": 1}))


def no_number_in_the_lease(patch: pytest.MonkeyPatch) -> None:
    """The number is chosen when the work is done, as the next one that is free then."""
    publish = Commits._publish

    def renumbered(self: Commits, job: Any, made: Any, count: int) -> Any:
        number = observe.observe(self.store, job.directory).highest + 1
        return publish(self, job, made.model_copy(update={"number": number}), count)

    patch.setattr(Commits, "_publish", renumbered)


def commits_before_lease(patch: pytest.MonkeyPatch) -> None:
    """Who takes a lease looks for commits first, and at the lease then."""
    looks: dict[int, Any] = {}

    def look_and_read(store: Store, directory: str) -> Any:
        looks[threading.get_ident()] = observe.observe(store, directory)
        return observe.read_lease(store, directory)

    patch.setattr(leases, "read_lease", look_and_read)
    patch.setattr(leases, "observe", lambda *_: looks[threading.get_ident()])


def no_output_digest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "output_digest", always("0" * 64))


def no_file_digests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "digest", always("sha256:" + "0" * 64))


def no_data_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(marin_storage.local, "sync_file", always(None))


def no_directory_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(marin_storage.local, "sync_directory", always(None))


def no_care_for_torn_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(observe, "is_torn", always(False))


def no_last_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempt, "still_held", always(True))


@dataclass(frozen=True)
class Safeguard:
    """What is removed, and the check that needs it."""

    sabotage: Sabotage
    check: Check


SAFEGUARDS = [
    Safeguard(no_link, check_racing_creates),
    Safeguard(no_create_if_absent, check_deadly_schedules),
    Safeguard(no_compare_and_swap, check_deadly_schedules),
    Safeguard(no_nonce, check_deadly_schedules),
    Safeguard(no_epoch, check_deadly_schedules),
    Safeguard(no_number_in_the_lease, check_deadly_schedules),
    Safeguard(no_read_back, check_lost_replies),
    Safeguard(commits_before_lease, check_calm_schedules),
    Safeguard(no_output_digest, check_changed_input_is_noticed),
    Safeguard(no_file_digests, check_flipped_byte_is_noticed),
    Safeguard(no_data_sync, check_power_failures),
    Safeguard(no_directory_sync, check_power_failures),
    Safeguard(no_care_for_torn_leases, check_launch_after_power_failure),
]
CHECKS = list(dict.fromkeys(safeguard.check for safeguard in SAFEGUARDS))


@pytest.fixture(autouse=True)
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git_state", lambda _: (None, None))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_check_passes(check: Check, tmp_path: Path) -> None:
    check(tmp_path)


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda safeguard: safeguard.sabotage.__name__)
def test_without_the_safeguard_the_check_fails(
    safeguard: Safeguard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safeguard.sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        safeguard.check(tmp_path)


def test_the_last_look_at_the_lease_is_no_safeguard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It only saves a write that could not succeed: safety rests on the create of the commit alone."""
    no_last_look(monkeypatch)
    check_deadly_schedules(tmp_path)
