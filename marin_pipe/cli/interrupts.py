"""Ctrl-C before a command runs: while modules are imported."""

import sys
from types import TracebackType


def quiet_interrupts() -> None:
    """From now on, an interrupt that nobody catches ends the process with a word instead of a traceback.

    The exit code stays that of an interrupt. Everything else goes to whatever hook was there before.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.stderr.write("interrupted\n")
        else:
            before(kind, error, frames)

    sys.excepthook = hook
