"""kill -9 of real drivers and workers, anywhere; the next launch needs no help and no waiting."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults import Fault
from launching import DRIVERS, Driver, Launching
from marin_storage import open_store
from outputs import check_once, check_whole

POINTS = 5
"""At which the body of `dying` may die."""


def check_sweep(base: Path, backend: str, fault: Fault, *, first: int = 1, stride: int = 1) -> None:
    """Kill a launch of three steps at its mutations one after another; see what the launch after it makes of that."""
    line = [sys.executable, DRIVERS, "sweep", base, "--backend", backend, "--fault", fault]
    output = subprocess.run(
        [*map(str, line), "--first", str(first), "--stride", str(stride)], capture_output=True, text=True, check=True
    ).stdout
    told = [json.loads(text) for text in output.splitlines() if text.startswith("{")]
    kills, seconds = told[::2], told[1::2]
    assert [kill["first"] for kill in kills] == [-signal.SIGKILL] * (len(kills) - 1) + [0]
    assert len(kills) * stride > 15, "a launch makes more mutations than that"
    for kill, second in zip(kills, seconds, strict=True):
        assert second["exit_code"] == 0, kill
        # The owner died on this host: nobody waits for the 60 s of its lease.
        assert second["duration_s"] < 15, kill
        check_once(open_store(kill["root"]), 3)
        bodies = Path(kill["side"]).read_text().splitlines()
        # The one that was killed may have run a body in vain; nothing that was committed runs again.
        assert 3 <= len(bodies) <= 5, kill
        assert len(set(bodies)) == len(bodies), "an attempt ran twice"


def test_a_driver_killed_after_any_mutation(tmp_path: Path) -> None:
    check_sweep(tmp_path, "inline", Fault.KILLED_AFTER)


def test_a_driver_with_workers_killed_before_some_mutations(tmp_path: Path) -> None:
    check_sweep(tmp_path, "local", Fault.KILLED_BEFORE, first=3, stride=6)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER])
@pytest.mark.parametrize("backend", ["inline", "local"])
def test_a_driver_killed_at_any_mutation(tmp_path: Path, backend: str, fault: Fault) -> None:
    check_sweep(tmp_path, backend, fault)


def test_workers_killed_in_their_bodies_are_told_as_lost_and_the_next_launch_succeeds(launching: Launching) -> None:
    report = launching.start("dying", "--count", POINTS).end()
    assert report["exit_code"] == 75, report["output"]
    assert len(report["steps"]) == POINTS
    for status, message in report["steps"].values():
        assert (status, "SIGKILL" in message) == ("lost", True)
    assert [ended["outcome"] for ended in launching.ended("dying-*").values()] == ["lost"] * POINTS
    assert not check_whole(open_store(str(launching.root)))
    again = launching.start("dying", "--count", POINTS).end()
    assert again["exit_code"] == 0, again["output"]
    check_once(open_store(str(launching.root)), POINTS)


def test_workers_killed_in_their_bodies_are_tried_again_if_the_step_says_so(launching: Launching) -> None:
    report = launching.start("dying", "--count", POINTS, "--retries", 1).end()
    assert report["exit_code"] == 0, report["output"]
    assert {status for status, _ in report["steps"].values()} == {"built"}
    check_once(open_store(str(launching.root)), POINTS)


def test_a_driver_killed_while_its_worker_runs_takes_the_worker_along(launching: Launching) -> None:
    driver = launching.start("long", "--manner", "stubborn")
    attempt = launching.wait_for_line("ready").split()[1]
    driver.kill()
    report = launching.start("long").end()
    assert (report["exit_code"], report["steps"]["long"][0]) == (0, "built")
    # Far below the 60 s of the lease.
    assert report["duration_s"] < 15
    ((_, commits),) = check_once(open_store(str(launching.root)), 1).items()
    assert commits[1]["record"]["result"] == attempt, "it went on from the checkpoint of the one that was killed"
    assert launching.lease("long")["epoch"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_drivers_killed_again_and_again_come_to_an_end(launching: Launching, seed: int) -> None:
    """Three at once on one experiment; each is killed at a moment of its own and started again."""
    rng = random.Random(seed)
    steps = 40
    kills = 0

    def start() -> tuple[Driver, float]:
        driver = launching.start("many", "--count", steps, "--pause-s", 0.1)
        return driver, time.monotonic() + rng.uniform(0.6, 1.8)

    drivers = [start() for _ in range(3)]
    while drivers:
        time.sleep(0.01)
        for number, (driver, doomed_at) in enumerate(drivers):
            if driver.process.poll() is not None:
                report = driver.end()
                assert report["exit_code"] == 0, report["output"]
                drivers.pop(number)
                break
            if time.monotonic() > doomed_at and kills < 12:
                kills += 1
                driver.kill()
                check_whole(open_store(launching.url))
                drivers[number] = start()
    assert kills > 3
    check_once(open_store(launching.url), steps)
