"""A power failure at any instant of a launch: what is committed then is whole, and the next launch succeeds."""

from pathlib import Path

import pytest
from power_failure import check_every_instant, check_finished, check_next_launch, launch_on_disk
from simulated_disk import CRASHES, Crash, SimulatedDisk

from marin_pipe.execution import provenance


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedDisk:
    monkeypatch.setattr(provenance, "git_state", lambda _: (None, None))
    return launch_on_disk(tmp_path / "disk")


def test_what_is_committed_at_any_instant_is_whole(disk: SimulatedDisk, tmp_path: Path) -> None:
    assert check_every_instant(disk, tmp_path, stride=3) == {0, 1, 2}


def test_a_finished_launch_is_not_lost(disk: SimulatedDisk, tmp_path: Path) -> None:
    check_finished(disk, tmp_path)


@pytest.mark.parametrize("crash", CRASHES)
def test_the_next_launch_succeeds_with_what_is_left(disk: SimulatedDisk, tmp_path: Path, crash: Crash) -> None:
    """Leases, logs and indices are not synced: they may be gone, empty or old."""
    check_next_launch(disk, crash, tmp_path, instants=25)
