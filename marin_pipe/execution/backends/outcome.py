"""From what happened to a body to `Failed`: whose frames, which outcome, whether to retry."""

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from marin_pipe.execution.backends.base import Control, Failed
from marin_pipe.execution.errors import ExitCode, PipelineError, plain_text
from marin_pipe.execution.records import Usage

_ENGINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MESSAGE_CHARACTERS = 10_000
_TRACEBACK_CHARACTERS = 1 << 16

_STOPPED = {
    "cancelled": ("interrupted", ExitCode.INTERRUPTED, "the step was cancelled"),
    "interrupted": ("interrupted", ExitCode.INTERRUPTED, "the step was interrupted"),
    "preempted": ("preempted", ExitCode.LOST, "the step was preempted"),
    "lost": ("lost", ExitCode.LOST, "the step was stopped: its lease was lost"),
    "timeout": ("failed", ExitCode.FAILED, "the step ran longer than its .timeout() allows"),
}


class WorkerDied(PipelineError):
    """The process of a body ended before the body did: a crash, the memory killer, `os._exit`."""


def no_usage(started: float | None = None) -> Usage:
    """Of a body that could not be measured. `started` in seconds since the epoch."""
    now = time.time()
    begin = now if started is None else started
    return Usage(started=begin, ended=now, duration_s=now - begin, cpu_s=0.0, peak_memory_bytes=0)


def failure(error: BaseException, *, usage: Usage, retryable: bool) -> Failed:
    """What a body, or the preparation for it, raised."""
    interrupted = isinstance(error, KeyboardInterrupt)
    exit_code = error.exit_code if isinstance(error, PipelineError) else ExitCode.FAILED
    if isinstance(error, SystemExit):
        message = f"the step called sys.exit({_shown(error.code, repr)}); return from the function instead"
    else:
        message = _shown(error, str)
    return Failed(
        outcome="interrupted" if interrupted else "failed",
        error_type=plain_text(type(error).__qualname__),
        message=_shorten(plain_text(message), _MESSAGE_CHARACTERS),
        traceback=_shorten(plain_text(format_error(error)), _TRACEBACK_CHARACTERS),
        retryable=retryable,
        exit_code=int(ExitCode.INTERRUPTED if interrupted else exit_code),
        usage=usage,
        explained=_is_explained(error),
    )


def _is_explained(error: BaseException) -> bool:
    """Whether an error says what happened, why and what to do, as ours and those of the libraries below steps do."""
    ours = type(error).__module__.startswith(("marin_pipe.", "marin_corpus.", "marin_trainer.", "marin_storage."))
    return ours and bool(getattr(error, "what", ""))


def _shown(value: Any, show: Callable[[Any], str]) -> str:
    """`show(value)`, which the user's class defines and which may fail like any other code of theirs."""
    try:
        return show(value)
    except BaseException as problem:  # whatever it is, the error at hand is the one to tell
        return f"<{show.__name__}() of this {type(value).__qualname__} raised {type(problem).__qualname__}>"


def after_stop(result: Failed, control: Control, *, retry_on: tuple[type[BaseException], ...]) -> Failed:
    """The same failure, told as what it is if the engine had asked the body to stop."""
    if control.stopped is None:
        return result
    reason = control.stopped[0]
    outcome, exit_code, message = _STOPPED[reason]
    return Failed(
        outcome=outcome,  # type: ignore[arg-type]
        error_type="TimeoutError" if reason == "timeout" else "Stopped",
        message=message,
        traceback=result.traceback,
        retryable=reason == "timeout" and issubclass(TimeoutError, retry_on),
        exit_code=int(exit_code),
        usage=result.usage,
        log_tail=result.log_tail,
    )


def format_error(error: BaseException) -> str:
    """The traceback from the first frame that is not the engine's.

    An error of the engine about the body (`PipelineError`) needs no frames of the engine; an unforeseen one does.
    """
    import traceback

    kept = _skip_engine_frames(error.__traceback__)
    if kept is None and not isinstance(error, PipelineError):
        kept = error.__traceback__
    try:
        return "".join(traceback.format_exception(type(error), error, kept))
    except BaseException as problem:  # attributes and causes of an error may be anything, and raise
        frames = "".join(traceback.format_tb(kept))
        why = f"the rest could not be formatted: {type(problem).__qualname__}"
        return f"Traceback (most recent call last):\n{frames}{type(error).__qualname__} [{why}]\n"


def _skip_engine_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith((_ENGINE, "<frozen importlib")):
        frames = frames.tb_next
    return frames


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - limit} characters left out]\n{text[-half:]}"
