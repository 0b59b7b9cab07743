"""Ctrl-C and SIGTERM, sent to real drivers whose steps take long, and the launch after them."""

import signal
import threading
import time
from pathlib import Path

import pytest
from lab import Lab
from launching import Launching
from marin_storage import open_store
from outputs import check_once, check_whole

from marin_pipe.execution.run import INTERRUPT_GRACE_S


def check_resumes(launching: Launching, attempt: str) -> None:
    """The next launch hands the checkpoint of the one that was stopped to the step, and commits what comes of it."""
    assert not check_whole(open_store(str(launching.root)))
    report = launching.start("long").end()
    assert (report["exit_code"], report["steps"]["long"][0]) == (0, "built"), report["output"]
    ((_, commits),) = check_once(open_store(str(launching.root)), 1).items()
    assert commits[1]["record"]["result"] == attempt


@pytest.mark.parametrize(
    ("backend", "manner"), [("local", "polite"), ("local", "deaf"), ("local", "stubborn"), ("inline", "deaf")]
)
def test_ctrl_c_ends_within_5_s_and_the_next_launch_resumes(launching: Launching, backend: str, manner: str) -> None:
    driver = launching.start("long", "--manner", manner, "--backend", backend)
    attempt = launching.wait_for_line("ready").split()[1]
    began = time.monotonic()
    driver.send(signal.SIGINT)
    report = driver.end()
    assert time.monotonic() - began < 5
    assert (report["exit_code"], report["steps"]["long"][0]) == (130, "interrupted"), report["output"]
    assert [ended["outcome"] for ended in launching.ended("long").values()] == ["interrupted"]
    assert launching.lease("long")["owner"] is None
    check_resumes(launching, attempt)


def test_a_second_ctrl_c_kills_at_once(launching: Launching) -> None:
    events = launching.directory / "events"
    # It hears the first one and goes on for a minute.
    driver = launching.start("long", "--manner", "deafened", "--events", events)
    launching.wait_for_line("ready")
    driver.send(signal.SIGINT)
    launching.wait_for_line("told")
    began = time.monotonic()
    driver.send(signal.SIGINT)
    report = driver.end()
    assert time.monotonic() - began < INTERRUPT_GRACE_S - 0.5
    assert (report["exit_code"], report["steps"]["long"][0]) == (130, "interrupted"), report["output"]
    said = [line for line in events.read_text().splitlines() if line.startswith("stopping")]
    assert len(said) == 2
    assert "again kills them" in said[0]
    assert "killed" in said[1]


def test_a_launch_under_nohup_outlives_its_terminal(launching: Launching) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        driver = launching.start("long", "--manner", "polite")
    finally:
        signal.signal(signal.SIGHUP, before)
    launching.wait_for_line("ready")
    driver.send(signal.SIGHUP)
    driver.send(signal.SIGINT)
    # Had the first one counted, the launch would be preempted.
    assert driver.end()["exit_code"] == 130


@pytest.mark.parametrize(
    ("backend", "number"), [("local", signal.SIGTERM), ("inline", signal.SIGTERM), ("local", signal.SIGHUP)]
)
def test_a_preempted_driver_says_so_and_the_next_launch_resumes(
    launching: Launching, backend: str, number: signal.Signals
) -> None:
    driver = launching.start("long", "--backend", backend)
    attempt = launching.wait_for_line("ready").split()[1]
    began = time.monotonic()
    driver.send(number)
    report = driver.end()
    # The step saves its state and returns when it is asked, long before the grace is over.
    assert time.monotonic() - began < 15
    assert (report["exit_code"], report["steps"]["long"][0]) == (75, "preempted"), report["output"]
    (ended,) = launching.ended("long").values()
    assert ended["outcome"] == "preempted"
    assert launching.lease("long")["owner"] is None
    check_resumes(launching, attempt)


def test_ctrl_c_while_waiting_for_another_driver_ends_at_once(launching: Launching) -> None:
    owner = launching.start("long", "--manner", "polite")
    launching.wait_for_line("ready")
    events = launching.directory / "events"
    waiting = launching.start("long", "--events", events)
    while "waiting" not in (events.read_text() if events.exists() else ""):
        assert waiting.process.poll() is None
        time.sleep(0.01)
    began = time.monotonic()
    waiting.send(signal.SIGINT)
    report = waiting.end()
    assert time.monotonic() - began < 5
    assert (report["exit_code"], report["steps"]["long"][0]) == (130, "not run"), report["output"]
    assert owner.process.poll() is None
    assert launching.lease("long")["epoch"] == 1


def test_a_signal_that_another_thread_receives_stops_the_launch(lab: Lab) -> None:
    exp = lab.module(
        """
        import time
        from marin_pipe import StepContext, step

        @step
        def wait(*, ctx: StepContext) -> int:
            (ctx.work / "state").write_text("half")
            time.sleep(600)
            return 1
        """
    )
    target = exp.wait()

    def interrupt_this_thread() -> None:
        while not list(Path(lab.root).glob("wait-*/work/*/state")):
            time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=interrupt_this_thread, daemon=True).start()
    assert lab.statuses(target, backend="local") == {"wait": "interrupted"}
    assert lab.exit_code == 130
