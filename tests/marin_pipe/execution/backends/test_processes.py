"""How worker processes end: asked to stop, killed, by themselves, or because their driver did. All are real ones."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from marin_pipe.execution.backends.base import Control
from marin_pipe.execution.backends.local import LocalBackend
from marin_pipe.execution.backends.pump import Pump

Run = Callable[..., Any]
PATIENCE_S = 60.0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Until `condition` holds. A test that waits in vain fails; how long it took does not matter."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids_in(marks: Path) -> list[int]:
    """The numbers a body wrote down: its own and its descendants'."""
    names = [name for name in ("started", "grandchild") if (marks / name).exists()]
    return [int(pid) for name in names for pid in (marks / name).read_text().split()]


@pytest.fixture
def marks(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "marks"
    folder.mkdir()
    yield folder
    # Not the worker: the backend uses it for the next test.
    for pid in pids_in(folder)[1:]:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


class Running:
    """A body in a thread of its own."""

    def __init__(self, run: Run, step: Any, marks: Path) -> None:
        self.control = Control()
        self.ran: Any = None
        self._thread = threading.Thread(target=self._execute, args=(run, step))
        self._thread.start()
        wait_for((marks / "started").exists, "the body to start")

    def _execute(self, run: Run, step: Any) -> None:
        self.ran = run(step, control=self.control)

    def end(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert self.ran is not None, "the body did not end"
        return self.ran


OUTCOMES = [
    ("cancelled", "interrupted", 130),
    ("interrupted", "interrupted", 130),
    ("preempted", "preempted", 75),
    ("lost", "lost", 75),
    ("timeout", "failed", 1),
]


class TestStop:
    @pytest.mark.parametrize(("reason", "outcome", "exit_code"), OUTCOMES)
    def test_a_body_that_looks_saves_its_state_and_ends(
        self, run: Run, bodies: Any, marks: Path, store: Any, reason: Any, outcome: str, exit_code: int
    ) -> None:
        running = Running(run, bodies.hang("polite", marks=str(marks)), marks)
        running.control.stop(reason, grace_s=60)
        ran = running.end()
        assert (ran.failed.outcome, ran.failed.exit_code) == (outcome, exit_code)
        assert store.read(ran.attempt.replace("attempts", "work") + "/state").data == b"saved"

    @pytest.mark.parametrize("how", ["stubborn", "lock", "frozen"])
    def test_a_body_that_does_not_end_is_killed_with_all_its_descendants(
        self, run: Run, bodies: Any, marks: Path, how: str
    ) -> None:
        running = Running(run, bodies.hang(how, marks=str(marks)), marks)
        pids = pids_in(marks)
        assert len(pids) == 3
        assert all(map(is_running, pids))
        running.control.stop("cancelled", grace_s=0.1)
        assert running.end().failed.outcome == "interrupted"
        wait_for(lambda: not any(map(is_running, pids)), "body, child and grandchild to die")
        assert isinstance(run(bodies.process_id()).value, int)

    def test_a_later_stop_may_shorten_the_grace(self, run: Run, bodies: Any, marks: Path) -> None:
        running = Running(run, bodies.hang("stubborn", marks=str(marks)), marks)
        running.control.stop("preempted", grace_s=1000)
        running.control.stop("cancelled", grace_s=0)
        assert running.end().failed.outcome == "preempted"

    def test_an_error_after_the_stop_keeps_its_traceback(self, run: Run, bodies: Any, marks: Path) -> None:
        running = Running(run, bodies.hang("raise", marks=str(marks)), marks)
        running.control.stop("preempted", grace_s=60)
        failed = running.end().failed
        assert failed.outcome == "preempted"
        assert "RuntimeError: stopping" in failed.traceback

    def test_a_body_that_never_looks_is_interrupted_at_once(self, run: Run, bodies: Any, marks: Path) -> None:
        running = Running(run, bodies.wait_for_stop_without_looking(marks=str(marks)), marks)
        # A body that went on would wait for ever; one that was killed would leave no word.
        running.control.stop("cancelled", grace_s=60)
        assert running.end().failed.outcome == "interrupted"
        assert (marks / "cleaned up").exists()

    def test_a_body_that_waits_for_a_child_is_interrupted_too(self, run: Run, bodies: Any, marks: Path) -> None:
        running = Running(run, bodies.wait_for_child(marks=str(marks)), marks)
        running.control.stop("interrupted", grace_s=60)
        assert running.end().failed.outcome == "interrupted"

    def test_a_stop_before_the_start_runs_nothing(self, run: Run, bodies: Any, marks: Path) -> None:
        control = Control()
        control.stop("interrupted", grace_s=0)
        assert run(bodies.hang("stubborn", marks=str(marks)), control=control).failed.outcome == "interrupted"
        assert not (marks / "started").exists()

    def test_a_stop_does_not_reach_the_next_body(self, run: Run, bodies: Any, marks: Path) -> None:
        running = Running(run, bodies.wait_for_stop_without_looking(marks=str(marks)), marks)
        running.control.stop("cancelled", grace_s=60)
        worker = int((marks / "started").read_text())
        assert running.end().failed.outcome == "interrupted"
        # Its word may still be on the way to the worker, and the interrupt may have left anything half done.
        used, asked_to_stop = run(bodies.nap(0.5)).value
        assert used != worker
        assert not asked_to_stop

    def test_a_timeout_is_retried_if_retry_says_so(self, run: Run, bodies: Any, marks: Path) -> None:
        step = bodies.hang("polite", marks=str(marks)).retry(times=1, on=TimeoutError)
        running = Running(run, step, marks)
        running.control.stop("timeout", grace_s=60)
        failed = running.end().failed
        assert (failed.error_type, failed.retryable) == ("TimeoutError", True)


class TestDeath:
    @pytest.mark.parametrize(
        ("number", "outcome", "exit_code"),
        [
            (signal.SIGKILL, "lost", 75),
            (signal.SIGTERM, "lost", 75),
            (signal.SIGHUP, "lost", 75),
            (signal.SIGSEGV, "failed", 1),
            (signal.SIGABRT, "failed", 1),
            (signal.SIGBUS, "failed", 1),
            (signal.SIGILL, "failed", 1),
            (signal.SIGFPE, "failed", 1),
        ],
    )
    def test_a_kill_is_a_loss_and_a_crash_a_failure(
        self, run: Run, bodies: Any, number: signal.Signals, outcome: str, exit_code: int
    ) -> None:
        failed = run(bodies.die_by(int(number))).failed
        assert (failed.outcome, failed.exit_code, failed.retryable) == (outcome, exit_code, True)
        assert number.name in failed.message
        assert "peak memory" in failed.message
        assert failed.usage.peak_memory_bytes > 1 << 20
        assert isinstance(run(bodies.process_id()).value, int)

    def test_a_crash_leaves_its_python_frames_in_the_log(self, run: Run, bodies: Any) -> None:
        log = "\n".join(run(bodies.die_by(int(signal.SIGSEGV))).log)
        assert "Segmentation fault" in log
        assert "in die_by" in log

    @pytest.mark.parametrize("code", [0, 3])
    def test_os_exit_is_a_failure_told_with_its_code(self, run: Run, bodies: Any, code: int) -> None:
        failed = run(bodies.exit_at_once(code)).failed
        assert (failed.outcome, failed.exit_code) == ("failed", 1)
        assert f"exit code {code}" in failed.message

    def test_a_kill_after_the_memory_controller_struck_is_probably_its_doing(
        self, run: Run, bodies: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counts = iter(range(100))
        monkeypatch.setattr("marin_pipe.execution.backends.processes.count_oom_kills", lambda: next(counts))
        with closing(LocalBackend(max_workers=1)) as backend:
            failed = run(bodies.die_by(int(signal.SIGKILL)), backend=backend).failed
        assert "probably out of memory" in failed.message

    def test_an_ordinary_kill_is_not_called_lack_of_memory(self, run: Run, bodies: Any) -> None:
        assert "out of memory" not in run(bodies.die_by(int(signal.SIGKILL))).failed.message

    def test_a_worker_that_cannot_start_is_no_riddle(
        self, run: Run, bodies: Any, capfd: pytest.CaptureFixture[str]
    ) -> None:
        failed = run(bodies.process_id().environment({"PYTHONHOME": "/nowhere"})).failed
        assert "before it could serve" in failed.message
        assert (failed.outcome, failed.exit_code, failed.retryable) == ("failed", 1, False)
        assert "Python" in capfd.readouterr().err


class TestClose:
    def test_close_ends_idle_and_busy_workers(self, run: Run, bodies: Any, marks: Path) -> None:
        with closing(LocalBackend(max_workers=2)) as backend:
            idle = run(bodies.process_id(), backend=backend).value
            running = Running(
                lambda step, control: run(step, control=control, backend=backend),
                bodies.hang("stubborn", marks=str(marks)),
                marks,
            )
            pids = [idle, *pids_in(marks)]
            assert all(map(is_running, pids))
        assert running.end().failed.outcome == "lost"
        wait_for(lambda: not any(map(is_running, pids)), "all workers to end")

    def test_close_twice(self, run: Run, bodies: Any) -> None:
        backend = LocalBackend(max_workers=1)
        worker = run(bodies.process_id(), backend=backend).value
        backend.close()
        backend.close()
        wait_for(lambda: not is_running(worker), "the worker to end")

    def test_threads_a_body_left_do_not_hold_up_the_end(self, run: Run, bodies: Any) -> None:
        started = time.monotonic()
        with closing(LocalBackend(max_workers=1)) as backend:
            run(bodies.leave_thread().environment({"X": "1"}), backend=backend)
        assert time.monotonic() - started < 15


@pytest.mark.parametrize("how", ["stubborn", "lock"])
def test_workers_and_grandchildren_die_with_a_killed_driver(bodies: Any, marks: Path, tmp_path: Path, how: str) -> None:
    """kill -9: nothing of the driver runs any more, and with "lock" nothing of the worker's Python either."""
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(Path(bodies.__file__).parent)!r})
        import backend_bodies
        from marin_pipe.execution.backends.base import Control, Task
        from marin_pipe.execution.backends.local import LocalBackend
        from marin_pipe.execution.resources import CPU

        class Silent:
            def write(self, data): pass

        step = backend_bodies.hang({how!r}, marks={str(marks)!r})
        task = Task(step=step, root={str(tmp_path / "root")!r}, directory=step.directory, attempt="000001-abcdef",
                    earlier_work=(), inputs={{}}, resources=CPU())
        LocalBackend(max_workers=1).execute(task, log=Silent(), control=Control())
        """
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        wait_for((marks / "started").exists, "the body to start")
        pids = pids_in(marks)
        assert len(pids) == 3
        assert all(map(is_running, pids))
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not any(map(is_running, pids)), "worker, child and grandchild to die")


class TestLeftovers:
    def test_processes_a_body_left_are_killed_and_do_not_write_to_the_next_log(
        self, run: Run, bodies: Any, marks: Path
    ) -> None:
        ran = run(bodies.leave_process(marks=str(marks)))
        child = ran.value
        assert not is_running(child)
        assert any(f"processes running, which were killed: {child} (" in line for line in ran.log)
        log = run(bodies.print_text("only this")).log
        assert log == ("only this",)

    def test_also_after_a_failure(self, run: Run, bodies: Any, marks: Path) -> None:
        run(bodies.leave_process_and_fail(marks=str(marks))).failed  # noqa: B018
        assert not is_running(int((marks / "child").read_text()))

    def test_a_body_without_children_keeps_its_worker(self, run: Run, bodies: Any) -> None:
        first = run(bodies.process_id(1)).value
        run(bodies.burn(0.0, in_child=True))
        assert run(bodies.process_id(2)).value == first


class TestFlood:
    def test_output_without_newlines_is_bounded_and_keeps_its_end(self, run: Run, bodies: Any, store: Any) -> None:
        ran = run(bodies.flood(96 << 20, 1 << 16))
        assert ran.value is None
        stored = sum(entry.size_bytes for entry in store.list_files(f"{ran.attempt}/log"))
        # How much of the beginning is kept depends on how fast storage is, but never less than a quarter of the cap.
        assert 30 << 20 < stored < 66 << 20
        assert ran.log[0].startswith("xxxx")
        assert "".join(ran.log[-2:]).endswith("THE END")
        dropped = [line for line in ran.log if "were dropped here" in line]
        assert len(dropped) == 1

    @pytest.mark.slow
    def test_a_gibibyte_without_newlines(self, run: Run, bodies: Any, store: Any) -> None:
        ran = run(bodies.flood(1 << 30, 1 << 16))
        assert sum(entry.size_bytes for entry in store.list_files(f"{ran.attempt}/log")) < 66 << 20
        assert "".join(ran.log[-2:]).endswith("THE END")


class TestPump:
    def test_a_process_that_never_stops_writing_cannot_hold_up_the_end(self) -> None:
        class Sink:
            size = 0

            def write(self, data: bytes) -> None:
                self.size += len(data)

        sink = Sink()
        pump = Pump()
        read, write = os.pipe()
        stream = pump.attach(read, sink)
        writer = subprocess.Popen(["yes"], stdout=write, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: sink.size, "output")
            stream.finish()
            os.close(write)
            size = sink.size
            # Its pipe is closed, so the writer dies of SIGPIPE.
            assert writer.wait(PATIENCE_S) == -signal.SIGPIPE
            assert sink.size == size
        finally:
            writer.kill()
            writer.wait()
            pump.close()
