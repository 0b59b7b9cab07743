"""What a body may change about its process, and how that is undone."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"


@contextmanager
def restored(cwd: str) -> Iterator[None]:
    """Run a body in `cwd`; undo what it did to the directory, environment, import path and root logger."""
    # The dict of bytes behind `os.environ`: copying and comparing the mapping itself takes longer than a trivial step.
    raw: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    environment, path = raw.copy(), sys.path[:]
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    os.chdir(cwd)
    try:
        yield
    finally:
        os.chdir(cwd)
        if raw != environment:
            restore_environment(environment)
        if sys.path != path:
            sys.path[:] = path
        if logger.handlers != handlers or logger.level != level:
            logger.handlers[:] = handlers
            logger.setLevel(level)


def restore_environment(environment: dict[bytes, bytes]) -> None:
    """Make `os.environ` equal to an earlier copy of its bytes."""
    for name in os.environb.keys() - environment.keys():
        del os.environb[name]
    for name, value in environment.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
