"""Owners of a lease that die elsewhere, stop for longer than it lasts, are asked to stop, or have a wrong clock."""

import signal
import time

import pytest
from launching import Launching, eventually
from marin_storage import open_store
from outputs import check_once

from marin_pipe.execution.lease import request_cancel

TTL_S = 3.0


def step_directory(launching: Launching, name: str) -> str:
    (directory,) = launching.root.glob(f"{name}-*")
    return directory.name


def test_an_owner_that_died_elsewhere_is_replaced_within_its_ttl_and_15_s(launching: Launching) -> None:
    """From its own lease's point of view the killed driver ran on another host, so nobody can look for its process."""
    go = launching.directory / "go"
    victim = launching.start("slow", "--go", go, "--ttl-s", TTL_S, "--host", "elsewhere")
    launching.wait_for_line("began")
    victim.kill()
    assert launching.lease("slow")["host"] == "elsewhere"
    go.touch()
    report = launching.start("slow", "--go", go, "--ttl-s", TTL_S).end()
    assert (report["exit_code"], report["steps"]["slow"][0]) == (0, "built"), report["output"]
    assert TTL_S <= report["duration_s"] < TTL_S + 15
    assert launching.lease("slow")["epoch"] == 2
    check_once(open_store(str(launching.root)), 1)


def test_a_live_owner_elsewhere_is_waited_for_and_served(launching: Launching) -> None:
    """For longer than a lease lasts: it is the beats that keep the other away."""
    go = launching.directory / "go"
    owner = launching.start("slow", "--go", go, "--ttl-s", TTL_S, "--host", "elsewhere")
    launching.wait_for_line("began")
    waiting = launching.start("slow", "--go", go, "--ttl-s", TTL_S)
    beat = launching.lease("slow")["beat"]
    # Longer than the lease lasts, told by the owner's own beats.
    eventually(lambda: launching.lease("slow")["beat"] >= beat + 8, what="the owner beats")
    assert waiting.process.poll() is None
    go.touch()
    assert owner.end()["steps"]["slow"][0] == "built"
    report = waiting.end()
    assert (report["exit_code"], report["steps"]["slow"][0]) == (0, "cached")
    assert len([line for line in launching.side_lines() if line.startswith("began")]) == 1


@pytest.mark.parametrize("wakes", ["while its successor works", "after its successor's commit"])
def test_an_owner_that_was_stopped_past_its_ttl_does_no_harm(launching: Launching, wakes: str) -> None:
    go, first_go = launching.directory / "go", launching.directory / "first-go"
    zombie = launching.start("slow", "--go", first_go, "--ttl-s", TTL_S)
    began = launching.wait_for_line("began").split()[1]
    zombie.send(signal.SIGSTOP)
    successor = launching.start("slow", "--go", go, "--ttl-s", TTL_S)
    launching.wait_for_line("began", count=2)
    if wakes == "while its successor works":
        zombie.send(signal.SIGCONT)
        # Its body is killed before it could end.
        eventually(lambda: any("000001" in name for name in launching.ended("slow")), what="the zombie's attempt ends")
        go.touch()
    else:
        # The zombie's body comes to its end, too, before the zombie wakes up.
        first_go.touch()
        launching.wait_for_line("ended")
        go.touch()
        eventually(lambda: list(launching.root.glob("slow-*/commit.json")), what="the successor commits")
        zombie.send(signal.SIGCONT)
    first_go.touch()
    report, other = successor.end(), zombie.end()
    assert (report["exit_code"], report["steps"]["slow"][0]) == (0, "built"), report["output"]
    # Superseded: it serves what its successor made.
    assert (other["exit_code"], other["steps"]["slow"][0]) in [(0, "cached"), (75, "lost")], other["output"]
    ((_, commits),) = check_once(open_store(str(launching.root)), 1).items()
    assert commits[1]["attempt"].startswith("000002")
    if wakes == "while its successor works":
        assert f"ended {began}" not in launching.side_lines()
        assert [e["outcome"] for e in launching.ended("slow").values()] == ["lost"]


def test_a_request_to_stop_reaches_the_owner_through_its_lease(launching: Launching) -> None:
    driver = launching.start("long", "--ttl-s", TTL_S)
    launching.wait_for_line("ready")
    asked_at = time.monotonic()
    request_cancel(open_store(str(launching.root)), step_directory(launching, "long"), by="somebody: not needed")
    report = driver.end()
    # The next beat finds it, a sixth of the lease later.
    assert time.monotonic() - asked_at < TTL_S + 5
    assert (report["exit_code"], report["steps"]["long"][0]) == (130, "interrupted"), report["output"]
    assert [ended["outcome"] for ended in launching.ended("long").values()] == ["interrupted"]
    lease = launching.lease("long")
    assert (lease["owner"], lease["cancel"]) == (None, None)


HOUR_S = 3600
NOBODY: list[object] = []


@pytest.mark.parametrize(
    ("owner_off", "other_off"),
    [(NOBODY, ["--clock-off-s", HOUR_S]), (NOBODY, ["--clock-off-s", -HOUR_S]), (["--clock-off-s", -HOUR_S], NOBODY)],
    ids=["the other is ahead", "the other is behind", "the owner is behind"],
)
def test_a_clock_that_is_an_hour_off_takes_no_lease(
    launching: Launching, owner_off: list[object], other_off: list[object]
) -> None:
    go, events = launching.directory / "go", launching.directory / "events"
    owner = launching.start("slow", "--go", go, "--ttl-s", TTL_S, "--host", "elsewhere", *owner_off)
    launching.wait_for_line("began")
    line = ["--go", go, "--ttl-s", TTL_S, "--events", events, *other_off]
    other = launching.start("slow", *line)
    eventually(lambda: events.exists() and "waiting slow" in events.read_text(), what="the other meets the lease")
    beat = launching.lease("slow")["beat"]
    eventually(lambda: launching.lease("slow")["beat"] >= beat + 2, what="the owner beats")
    go.touch()
    assert owner.end()["steps"]["slow"][0] == "built"
    report = other.end()
    assert (report["exit_code"], report["steps"]["slow"][0]) == (0, "cached"), report["output"]
    ((_, commits),) = check_once(open_store(str(launching.root)), 1).items()
    assert commits[1]["attempt"].startswith("000001")
