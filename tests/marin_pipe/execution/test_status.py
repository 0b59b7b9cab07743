import os
import time
from pathlib import Path

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe.execution.graph import build_graph
from marin_pipe.execution.layout import attempt_directory, lease_key
from marin_pipe.execution.lease import Held, LeaseTimes, acquire, request_cancel
from marin_pipe.execution.observe import observe
from marin_pipe.execution.records import Ended, Progress, encode, parse
from marin_pipe.execution.status import StepStatus, graph_statuses, step_status


def status(lab: Lab, directory: str) -> StepStatus:
    return step_status(open_store(lab.root), directory)


def held(lab: Lab, directory: str) -> Held:
    store = open_store(lab.root)
    got = acquire(store, directory, seen=observe(store, directory), times=LeaseTimes())
    assert isinstance(got, Held)
    return got


def rewrite_lease(lab: Lab, directory: str, *, silent_s: float = 0.0, **changes: object) -> None:
    """Change what the lease says of its owner, and how long ago it was written."""
    path = Path(lab.root, lease_key(directory))
    from marin_pipe.execution.records import Lease

    lease = parse(Lease, path.read_bytes(), key="lease").model_copy(update=changes)
    path.write_bytes(encode(lease))
    os.utime(path, (time.time() - silent_s,) * 2)


def test_states_are_derived_from_commit_lease_and_the_newest_end(lab: Lab) -> None:
    step = node("a", fail=True)
    assert status(lab, step.directory).state == "ABSENT"
    lab.run(step)
    failed = status(lab, step.directory)
    assert failed.state == "FAILED"
    assert failed.ended is not None
    assert (failed.ended.error_type, failed.ended.message) == ("RuntimeError", "a was told to fail")
    assert failed.lease is None
    lab.run(node("a"))
    done = status(lab, step.directory)
    assert (done.state, done.commit, done.ended) == ("SUCCEEDED", 1, None)


@pytest.mark.parametrize("outcome", ["interrupted", "preempted", "lost"])
def test_how_the_newest_attempt_ended_is_the_state(lab: Lab, outcome: str) -> None:
    step = node("a", fail=True)
    lab.run(step)
    path = next(Path(lab.root, step.directory).glob("attempts/*/ended.json"))
    ended = parse(Ended, path.read_bytes(), key="ended").model_copy(update={"outcome": outcome})
    path.write_bytes(encode(ended))
    assert status(lab, step.directory).state == outcome.upper()


def test_a_running_step_has_owner_progress_and_the_age_of_its_beat(lab: Lab) -> None:
    step = node("a")
    mine = held(lab, step.directory)
    store = open_store(lab.root)
    progress = Progress(done=3, total=10, unit="files", updated=0.0)
    store.write(f"{attempt_directory(step.directory, mine.attempt)}/progress.json", encode(progress))
    now = status(lab, step.directory)
    assert now.state == "RUNNING"
    assert now.lease == mine.lease
    assert now.attempt == mine.attempt
    assert now.progress == progress
    assert now.beat_age_s is not None
    assert now.beat_age_s < 60
    request_cancel(store, step.directory, by="ada")
    assert "asked to stop by ada" in status(lab, step.directory).note


def test_an_owner_that_is_gone_or_silent_is_lost(lab: Lab) -> None:
    step = node("a")
    held(lab, step.directory)
    rewrite_lease(lab, step.directory, silent_s=83, host="elsewhere")
    silent = status(lab, step.directory)
    assert silent.state == "LOST"
    assert silent.note in ("LOST? last beat 83 s ago", "LOST? last beat 84 s ago")
    rewrite_lease(lab, step.directory, silent_s=30, host="elsewhere")
    assert status(lab, step.directory).state == "RUNNING"


def test_a_dead_process_of_this_host_is_lost_at_once(lab: Lab) -> None:
    step = node("a")
    mine = held(lab, step.directory)
    rewrite_lease(lab, step.directory, pid_start="1")
    gone = status(lab, step.directory)
    assert gone.state == "LOST"
    assert "its process is gone" in gone.note
    assert gone.lease is not None
    assert gone.lease.owner == mine.lease.owner


def test_a_finished_step_that_is_forced_again_stays_succeeded_and_says_so(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    held(lab, step.directory)
    again = status(lab, step.directory)
    assert again.state == "SUCCEEDED"
    assert "makes commit 2" in again.note


def test_what_waits_for_a_failure_is_blocked_by_it(lab: Lab) -> None:
    bad = node("bad", fail=True).named("bad")
    steps = [bad, node("b", (bad,)).named("b"), node("c", (node("b", (bad,)).named("b"),)).named("c")]
    lab.run([steps[-1], node("free").named("free")])
    graph = build_graph([steps[-1], node("free").named("free"), node("new").named("new")])
    found = graph_statuses(open_store(lab.root), graph).values()
    assert {one.name: (one.state, one.note) for one in found} == {
        "bad": ("FAILED", ""),
        "b": ("BLOCKED", "because of bad"),
        "c": ("BLOCKED", "because of b"),
        "free": ("SUCCEEDED", ""),
        "new": ("ABSENT", ""),
    }
