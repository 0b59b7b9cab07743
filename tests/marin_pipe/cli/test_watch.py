import threading
import time
from pathlib import Path

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store
from shell import Shell

from marin_pipe.execution.lease import Held, LeaseTimes, acquire, beat, release
from marin_pipe.execution.observe import NOTHING, observe, read_lease

BAD = node("bad", fail=True).named("bad")
TOP = node("top", (BAD,)).named("top")


def hold(lab: Lab, directory: str) -> Held:
    store = open_store(lab.root)
    got = acquire(store, directory, seen=observe(store, directory), times=LeaseTimes())
    assert isinstance(got, Held)
    return got


def test_status_of_an_experiment_tells_failures_and_what_they_block(lab: Lab, shell: Shell) -> None:
    good = node("good").named("good")
    lab.run([TOP, good])
    result = shell("status", steps={"top": TOP, "good": good})
    states = {line.split()[0]: line.split()[1] for line in result.lines[1:4]}
    assert states == {"bad": "FAILED", "top": "BLOCKED", "good": "SUCCEEDED"}
    assert "RuntimeError: bad was told to fail" in result.out
    assert f"marin-pipe logs bad --root {lab.root}" in result.out
    assert f"marin-pipe logs {BAD.directory} --root {lab.root}" in shell("status").out
    (attempt,) = [p.name for p in Path(lab.root, BAD.directory, "attempts").iterdir()]
    assert f"\nbad: attempt {attempt} failed on " in result.out
    assert "  Traceback (most recent call last):\n" in result.out
    assert 'in node\n      raise RuntimeError(f"{label} was told to fail")\n' in result.out
    told = {step["name"]: step for step in shell("status", "--json").json["steps"]}
    assert set(told) == {"bad", "good"}
    assert told["bad"]["ended"]["outcome"] == "failed"
    assert told["good"]["commit"] == 1


def test_status_shows_owner_and_nonce_of_what_runs(lab: Lab, shell: Shell) -> None:
    held = hold(lab, TOP.directory)
    line = shell("status").lines[1]
    assert "RUNNING" in line
    assert f"{held.lease.host}, pid {held.lease.pid}" in line
    (told,) = shell("status", "--json").json["steps"]
    assert told["owner"]["owner"] == held.lease.owner


def write_log(lab: Lab, directory: str, attempt: str, text: str, number: int = 1) -> None:
    path = Path(lab.root, directory, "attempts", attempt, "log", f"{number:06d}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_logs_shows_the_newest_attempt_or_the_one_asked_for(lab: Lab, shell: Shell) -> None:
    lab.run(BAD)
    (first,) = [p.name for p in Path(lab.root, BAD.directory, "attempts").iterdir()]
    write_log(lab, BAD.directory, first, '{"t":1.0,"text":"one "  ,"more":true}\n{"t":1.0,"text":"line\\u001b[0m"}\n')
    lab.run(node("bad").named("bad"))
    (second,) = [p.name for p in Path(lab.root, BAD.directory, "attempts").iterdir() if p.name != first]
    write_log(lab, BAD.directory, second, '{"t":1.0,"text":"second"}\n')
    assert shell("logs", "bad").lines == ["second"]
    for wanted in ("1", first):
        lines = shell("logs", "bad", "--attempt", wanted).lines
        assert lines[0] == "one line"
        assert lines[1].startswith(f"bad: attempt {first} failed on ")
        assert lines[2] == "Traceback (most recent call last):"
        assert lines[-1] == "RuntimeError: bad was told to fail"
    missing = shell("logs", "bad", "--attempt", "7")
    assert missing.code == 2
    assert f"its attempts are: {first}, {second}" in missing.err


def test_logs_of_an_adopted_output_are_those_of_the_attempt_that_made_it(lab: Lab, shell: Shell) -> None:
    one, two = node("a").named("one"), node("a").named("two")
    lab.run(one)
    lab.run(two)
    (attempt,) = [p.name for p in Path(lab.root, one.directory, "attempts").iterdir()]
    write_log(lab, one.directory, attempt, '{"t":1.0,"text":"made here"}\n')
    assert shell("logs", "two").lines == ["made here"]


def test_an_empty_log_is_said_to_be_empty(lab: Lab, shell: Shell) -> None:
    lab.run(node("a").named("a"))
    result = shell("logs", "a")
    assert (result.code, result.out) == (0, "")
    assert "printed nothing" in result.err
    result = shell("logs", "new", steps={"new": node("new").named("new")})
    assert result.code == 1
    assert "has no attempt whose log could be shown" in result.err


def test_the_log_of_a_failure_that_printed_nothing_is_its_traceback(lab: Lab, shell: Shell) -> None:
    lab.run(BAD)
    result = shell("logs", "bad")
    assert result.code == 0
    assert "in node" in result.out
    assert result.lines[-1] == "RuntimeError: bad was told to fail"


def test_following_a_log_ends_with_its_attempt(lab: Lab, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    step = node("a").named("a")
    held = hold(lab, step.directory)
    write_log(lab, step.directory, held.attempt, '{"t":1.0,"text":"first"}\n')
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            write_log(lab, step.directory, held.attempt, '{"t":1.0,"text":"second"}\n', number=2)
        elif len(pauses) == 2:
            release(open_store(lab.root), held)
        else:
            raise AssertionError("the attempt has ended")

    monkeypatch.setattr(time, "sleep", pause)
    from marin_pipe.cli import watch

    follow = watch.follow_log
    monkeypatch.setattr(watch, "follow_log", lambda *a, **k: follow(*a, **k, pause=pause))
    assert shell("logs", "a", "-f").lines == ["first", "second"]


def test_cancel_asks_the_owner_and_waits_for_it(lab: Lab, shell: Shell) -> None:
    step = node("a").named("a")
    held = hold(lab, step.directory)
    store = open_store(lab.root)
    asked = threading.Event()

    def owner() -> None:
        # As the keeper does: a beat finds the request.
        mine = held
        while mine.lease.cancel is None:
            mine = beat(store, mine)
        asked.set()
        release(store, mine)

    thread = threading.Thread(target=owner)
    thread.start()
    result = shell("cancel", "a")
    thread.join()
    assert asked.is_set()
    assert result.err == f"asked {held.lease.host}, pid {held.lease.pid} to stop; waiting up to 30 s\n"
    assert (result.code, result.lines) == (0, [f"a: {held.lease.host}, pid {held.lease.pid} stopped"])
    assert shell("cancel", "a").lines == ["a: nobody works on it"]


def test_cancel_of_a_step_that_nobody_began_writes_nothing(lab: Lab, shell: Shell) -> None:
    lab.run(BAD)
    before = lab.snapshot()
    result = shell("cancel", "a", steps={"a": node("a").named("a")})
    assert (result.code, result.lines) == (0, ["a: nobody works on it"])
    assert lab.snapshot() == before
    assert read_lease(open_store(lab.root), node("a").directory) is None
    assert observe(open_store(lab.root), node("a").directory) == NOTHING
