"""A launch on a simulated disk, and what is left of it after a power failure."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from marin_storage import open_store
from outputs import check_once, check_whole
from simulated_disk import CRASHES, Crash, SimulatedDisk

import marin_pipe
from marin_pipe import StepContext, step
from marin_pipe.execution import lease, provenance

DATA = {"data.bin": b"\1\2\3" * 1000, "more/deep/data.bin": b"\4\5\6" * 1000}


@step
def files(*, ctx: StepContext) -> int:
    """Writes through plain system calls, which the simulated disk sees."""
    print("writing")
    for name, data in DATA.items():
        path = f"{ctx.output}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, data[:1000])
        os.write(descriptor, data[1000:])
        os.close(descriptor)
    return len(DATA)


@step
def count(number: int) -> int:
    return number


STEPS = {"count": count(files())}


def launch_on_disk(base: Path) -> SimulatedDisk:
    """What a launch below `<base>/root` did to the disk, as a process that is gone."""
    base.mkdir()
    gone = replace(lease.this_process(), pid=10_000_000, pid_start="1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "this_process", lambda: gone)
        patch.setattr(provenance, "git_state", lambda _: (None, None))
        disk = SimulatedDisk(base, patch)
        assert marin_pipe.run(STEPS, root=base / "root", backend="inline").ok
    return disk


def restore(disk: SimulatedDisk, crash: Crash, num_events: int, root: Path) -> None:
    """The disk as it is after the crash, below `root`."""
    for name, data in disk.after(crash, num_events).items():
        if name.startswith("root/"):
            path = root / name.removeprefix("root/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    root.mkdir(exist_ok=True)


def check_every_instant(disk: SimulatedDisk, tmp_path: Path, *, stride: int) -> set[int]:
    """Commits are whole after a crash at every `stride`-th event; how many there were."""
    counts = set()
    for number, crash in enumerate(CRASHES):
        for num_events in range(number % stride, len(disk.events) + 1, stride):
            root = tmp_path / f"{number}-{num_events}"
            restore(disk, crash, num_events, root)
            counts.add(len(check_whole(open_store(str(root)))))
    return counts


def check_finished(disk: SimulatedDisk, tmp_path: Path) -> None:
    """No crash after the end takes anything that was committed."""
    for number, crash in enumerate(CRASHES):
        root = tmp_path / f"finished-{number}"
        restore(disk, crash, len(disk.events), root)
        commits = check_once(open_store(str(root)), len(STEPS) + 1)
        assert {file["path"] for commit in commits.values() for file in commit[1]["manifest"]} == set(DATA)


def check_next_launch(disk: SimulatedDisk, crash: Crash, tmp_path: Path, *, instants: int) -> None:
    """The launch after a crash at any of `instants` instants serves what is whole and makes the rest."""
    for index in range(instants + 1):
        num_events = len(disk.events) * index // instants
        root = tmp_path / f"next-{num_events}"
        restore(disk, crash, num_events, root)
        before = check_whole(open_store(str(root)))
        report = marin_pipe.run(STEPS, root=root, backend="inline")
        assert report.ok, (num_events, report)
        assert report.duration_s < 5, num_events
        assert {end.directory for end in report.steps if end.status == "cached"} == set(before), num_events
        check_once(open_store(str(root)), len(STEPS) + 1)
