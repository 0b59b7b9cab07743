"""What a body may change about its process, and how that is undone."""

import gc
import logging
import os
import signal
import sys

# Those of `signal` make enums of the answers, which takes longer than all the rest.
from _signal import getsignal, pthread_sigmask  # type: ignore[import-not-found]
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"
_SIGNALS = tuple(int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


@contextmanager
def restored() -> Iterator[None]:
    """Run a body; undo what it did to the directory, environment, import path, root logger, signals, umask and limits
    of the interpreter."""
    # The dict of bytes behind `os.environ`: copying and comparing the mapping itself takes longer than a trivial step.
    raw: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    environment, path = raw.copy(), sys.path[:]
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    directory = os.getcwd()
    umask = os.umask(0o077)
    os.umask(umask)
    signals, blocked, timers = _handlers(), pthread_sigmask(signal.SIG_BLOCK, ()), _running_timers()
    recursion, collecting = sys.getrecursionlimit(), gc.isenabled()
    try:
        yield
    finally:
        _return_to(directory)
        os.umask(umask)
        if raw != environment:
            restore_environment(environment)
        if sys.path != path:
            sys.path[:] = path
        if logger.handlers != handlers or logger.level != level:
            logger.handlers[:] = handlers
            logger.setLevel(level)
        for number in _running_timers() - timers:
            signal.setitimer(number, 0)
        if (changed := _handlers()) != signals:
            _restore_handlers(signals, changed)
        pthread_sigmask(signal.SIG_SETMASK, blocked)
        sys.setrecursionlimit(recursion)
        if gc.isenabled() is not collecting:
            gc.enable() if collecting else gc.disable()


def _return_to(directory: str) -> None:
    try:
        os.chdir(directory)
    except FileNotFoundError:
        # The body removed it.
        os.chdir("/")


def _handlers() -> list[Any]:
    return [getsignal(number) for number in _SIGNALS]


def _restore_handlers(before: list[Any], now: list[Any]) -> None:
    for number, handler, changed in zip(_SIGNALS, before, now, strict=True):
        # None: C code handles it, and only C code could do so again.
        if changed is not handler and handler is not None:
            signal.signal(number, handler)


def _running_timers() -> set[int]:
    """Those that will send a signal: one that a body leaves would kill the next."""
    return {number for number in _TIMERS if signal.getitimer(number)[0]}


def restore_environment(environment: dict[bytes, bytes]) -> None:
    """Make `os.environ` equal to an earlier copy of its bytes."""
    for name in os.environb.keys() - environment.keys():
        del os.environb[name]
    for name, value in environment.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
