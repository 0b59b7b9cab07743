"""Bodies that write where they must not, leave processes behind, fork, raise oddly, or change their process."""

import importlib
import io
import logging
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

import numpy as np
import pytest
from marin_storage import Store

from marin_pipe.execution.backends.base import Control
from marin_pipe.execution.backends.inline import InlineBackend
from marin_pipe.execution.backends.local import LocalBackend

Run = Callable[..., Any]
PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def hostile(bodies: Any) -> Any:  # noqa: ARG001  makes the folder importable
    return importlib.import_module("hostile_bodies")


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture(params=["local", "inline"])
def either(request: pytest.FixtureRequest, run: Run) -> Iterator[Run]:
    """Run on the backend of worker processes, and in this process."""
    if request.param == "local":
        yield run
    else:
        with closing(InlineBackend()) as backend:
            yield lambda step, **options: run(step, backend=backend, **options)


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Running:
    """A body in a thread of its own, which has begun."""

    def __init__(self, run: Run, step: Any, marks: Path) -> None:
        self.control = Control()
        self.ran: Any = None
        self._thread = threading.Thread(target=self._execute, args=(run, step))
        self._thread.start()
        wait_for((marks / "started").exists, "the body to start")
        self.pid = int((marks / "started").read_text())

    def _execute(self, run: Run, step: Any) -> None:
        self.ran = run(step, control=self.control)

    def end(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert self.ran is not None, "the body did not end"
        return self.ran


class TestInputs:
    @pytest.mark.parametrize("verify", ["sizes", "digests"])
    @pytest.mark.parametrize("damage", ["bytes", "size", "replaced", "removed", "extra", "times set back"])
    def test_an_input_changed_after_it_was_read_is_not_read_again(
        self, either: Run, hostile: Any, store: Store, damage: str, verify: str
    ) -> None:
        upstream = hostile.write()
        inputs = {upstream: either(upstream)}
        assert either(hostile.read(upstream, 1), inputs=inputs, verify=verify).value == "alpha"
        file = Path(store.url, inputs[upstream].attempt, "output/a.txt")
        before = file.stat()
        file.chmod(0o600)
        if damage in ("bytes", "times set back"):
            file.write_text("ALPHA")
        elif damage == "size":
            file.write_text("alpha and more")
        elif damage == "replaced":
            file.with_name("new").write_text("ALPHA")
            file.with_name("new").rename(file)
        elif damage == "removed":
            file.unlink()
        else:
            (file.parent / "sub/extra.txt").write_text("new")
        if damage == "times set back":
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        failed = either(hostile.read(upstream, 2), inputs=inputs, verify=verify).failed
        assert (failed.error_type, failed.exit_code, failed.retryable) == ("CorruptOutput", 5, False)
        assert "'sub/extra.txt'" in failed.message if damage == "extra" else "'a.txt'" in failed.message
        assert "run --force write" in failed.message

    def test_touched_and_equal_is_fine(self, run: Run, hostile: Any, store: Store) -> None:
        upstream = hostile.write()
        inputs = {upstream: run(upstream)}
        assert run(hostile.read(upstream, 1), inputs=inputs).value == "alpha"
        file = Path(store.url, inputs[upstream].attempt, "output/a.txt")
        file.with_name("restored").write_text("alpha")
        file.with_name("restored").rename(file)
        assert run(hostile.read(upstream, 2), inputs=inputs).value == "alpha"

    @pytest.mark.parametrize(
        ("how", "words"),
        [
            ("other bytes", "'a.txt' was written"),
            ("equal bytes", "'a.txt' was written"),
            ("replaced", "'a.txt' was written"),
            ("another file", "'sub/new.txt' was added"),
            ("removed", "'a.txt' was removed"),
            ("times set back", "'a.txt'"),
        ],
    )
    def test_a_body_that_writes_into_its_input_fails(self, either: Run, hostile: Any, how: str, words: str) -> None:
        upstream = hostile.write()
        failed = either(hostile.write_into_input(upstream, how), inputs={upstream: either(upstream)}).failed
        assert (failed.outcome, failed.exit_code, failed.retryable) == ("failed", 5, False)
        assert words in failed.message
        assert "write_into_input" in failed.message
        assert "ctx.output" in failed.message

    def test_links_and_modes_are_no_content(self, run: Run, hostile: Any) -> None:
        upstream = hostile.write()
        inputs = {upstream: run(upstream)}
        assert run(hostile.write_into_input(upstream, "mode and link"), inputs=inputs).value == "done"

    def test_five_thousand_inputs(self, run: Run, hostile: Any) -> None:
        steps = [hostile.write(str(number)) for number in range(5000)]
        one = run(steps[0])
        # All are told to lie where the first lies: what is tested is their number.
        step = hostile.count(steps)
        ran = run(step, inputs=dict.fromkeys(steps, one))
        assert ran.value == 5000

    def test_a_large_array_as_argument(self, run: Run, hostile: Any) -> None:
        array = np.ones(100_000_000 // 4, np.float32)
        assert run(hostile.sum_of(array)).value == array.size


class TestProcessesLeftBehind:
    @pytest.mark.parametrize("how", ["own session", "twice forked", "forked without exec"])
    def test_all_die_before_the_output_is_digested(
        self, either: Run, hostile: Any, marks: Path, store: Store, how: str
    ) -> None:
        ran = either(hostile.leave(how, marks=str(marks)))
        assert ran.value == "done"
        assert not is_running(int((marks / "child").read_text()))
        (entry,) = ran.result.manifest
        assert Path(store.url, ran.attempt, "output/late.txt").stat().st_size == entry.size

    def test_they_are_named_in_the_log(self, run: Run, hostile: Any, marks: Path) -> None:
        ran = run(hostile.leave("twice forked", marks=str(marks)))
        assert f"which were killed: {(marks / 'child').read_text()} (" in "\n".join(ran.log)

    def test_children_of_the_driver_are_spared(self, run: Run, hostile: Any, marks: Path) -> None:
        own = subprocess.Popen(["sleep", "1000"])
        try:
            run(hostile.leave("own session", marks=str(marks)), backend=InlineBackend())
            assert own.poll() is None
        finally:
            own.kill()
            own.wait()

    def test_a_killed_body_takes_hidden_processes_along(self, run: Run, hostile: Any, marks: Path) -> None:
        running = Running(run, hostile.hang_with_hidden_child(marks=str(marks)), marks)
        hidden = int((marks / "hidden").read_text())
        assert is_running(hidden)
        running.control.stop("cancelled", grace_s=0)
        running.end()
        wait_for(lambda: not is_running(hidden), "the hidden process to die")

    def test_closing_takes_hidden_processes_along(self, run: Run, hostile: Any, marks: Path) -> None:
        with closing(LocalBackend(max_workers=1)) as backend:
            running = Running(
                lambda step, control: run(step, control=control, backend=backend),
                hostile.hang_with_hidden_child(marks=str(marks)),
                marks,
            )
        running.end()
        assert not is_running(int((marks / "hidden").read_text()))

    def test_a_killed_driver_takes_hidden_processes_along(self, hostile: Any, marks: Path, tmp_path: Path) -> None:
        driver = subprocess.Popen(
            [sys.executable, "-c", driver_script(hostile, "hang_with_hidden_child", marks, tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            wait_for((marks / "started").exists, "the body to start")
            pids = [int((marks / name).read_text()) for name in ("started", "hidden")]
            assert all(map(is_running, pids))
        finally:
            driver.kill()
            driver.wait()
        wait_for(lambda: not any(map(is_running, pids)), "the worker and what it hid to die")


def driver_script(module: Any, name: str, marks: Path, root: Path) -> str:
    return textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(Path(module.__file__).parent)!r})
        import {module.__name__} as bodies
        from marin_pipe.execution.backends.base import Control, Task
        from marin_pipe.execution.backends.local import LocalBackend
        from marin_pipe.execution.resources import CPU

        class Silent:
            def write(self, data): pass

        step = bodies.{name}(marks={str(marks)!r})
        task = Task(step=step, root={str(root / "root")!r}, directory=step.directory, attempt="000001-abcdef",
                    earlier_work=(), inputs={{}}, resources=CPU())
        backend = LocalBackend(max_workers=1)
        result = backend.execute(task, log=Silent(), control=Control())
        backend.close()
        open({str(marks / "result")!r}, "w").write(repr(result))
        """
    )


class TestForks:
    @pytest.mark.parametrize("how", ["return", "raise", "exit", "wait"])
    def test_only_the_process_that_ran_the_body_answers(self, either: Run, hostile: Any, how: str) -> None:
        assert either(hostile.fork_and_return(how)).value == ("parent 0" if how == "wait" else "parent")
        # Nobody else answers the next one.
        assert either(hostile.fork_and_return("return")).value == "parent"

    def test_what_the_child_raises_is_logged(self, run: Run, hostile: Any) -> None:
        assert "ValueError: in the child" in run(hostile.fork_and_return("raise")).log


class TestErrors:
    @pytest.mark.parametrize(
        ("how", "error_type", "words"),
        [
            ("mute", "Mute", "<str() of this Mute raised RuntimeError>"),
            ("leaving", "Leaving", "<str() of this Leaving raised SystemExit>"),
            ("odd", "Odd", "odd words"),
            ("surrogate", "ValueError", "a \\udc80 b"),
            ("huge", "ValueError", "characters left out"),
            ("recursion", "RecursionError", "maximum recursion depth"),
            ("exit with mute", "SystemExit", "<repr() of this Mute raised RuntimeError>"),
            ("cause is mute", "KeyError", "told"),
            ("notes", "ValueError", "told"),
            ("group", "ExceptionGroup", "several (2 sub-exceptions)"),
        ],
    )
    def test_whatever_is_raised_is_a_failure_with_a_traceback(
        self, either: Run, hostile: Any, how: str, error_type: str, words: str
    ) -> None:
        failed = either(hostile.raise_oddly(how)).failed
        assert (failed.outcome, failed.exit_code, failed.error_type) == ("failed", 1, error_type)
        assert words in failed.message
        assert "in raise_oddly" in failed.traceback
        assert len(failed.message) < 10_100
        assert len(failed.traceback) < 70_000
        assert type(failed.message) is type(failed.traceback) is str
        (failed.message + failed.traceback).encode()

    def test_words_that_are_not_unicode_are_kept_as_escapes(
        self, either: Run, hostile: Any, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # What the inline backend passes on would become part of pytest's report, which is UTF-8.
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        ran = either(hostile.odd_words())
        assert ran.value == "done"
        assert "printed \\udc80" in ran.log
        assert b"told \\\\udc80" in store.read(f"{ran.attempt}/progress.json").data


class TestResults:
    @pytest.mark.parametrize("kind", ["list", "dict"])
    @pytest.mark.parametrize("body", ["give_nested", "give_nested_artifact"])
    @pytest.mark.parametrize("levels", [101, 500, 5000])
    def test_deep_results_are_refused(self, run: Run, hostile: Any, body: str, kind: str, levels: int) -> None:
        failed = run(getattr(hostile, body)(levels, kind)).failed
        assert (failed.error_type, failed.exit_code) == ("ResultError", 1)
        assert body in failed.message
        assert 'File "' not in failed.traceback

    @pytest.mark.parametrize("kind", ["list", "dict"])
    def test_what_is_just_not_too_deep_can_be_recorded(self, run: Run, hostile: Any, kind: str) -> None:
        import json

        for ran in (run(hostile.give_nested(99, kind)), run(hostile.give_nested_artifact(97, kind))):
            assert json.loads(json.dumps(ran.value)) == ran.value

    def test_what_holds_itself_is_refused(self, run: Run, hostile: Any) -> None:
        assert run(hostile.give_itself()).failed.error_type == "ResultError"

    @pytest.mark.parametrize("body", ["give_surrogate", "give_surrogate_artifact"])
    @pytest.mark.parametrize("where", ["text", "item", "key"])
    def test_text_that_is_not_unicode_is_refused(self, run: Run, hostile: Any, body: str, where: str) -> None:
        failed = run(getattr(hostile, body)(where)).failed
        assert (failed.error_type, failed.exit_code) == ("ResultError", 1)
        assert body in failed.message
        assert 'File "' not in failed.traceback


class TestSurroundings:
    @pytest.mark.parametrize(
        "how",
        [
            "umask",
            "handlers",
            "mask",
            "alarm",
            "limits",
            "removed directory",
            "streams",
            "no streams",
            "descriptors 1 and 2",
        ],
    )
    def test_the_next_step_sees_nothing_of_it(self, run: Run, hostile: Any, tmp_path: Path, how: str) -> None:
        before = os.getcwd()
        os.chdir(tmp_path)
        try:
            clean = run(hostile.look_at_process(1)).value
            assert run(hostile.change_process(how)).value is None
            after = run(hostile.look_at_process(2, pause_s=0.4 if how == "alarm" else 0.0))
        finally:
            os.chdir(before)
        assert after.value == clean
        assert after.log == ("still printing",)

    @pytest.mark.parametrize("how", ["umask", "handlers", "mask", "limits"])
    def test_nor_does_the_driver_of_an_inline_step(self, run: Run, hostile: Any, how: str) -> None:
        def look() -> list[Any]:
            umask = os.umask(0)
            os.umask(umask)
            numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
            handlers = [signal.getsignal(number) for number in numbers]
            return [umask, handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ()), sys.getrecursionlimit()]

        before = look()
        run(hostile.change_process(how), backend=InlineBackend())
        assert look() == before

    def test_a_timer_of_the_driver_goes_on(self, run: Run, hostile: Any) -> None:
        rang = []
        before = signal.signal(signal.SIGALRM, lambda *_: rang.append(True))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            run(hostile.change_process("umask"), backend=InlineBackend())
            wait_for(lambda: rang, "the timer")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_a_missing_working_directory_is_told(self, run: Run, hostile: Any, tmp_path: Path) -> None:
        before = os.getcwd()
        gone = tmp_path / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        try:
            failed = run(hostile.look_at_process(1)).failed
        finally:
            os.chdir(before)
        assert "working directory" in failed.message
        assert failed.exit_code == 2

    def test_a_body_that_closes_the_workers_channel_fails_and_hangs_nothing(self, run: Run, hostile: Any) -> None:
        failed = run(hostile.close_everything()).failed
        assert (failed.outcome, failed.exit_code) == ("failed", 1)
        assert isinstance(run(hostile.look_at_process(1)).value, list)


class TestInterrupts:
    def test_a_body_that_swallows_the_interrupt_counts_as_interrupted(
        self, run: Run, hostile: Any, marks: Path
    ) -> None:
        running = Running(run, hostile.swallow_interrupt(marks=str(marks)), marks)
        running.control.stop("interrupted", grace_s=60)
        ran = running.end()
        assert (ran.failed.outcome, ran.failed.exit_code) == ("interrupted", 130)
        assert "interrupted, keeping what there is" in ran.log

    def test_also_inline(self, run: Run, hostile: Any, marks: Path) -> None:
        def interrupt() -> None:
            wait_for((marks / "started").exists, "the body to start")
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        failed = run(hostile.swallow_interrupt(marks=str(marks)), backend=InlineBackend()).failed
        thread.join()
        assert (failed.outcome, failed.exit_code) == ("interrupted", 130)

    def test_a_body_that_looks_is_left_alone_during_the_grace(self, run: Run, hostile: Any, marks: Path) -> None:
        running = Running(run, hostile.look_late(marks=str(marks)), marks)
        running.control.stop("interrupted", grace_s=60)
        failed = running.end().failed
        assert failed.outcome == "interrupted"
        assert "in its own time" in failed.traceback

    def test_a_second_stop_kills_at_once(self, run: Run, hostile: Any, marks: Path) -> None:
        running = Running(run, hostile.compute_in_c(marks=str(marks)), marks)
        running.control.stop("interrupted", grace_s=1000)
        running.control.stop("interrupted", grace_s=0)
        assert running.end().failed.outcome == "interrupted"
        assert not is_running(running.pid)

    def test_a_body_in_c_code_is_killed_after_the_grace(self, run: Run, hostile: Any, marks: Path) -> None:
        running = Running(run, hostile.compute_in_c(marks=str(marks)), marks)
        running.control.stop("cancelled", grace_s=0.2)
        assert running.end().failed.outcome == "interrupted"

    @pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.002, 0.005])
    def test_a_stop_at_any_moment_ends_one_body_and_no_other(self, run: Run, bodies: Any, delay_s: float) -> None:
        for number in range(10):
            control = Control()
            timer = threading.Timer(delay_s, control.stop, ("cancelled",), {"grace_s": 60})
            timer.start()
            ran = run(bodies.process_id(number), control=control)
            timer.join()
            # Either it was done before the stop came, or it was stopped; it never failed of something else.
            assert ran.result.__class__.__name__ == "Completed" or ran.failed.outcome == "interrupted"
            assert isinstance(run(bodies.process_id(number)).value, int)

    def test_an_interrupt_the_body_sends_itself_is_an_interrupt(self, run: Run, hostile: Any) -> None:
        assert run(hostile.interrupt_itself()).failed.outcome == "interrupted"


class TestClose:
    def test_stopped_workers_do_not_hold_up_the_end(self, run: Run, hostile: Any) -> None:
        began = time.monotonic()
        with closing(LocalBackend(max_workers=1)) as backend:
            run(hostile.look_at_process(1), backend=backend)
            (worker,) = backend._idle
            os.kill(worker.pid, signal.SIGSTOP)
        assert not is_running(worker.pid)
        assert time.monotonic() - began < 15

    @pytest.mark.parametrize("closed", ["0<&- 1<&-", "0<&- 1>&- 2>&-", "2>&-"])
    def test_a_driver_without_standard_streams(self, hostile: Any, marks: Path, tmp_path: Path, closed: str) -> None:
        script = tmp_path / "driver.py"
        script.write_text(driver_script(hostile, "print_at", marks, tmp_path))
        subprocess.run(
            ["sh", "-c", f"exec {sys.executable} {script} {closed}"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            timeout=PATIENCE_S,
        )
        assert "Completed" in (marks / "result").read_text()
