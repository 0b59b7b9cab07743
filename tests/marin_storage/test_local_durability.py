"""Power failures on a local disk: what was promised to be durable survives, and nothing is ever torn."""

import os
from pathlib import Path

import pytest
from marin_storage import Store, open_store
from simulated_disk import CRASHES, Crash, SimulatedDisk

DATA = b'{"nonce": "9f3c2a"}'


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedDisk:
    return SimulatedDisk(tmp_path, monkeypatch)


@pytest.fixture
def store(tmp_path: Path, disk: SimulatedDisk) -> Store:
    del disk  # installed first
    return open_store(str(tmp_path / "new/root"))


@pytest.mark.parametrize("crash", CRASHES)
def test_a_durable_create_survives(store: Store, disk: SimulatedDisk, crash: Crash) -> None:
    store.create("step/commit.json", DATA, durable=True)
    assert disk.after(crash)["new/root/step/commit.json"] == DATA


@pytest.mark.parametrize("crash", CRASHES)
def test_a_durable_create_survives_below_directories_that_were_made_without_syncing(
    store: Store, disk: SimulatedDisk, crash: Crash
) -> None:
    store.create("a/b/step/lease.json", b"epoch 1")
    store.write("a/b/step/attempts/1/output/data", b"x")
    store.create("a/b/step/commit.json", DATA, durable=True)
    assert disk.after(crash)["new/root/a/b/step/commit.json"] == DATA


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("durable", [True, False])
def test_a_create_is_never_torn_while_it_is_made_durable(
    store: Store, disk: SimulatedDisk, crash: Crash, durable: bool
) -> None:
    """A durable create is whole or absent at every instant; without durability a crash may leave it empty."""
    store.create("step/commit.json", DATA, durable=durable)
    allowed = {None, DATA} if durable else {None, DATA, b""}
    for num_events in range(len(disk.events) + 1):
        assert disk.after(crash, num_events).get("new/root/step/commit.json") in allowed


@pytest.mark.parametrize("crash", CRASHES)
def test_a_durable_replace_leaves_the_old_or_the_new(store: Store, disk: SimulatedDisk, crash: Crash) -> None:
    version = store.create("lease.json", b"old", durable=True)
    first = len(disk.events)
    store.replace("lease.json", b"new", version=version, durable=True)
    for num_events in range(first, len(disk.events)):
        assert disk.after(crash, num_events)["new/root/lease.json"] in (b"old", b"new")
    assert disk.after(crash)["new/root/lease.json"] == b"new"


@pytest.mark.parametrize("crash", CRASHES)
def test_a_tree_made_durable_survives_whole(store: Store, disk: SimulatedDisk, crash: Crash) -> None:
    expected = {f"step/attempts/1/output/{name}": name.encode() for name in ("a", "b/c", "b/d/e")}
    for key, data in expected.items():
        store.write(key, data)
    store.make_durable("step/attempts/1/output")
    survivors = disk.after(crash)
    assert {key: survivors.get(f"new/root/{key}") for key in expected} == expected


def test_what_need_not_be_durable_is_not_synced(store: Store, disk: SimulatedDisk) -> None:
    version = store.create("first", b"x")  # makes the control directories, once
    store.replace("first", b"y", version=version)
    num_syncs = disk.num_syncs()
    version = store.create("step/lease.json", b"epoch 1")
    store.replace("step/lease.json", b"epoch 2", version=version)
    store.write("step/progress.json", b"1")
    store.delete("step/progress.json")
    assert disk.num_syncs() == num_syncs


def check_durable_create(store: Store, disk: SimulatedDisk) -> None:
    store.create("lease", b"x")
    store.create("step/commit.json", DATA, durable=True)
    for crash in CRASHES:
        assert disk.after(crash).get("new/root/step/commit.json") == DATA


def test_the_check_passes_unsabotaged(store: Store, disk: SimulatedDisk) -> None:
    check_durable_create(store, disk)


@pytest.mark.parametrize("sabotaged", ["files", "directories", "all but the nearest directory"])
def test_without_a_sync_the_check_fails(
    store: Store, disk: SimulatedDisk, sabotaged: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The simulated disk notices each sync that is left out, so the tests above mean something."""
    fsync = os.fsync

    def sabotaged_fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        skipped = {
            "files": not os.path.isdir(path),
            "directories": os.path.isdir(path),
            "all but the nearest directory": os.path.isdir(path) and path != str(tmp_path / "new/root/step"),
        }
        if not skipped[sabotaged]:
            fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sabotaged_fsync)
    with pytest.raises(AssertionError):
        check_durable_create(store, disk)
