"""The process that runs bodies, one after another, for one driver.

It is told what to run over a socket and to stop over a pipe; it ends when the socket closes. During a body the
descriptors 1 and 2 are a pipe to the driver, so that child processes and C code are logged too.
"""

import atexit
import faulthandler
import functools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from marin_pipe.execution.backends.body import run_body
from marin_pipe.execution.backends.descendants import Leftovers, adopt_orphans
from marin_pipe.execution.backends.loading import Loader
from marin_pipe.execution.backends.script import find_function
from marin_pipe.execution.backends.surroundings import LOG_FORMAT, restored
from marin_pipe.execution.backends.transport import receive_frame, send_frame
from marin_pipe.execution.context import StepContext

READY = "ready"


class StopFlag:
    """Number of the last invocation that was asked to stop. A thread waits for it, since the main one runs the body."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._stopped = 0
        threading.Thread(target=self._listen, name="marin_pipe-stop", daemon=True).start()

    def check(self, number: int) -> Callable[[], bool]:
        return lambda: self._stopped >= number

    def _listen(self) -> None:
        while data := os.read(self._descriptor, 8):
            self._stopped = max(self._stopped, int.from_bytes(data, "little"))
            # Sent to the thread, so that a system call it waits in returns.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]


class Interrupts:
    """Turns a stop into KeyboardInterrupt for a body that never asks `should_stop()`: it could only be killed."""

    def __init__(self) -> None:
        self._context: StepContext | None = None
        self._stopped: Callable[[], bool] = lambda: False
        signal.signal(signal.SIGINT, self._handle)

    def during(self, context: StepContext, *, stopped: Callable[[], bool]) -> "Interrupts":
        """While a body runs: `with interrupts.during(context, stopped=...)`."""
        self._context, self._stopped = context, stopped
        return self

    def __enter__(self) -> None:
        # A stop that came earlier sent its signal to nobody.
        if self._stopped():
            self._handle()

    def __exit__(self, *_: object) -> None:
        # Not reached if the signal comes on the way here: then `_handle` has forgotten the context.
        self._context = None

    def _handle(self, *_: object) -> None:
        context = self._context
        if context is None or (context.looks_for_stop and self._stopped()):
            return
        # Once only: a second one would hit what the body does to end in order, or the engine after it.
        self._context = None
        context.interrupted = True
        raise KeyboardInterrupt


class Output:
    """Where descriptors 1 and 2 lead: nowhere between bodies, to the driver's pipe during one."""

    def __init__(self) -> None:
        import ctypes

        self._nowhere = os.open(os.devnull, os.O_RDWR)
        # C code writes to a pipe through a buffer of its own.
        self._flush_c = ctypes.CDLL(None).fflush
        self._streams = (sys.stdout, sys.stderr)
        for stream in self._streams:
            stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]

    @contextmanager
    def to(self, descriptor: int) -> Iterator[None]:
        """Lead both to `descriptor`, which is closed."""
        self._lead(descriptor)
        os.close(descriptor)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = self._streams
            self.close()

    @property
    def broken(self) -> bool:
        """Whether a body closed one of the streams, which cannot be opened again."""
        return any(stream.closed for stream in self._streams)

    def close(self) -> None:
        for stream in self._streams:
            # A body may have closed them; what it printed before is already out.
            with suppress(ValueError):
                stream.flush()
        self._flush_c(None)
        self._lead(self._nowhere)

    def _lead(self, descriptor: int) -> None:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)


def serve(channel: socket.socket, stop: StopFlag) -> None:
    """Run invocations until the driver closes the channel."""
    output = Output()
    interrupts = Interrupts()
    loader = Loader()
    number = 0
    output.close()
    send_frame(channel, READY)
    while True:
        try:
            invocation, descriptor = receive_frame(channel)
        except (EOFError, ConnectionResetError):
            return
        assert descriptor is not None, "an invocation brings its pipe"
        number += 1
        leftovers = Leftovers()
        with output.to(descriptor), restored():
            stopped = stop.check(number)
            result = run_body(
                invocation,
                resolve=find_function,
                loader=loader,
                stopped=stopped,
                settle=leftovers.end,
                interruptible=functools.partial(interrupts.during, stopped=stopped),
            )
        send_frame(channel, (result, leftovers.found or output.broken))


def main(channel_descriptor: int, stop_descriptor: int, argv: list[str]) -> None:
    """Serve the driver at the other end of an inherited socket. Called by the command line in `processes.py`."""
    for descriptor in (channel_descriptor, stop_descriptor):
        os.set_inheritable(descriptor, False)
    sys.argv[:] = argv
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    adopt_orphans()
    channel = socket.socket(fileno=channel_descriptor)
    try:
        serve(channel, StopFlag(stop_descriptor))
    finally:
        # Modules are not torn down, which takes longer than a step; what libraries registered still runs.
        atexit._run_exitfuncs()
        os._exit(0)
