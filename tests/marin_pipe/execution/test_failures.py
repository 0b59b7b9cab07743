"""Failures as a user sees them: what they stop, what they say, what is tried again, and what runs too long."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from lab_steps import node


def fan(**fail: bool) -> dict[str, Any]:
    a = node("a", fail=fail.get("a", False)).named("a")
    b, c = (node(name, (a,), fail=fail.get(name, False)).named(name) for name in "bc")
    return {"d": node("d", (b,)).named("d"), "c": c, "e": node("e").named("e")}


def test_keep_going_runs_what_does_not_depend_on_the_failure(lab: Lab) -> None:
    ends = lab.run(fan(b=True))
    assert {name: end.status for name, end in ends.items()} == {
        "a": "built",
        "b": "failed",
        "c": "built",
        "d": "blocked",
        "e": "built",
    }
    assert ends["d"].why == "because of b: RuntimeError: b was told to fail"
    assert lab.exit_code == 1


def test_fail_fast_starts_nothing_after_the_failure(lab: Lab) -> None:
    ends = lab.run(fan(a=True), keep_going=False)
    assert ends["a"].status == "failed"
    assert {end.status for name, end in ends.items() if name != "a"} <= {"blocked", "not run"}
    assert lab.ran() == ["a"]
    assert lab.exit_code == 1


def test_a_cause_is_told_to_everything_that_it_blocks(lab: Lab) -> None:
    ends = lab.run(fan(a=True))
    for name in "bcd":
        assert ends[name].status == "blocked"
        assert ends[name].why == "because of a: RuntimeError: a was told to fail"


def test_a_failure_tells_what_a_user_needs(lab: Lab) -> None:
    module = lab.module(
        """
        from marin_pipe import step

        def deep():
            raise ValueError("bad data in line 7")

        @step
        def parse() -> int:
            print("reading")
            print("almost done")
            deep()
        """
    )
    ends = lab.run(module.parse().named("exp/parse"))
    failure = ends["exp/parse"].failure
    assert failure is not None
    assert (failure.error_type, failure.message, failure.attempts) == ("ValueError", "bad data in line 7", 1)
    assert list(failure.log_tail) == ["reading", "almost done"]
    frames = [line for line in failure.traceback.splitlines() if line.startswith("  File")]
    assert "exp.py" in frames[0]
    assert "in parse" in frames[0]
    assert "in deep" in frames[-1]
    ended = json.loads((Path(lab.root) / failure.log_directory).parent.joinpath("ended.json").read_text())
    assert (ended["outcome"], ended["message"], ended["host"]) == ("failed", "bad data in line 7", os.uname().nodename)
    assert ended["peak_memory_bytes"] > 1e6
    assert ended["ended"] >= ended["started"] > 1.6e9


RETRIES = """
from pathlib import Path
from lab_steps import ran
from marin_pipe import Runtime, step

ERRORS = {"OSError": OSError, "ValueError": ValueError, "ImportError": ImportError, "Timeout": TimeoutError}

@step
def flaky(fails: int, error: str = "OSError", *, where: Runtime[str]) -> int:
    ran("flaky")
    file = Path(where)
    tries = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(tries))
    if tries <= fails:
        raise ERRORS[error](tries)
    return tries
