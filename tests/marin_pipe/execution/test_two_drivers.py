"""Two drivers on one experiment at once, as real processes."""

from collections import Counter
from typing import Any

import pytest
from launching import Driver, Launching, eventually
from marin_storage import open_store
from outputs import check_once
from strict_gcs import StrictGcs

STEPS = 50


def start_together(launching: Launching, *arguments: list[Any]) -> list[Driver]:
    """A driver for each list of arguments; they begin at one moment, when all have imported everything."""
    go = launching.directory / "go"
    ready = [launching.directory / f"ready-{number}" for number in range(len(arguments))]
    drivers = [
        launching.start("many", "--count", STEPS, "--go", go, "--ready", path, *more)
        for path, more in zip(ready, arguments, strict=True)
    ]
    eventually(lambda: all(path.exists() for path in ready), what="all drivers are ready")
    go.touch()
    return drivers


@pytest.mark.parametrize("backends", [("local", "local"), ("local", "inline")], ids=" and ".join)
def test_each_step_runs_once_and_both_end_well(launching: Launching, backends: tuple[str, str]) -> None:
    drivers = start_together(launching, *(["--backend", backend] for backend in backends))
    reports = [driver.end() for driver in drivers]
    assert [report["exit_code"] for report in reports] == [0, 0], reports
    ran = Counter(int(line.split()[0]) for line in launching.side_lines())
    assert ran == Counter(range(STEPS)), "a step ran more or less than once"
    check_once(open_store(str(launching.root)), STEPS)
    built = [Counter(status for status, _ in report["steps"].values())["built"] for report in reports]
    assert sum(built) == STEPS
    assert min(built) > 0, "one of the two did nothing: they did not run at once"


@pytest.mark.slow
def test_each_step_runs_once_on_an_object_store(launching: Launching, monkeypatch: pytest.MonkeyPatch) -> None:
    with StrictGcs() as server:
        server.buckets["bucket"] = {}
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        launching.url = "gs://bucket/some/root"
        reports = [driver.end() for driver in start_together(launching, [], [])]
        assert [report["exit_code"] for report in reports] == [0, 0], reports
        check_once(open_store(launching.url), STEPS)
    ran = Counter(int(line.split()[0]) for line in launching.side_lines())
    assert ran == Counter(range(STEPS)), "a step ran more or less than once"


def test_one_is_killed_midway_and_the_survivor_ends_well(launching: Launching) -> None:
    victim, survivor = start_together(launching, ["--pause-s", 0.01], ["--pause-s", 0.01])
    launching.wait_for_line("", count=STEPS // 3)
    victim.kill()
    report = survivor.end()
    assert report["exit_code"] == 0, report["output"]
    # Not by waiting for the 60 s of the victim's leases.
    assert report["duration_s"] < 30
    check_once(open_store(str(launching.root)), STEPS)
    ran = Counter(int(line.split()[0]) for line in launching.side_lines())
    assert set(ran) == set(range(STEPS))
    # What the victim was at, in its two workers, is done again; nothing else is.
    assert sum(ran.values()) <= STEPS + 2
