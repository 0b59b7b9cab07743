"""Errors of an experiment's own code: shown with the frames of that code, and none of ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from marin_pipe.cli.output import shorten
from marin_pipe.execution.errors import ExitCode, PipelineError

if TYPE_CHECKING:
    from traceback import TracebackException

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class UserCodeError(PipelineError):
    """What an experiment's code raised while it was asked for its config or its steps."""

    exit_code = ExitCode.USAGE

    def __init__(self, what: str, *, traceback: str):
        super().__init__(what, next="correct it, then run the same command again; --debug shows all frames")
        self.traceback = traceback
        """For people: the frames of the user's code, and the error."""


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Tell apart what the experiment's code raises in the block; `what` was called there, such as "build()"."""
    try:
        yield
    except (PipelineError, click.ClickException):
        raise
    except Exception as error:
        message = f": {shorten(str(error))}" if str(error) else ""
        raise UserCodeError(
            f"{what} failed: {type(error).__name__}{message}", traceback=_without_our_frames(error)
        ) from error


def _without_our_frames(error: Exception) -> str:
    import traceback

    told = traceback.TracebackException.from_exception(error)
    _drop_our_frames(told)
    return "".join(told.format())


def _drop_our_frames(told: "TracebackException") -> None:
    told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(_PACKAGE)]
    for other in (told.__cause__, told.__context__):
        if other is not None:
            _drop_our_frames(other)