"""


def flaky(lab: Lab, fails: int, error: str = "OSError") -> Any:
    return lab.module(RETRIES).flaky(fails, error, where=str(lab.folder / "tries"))


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, _: low)


def test_a_step_is_tried_again_as_often_as_it_says(lab: Lab) -> None:
    step = flaky(lab, 2).retry(times=2)
    assert lab.statuses(step) == {"flaky": "built"}
    assert step.load(root=lab.root) == 3
    commit = lab.commit(step)
    assert commit is not None
    assert commit.record.attempt_count == 3
    assert len(lab.ran()) == 3


def test_after_the_last_try_it_has_failed(lab: Lab) -> None:
    ends = lab.run(flaky(lab, 9).retry(times=2))
    assert ends["flaky"].failure is not None
    assert ends["flaky"].failure.attempts == 3
    assert len(lab.ran()) == 3


def test_without_retry_there_is_one_try(lab: Lab) -> None:
    lab.run(flaky(lab, 1))
    assert len(lab.ran()) == 1


@pytest.mark.parametrize(
    ("error", "on", "tries"),
    [
        ("OSError", (OSError,), 2),
        ("Timeout", (OSError,), 2),
        ("ValueError", (OSError,), 1),
        ("ValueError", (OSError, ValueError), 2),
        ("ImportError", (Exception,), 1),
        ("OSError", OSError, 2),
    ],
)
def test_only_the_named_errors_are_retried_and_never_import_errors(lab: Lab, error: str, on: Any, tries: int) -> None:
    lab.run(flaky(lab, 1, error).retry(times=3, on=on))
    assert len(lab.ran()) == tries


def test_wrong_results_and_corrupt_inputs_are_never_retried(lab: Lab) -> None:
    module = lab.module("from marin_pipe import step\n\n@step\ndef wrong() -> int:\n    return 'three'\n")
    ends = lab.run(module.wrong().retry(times=3))
    assert ends["wrong"].failure is not None
    assert ends["wrong"].failure.attempts == 1
    a = node("a").named("a")
    lab.run(a)
    (lab.output(a) / "text.txt").unlink()
    ends = lab.run(node("b", (a,)).named("b").retry(times=3))
    assert ends["b"].failure is not None
    assert ends["b"].failure.attempts == 1


SLOW = """
import os, time
from lab_steps import ran
from marin_pipe import Runtime, StepContext, step

@step
def sleeper(seconds: float, *, ctx: StepContext) -> str:
    ran("sleeper")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ctx.should_stop():
            (ctx.work / "saved").write_text("yes")
            return "stopped"
        time.sleep(0.01)
    return "slept"

@step
def dies(how: str) -> None:
    ran("dies")
    os._exit(3) if how == "exit" else os.kill(os.getpid(), 9)

@step
def fine() -> int:
    return 1
"""


# Of a process's time, some is its start.
@pytest.mark.parametrize(("backend", "limit_s"), [("inline", 0.2), ("local", 2)])
def test_a_step_that_takes_too_long_is_asked_to_stop_and_has_failed(lab: Lab, backend: str, limit_s: float) -> None:
    step = lab.module(SLOW).sleeper(30).timeout(seconds=limit_s)
    begun = time.monotonic()
    ends = lab.run(step, backend=backend)
    assert time.monotonic() - begun < 10
    failure = ends["sleeper"].failure
    assert failure is not None
    assert (ends["sleeper"].status, failure.error_type) == ("failed", "TimeoutError")
    assert ".timeout()" in failure.message
    assert lab.exit_code == 1
    assert lab.commit(step) is None
    assert lab.actions(step) == {"sleeper": "resume"}


def test_a_timeout_can_be_retried(lab: Lab) -> None:
    step = lab.module(SLOW).sleeper(30).timeout(seconds=0.1).retry(times=1, on=TimeoutError)
    ends = lab.run(step)
    assert ends["sleeper"].failure is not None
    assert ends["sleeper"].failure.attempts == 2
    assert lab.ran() == ["sleeper", "sleeper"]


@pytest.mark.parametrize(
    ("how", "said", "status", "exit_code"), [("exit", "exit code 3", "failed", 1), ("kill", "SIGKILL", "lost", 75)]
)
def test_a_process_that_ends_itself_has_failed_and_one_that_is_killed_is_lost(
    lab: Lab, how: str, said: str, status: str, exit_code: int
) -> None:
    module = lab.module(SLOW)
    ends = lab.run([module.dies(how), module.fine()], backend="local")
    failure = ends["dies"].failure
    assert failure is not None
    assert (ends["dies"].status, failure.error_type) == (status, "WorkerDied")
    assert said in failure.message
    assert ends["fine"].status == "built"
    assert lab.exit_code == exit_code


def test_a_process_that_dies_is_retried_as_often_as_the_step_says(lab: Lab) -> None:
    lab.run(lab.module(SLOW).dies("exit").retry(times=2), backend="local")
    assert lab.ran() == ["dies"] * 3
