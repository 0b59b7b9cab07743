"""Errors a user sees. Each carries what happened, why, and what to do next, and knows its exit code."""

from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Exit codes of every command (documented in docs/reference/exit-codes)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    OUT_OF_DATE = 3
    BUSY = 4
    CORRUPT = 5
    LOST = 75
    INTERRUPTED = 130


class PipelineError(Exception):
    """Base class. `what` happened, `why`, and what to do `next`."""

    exit_code = ExitCode.FAILED

    def __init__(self, what: str, *, why: str = "", next: str = ""):
        super().__init__("\n".join(line for line in (what, why, next) if line))
        self.what, self.why, self.next = what, why, next

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.why, self.next))


def _rebuild(cls: type[PipelineError], what: str, why: str, next: str) -> PipelineError:
    return cls(what, why=why, next=next)


class GraphError(PipelineError):
    """The graph cannot be built: a wrong argument, an object without identity, two functions of one name."""

    exit_code = ExitCode.USAGE


class ConfigurationError(PipelineError):
    """A flag, a setting, a root or a resource that cannot be honoured."""

    exit_code = ExitCode.USAGE


class IdentityConflict(PipelineError):
    """An output was made by another function that has the same identity name."""

    exit_code = ExitCode.USAGE


class CorruptOutput(PipelineError):
    """Committed data is missing, short or changed."""

    exit_code = ExitCode.CORRUPT


class RecordError(PipelineError):
    """A stored record does not validate."""

    exit_code = ExitCode.CORRUPT


class MissingOutput(PipelineError):
    """A step has no current commit where one is needed."""


class Busy(PipelineError):
    """A live owner holds the lease."""

    exit_code = ExitCode.BUSY


class SourceChanged(PipelineError):
    """A file was edited between the driver's fingerprint and the worker's import."""


class ResultError(PipelineError):
    """A step returned something that its annotation or JSON does not allow."""


def plain_text(text: str) -> str:
    """Text that records can hold, of the plain type: what is not Unicode (lone surrogates) is written as escapes."""
    return str.encode(text, "utf-8", "backslashreplace").decode()
