"""`InlineBackend`: bodies in the driver's own process and main thread, for debugging: `breakpoint()` works."""

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

from marin_pipe.execution.backends.base import Completed, Control, Failed, LogSink, StopReason, Task
from marin_pipe.execution.backends.body import run_body
from marin_pipe.execution.backends.descendants import Leftovers, adopt_orphans, own_children
from marin_pipe.execution.backends.loading import Loader
from marin_pipe.execution.backends.outcome import after_stop, failure, no_usage
from marin_pipe.execution.backends.surroundings import LOG_FORMAT, restored
from marin_pipe.execution.backends.transport import prepare
from marin_pipe.execution.context import StepContext
from marin_pipe.execution.errors import ConfigurationError, GraphError


class InlineBackend:
    """Runs one body at a time in the calling thread, which must be the main one.

    What Python code prints goes to the terminal and to the log; what child processes print, only to the terminal. A
    body that does not stop when asked gets a KeyboardInterrupt. Processes that it leaves running are killed.
    """

    concurrency = 1
    in_caller_thread = True

    def __init__(self) -> None:
        self._loader = Loader()

    def execute(self, task: Task, *, log: LogSink, control: Control) -> Completed | Failed:
        """Run one body. ConfigurationError, before it runs, for a setting that this process cannot honour."""
        if task.step.options.environment:
            raise ConfigurationError(
                f"step {task.step.name} sets environment variables that act at process start: "
                f"{', '.join(sorted(task.step.options.environment))}",
                why="the inline backend runs steps in the driver's process, which has started",
                next="use `--backend local`, or set them in the shell and remove .environment()",
            )
        try:
            invocation = prepare(task)
        except (GraphError, ConfigurationError) as error:
            return failure(error, usage=no_usage(), retryable=False)
        function = task.step.function
        leftovers = Leftovers(spare=own_children())
        with Interrupts(control) as interrupts, teed(log), restored(), _orphans_adopted():
            result = run_body(
                invocation,
                resolve=lambda _: function,
                loader=self._loader,
                stopped=lambda: control.stopped is not None,
                interruptible=interrupts.during,
                settle=leftovers.end,
            )
        if isinstance(result, Failed):
            return after_stop(result, control, retry_on=task.step.options.retry.on)
        return result

    def close(self) -> None:
        """Nothing was started."""


class _Tee:
    """A text stream that also goes to the log. Everything but writing is the terminal's own."""

    def __init__(self, stream: TextIO, log: LogSink) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        self._log.write(text.encode("utf-8", "backslashreplace"))
        return self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def teed(log: LogSink) -> Iterator[None]:
    """Copy what goes to `sys.stdout`, `sys.stderr` and logging to `log` as well."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Tee(before[0], log), _Tee(before[1], log)
    logger = logging.getLogger()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        sys.stdout, sys.stderr = before


@contextmanager
def _orphans_adopted() -> Iterator[None]:
    """Only during a body: whoever calls the engine from a program of their own keeps the ways of their process."""
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(adopt=False)


class Interrupts:
    """Ctrl-C raises KeyboardInterrupt in the body, and so does the end of the grace after `control.stop`."""

    def __init__(self, control: Control) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ConfigurationError(
                "the inline backend was used outside the main thread",
                why="signals and the terminal reach the main thread only",
                next="call run(..., backend='inline') from the main thread, or use the local backend",
            )
        self._control = control
        self._lock = threading.Lock()
        self._running = False
        self._timers: list[threading.Timer] = []
        self._context: StepContext | None = None

    def __enter__(self) -> "Interrupts":
        self._running = True
        self._before = signal.signal(signal.SIGINT, self._handle)
        self._control.on_stop(self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running = False
        signal.signal(signal.SIGINT, self._before)
        for timer in self._timers:
            timer.cancel()

    @contextmanager
    def during(self, context: StepContext) -> Iterator[None]:
        """While the body itself runs: one that catches the interrupt and returns counts as interrupted."""
        self._context = context
        yield

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._context is not None:
            self._context.interrupted = True
        raise KeyboardInterrupt

    def _stop(self, reason: StopReason, grace_s: float) -> None:
        del reason
        timer = threading.Timer(max(0.0, grace_s), self._interrupt)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _interrupt(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        with self._lock:
            if self._running:
                signal.pthread_kill(main, signal.SIGINT)
