"""Bodies in the driver's own process."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from marin_storage import open_store

from marin_pipe.execution.backends.base import Control
from marin_pipe.execution.backends.inline import InlineBackend
from marin_pipe.execution.errors import ConfigurationError

Run = Callable[..., Any]


@pytest.fixture
def inline(run: Run) -> Run:
    backend = InlineBackend()
    return lambda step, **options: run(step, backend=backend, **options)


def test_the_body_runs_in_this_process_with_the_same_result_and_manifest(inline: Run, run: Run, bodies: Any) -> None:
    assert inline(bodies.process_id()).value == os.getpid()
    step = bodies.write_files({"a.txt": "alpha", "b/c": "beta"})
    here, there = inline(step).result, run(step).result
    assert (here.result, here.result_type, here.manifest) == (there.result, there.result_type, there.manifest)


def test_what_python_prints_goes_to_the_terminal_and_to_the_log(
    inline: Run, bodies: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = inline(bodies.print_text("hello"))
    assert ran.log == ("hello",)
    assert capsys.readouterr().out == "hello\n"
    assert sys.stdout.write("") == 0


def test_logging_is_logged(inline: Run, bodies: Any) -> None:
    assert "INFO step.use_context: a line by ctx.log" in inline(bodies.use_context()).log


def test_what_a_body_does_to_its_process_is_undone(inline: Run, bodies: Any) -> None:
    before = inline(bodies.surroundings()).value
    environment, folder, path = dict(os.environ), os.getcwd(), sys.path[:]
    inline(bodies.dirty())
    assert (dict(os.environ), os.getcwd(), sys.path) == (environment, folder, path)
    assert inline(bodies.surroundings()).value == before


def test_a_body_cannot_change_the_handles_arguments(inline: Run, bodies: Any) -> None:
    value = {"a": [1]}
    step = bodies.give_back(value)
    inline(step).value["a"].append(2)
    assert inline(step).value == {"a": [1]}


def test_failures_are_told_as_in_a_worker(inline: Run, run: Run, bodies: Any) -> None:
    step = bodies.fail_with(ValueError)
    here, there = inline(step).failed, run(step).failed
    assert (here.outcome, here.error_type, here.message, here.exit_code, here.retryable) == (
        there.outcome,
        there.error_type,
        there.message,
        there.exit_code,
        there.retryable,
    )
    assert here.traceback == there.traceback


def test_environment_is_refused_before_anything_runs(inline: Run, bodies: Any) -> None:
    with pytest.raises(ConfigurationError, match="XLA_FLAGS"):
        inline(bodies.exit_at_once(1).environment({"XLA_FLAGS": "x"}))


def test_another_thread_than_the_main_one_is_refused(inline: Run, bodies: Any) -> None:
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            inline(bodies.process_id())
        except ConfigurationError as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


class TestStop:
    def test_ctrl_c_interrupts_the_body(self, inline: Run, bodies: Any) -> None:
        handler = signal.getsignal(signal.SIGINT)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        failed = inline(bodies.nap(60)).failed
        timer.join()
        assert (failed.outcome, failed.exit_code) == ("interrupted", 130)
        assert signal.getsignal(signal.SIGINT) is handler

    def test_a_stop_is_seen_by_the_body(self, inline: Run, bodies: Any) -> None:
        control = Control()
        threading.Timer(0.1, control.stop, ("preempted",), {"grace_s": 60}).start()
        assert inline(bodies.nap(0.3), control=control).failed.outcome == "preempted"

    def test_after_the_grace_the_body_is_interrupted(self, inline: Run, bodies: Any) -> None:
        control = Control()
        threading.Timer(0.1, control.stop, ("lost",), {"grace_s": 0.1}).start()
        started = time.monotonic()
        assert inline(bodies.nap(60), control=control).failed.outcome == "lost"
        assert time.monotonic() - started < 30


def test_breakpoint_works(tmp_path: Path) -> None:
    """A person types into the debugger on a terminal; the body goes on, its output is whole, the session is logged."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from marin_pipe.execution.backends.base import Control, Task
            from marin_pipe.execution.backends.inline import InlineBackend
            from marin_pipe.execution.logs import LogWriter
            from marin_pipe.execution.resources import CPU
            from marin_pipe.execution.secret import Redactor
            from marin_pipe.execution.step import step
            from marin_storage import open_store

            @step
            def debugged(number: int) -> list:
                answer = number
                breakpoint()
                return [answer, sys.stdout.isatty(), sys.stdin.isatty()]

            if __name__ == "__main__":
                root = sys.argv[1]
                step = debugged(21)
                log = LogWriter(open_store(root), "logged", Redactor({}))
                task = Task(step=step, root=root, directory=step.directory, attempt="000001-abcdef", earlier_work=(),
                            inputs={}, resources=CPU())
                result = InlineBackend().execute(task, log=log, control=Control())
                log.close()
                print("RESULT", result.result)
            """
        )
    )
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "root")],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"},
        close_fds=True,
    )
    os.close(slave)
    try:
        _read_until(master, "(Pdb)")
        os.write(master, b"p 'typed', answer * 2\n")
        _read_until(master, "('typed', 42)")
        os.write(master, b"answer = 7\n")
        _read_until(master, "(Pdb)")
        os.write(master, b"continue\n")
        _read_until(master, "RESULT [7, True, True]")
    finally:
        process.kill()
        process.wait()
        os.close(master)
    log = open_store(str(tmp_path / "root")).read("logged/log/000001.jsonl").data.decode()
    assert any("('typed', 42)" in json.loads(line)["text"] for line in log.splitlines())


def _read_until(descriptor: int, text: str) -> str:
    seen, end = "", time.monotonic() + 20
    while text not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"no {text!r} in {seen!r}"
        seen += os.read(descriptor, 4096).decode()
    return seen


def test_memory_roots_work_inline(run_at: Callable[..., Run], bodies: Any) -> None:
    run = run_at(open_store("memory://inline-bodies"), InlineBackend())
    upstream = bodies.write_files({"a.txt": "alpha"})
    assert run(bodies.read_count(upstream, file="a.txt"), inputs={upstream: run(upstream)}).value == "1:alpha"
