"""Errors a user of the data library sees: what happened, why, and what to do next."""

from traceback import extract_tb
from typing import Any


class CorpusError(Exception):
    """Base class. `what` happened, `why`, and what to do `next`; each a line of the message."""

    def __init__(self, what: str, *, why: str = "", next: str = ""):
        super().__init__("\n".join(line for line in (what, why, next) if line))
        self.what, self.why, self.next = what, why, next

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross from worker processes.
        return (_rebuild, (type(self), self.what, self.why, self.next))


def _rebuild(cls: type[CorpusError], what: str, why: str, next: str) -> CorpusError:
    return cls(what, why=why, next=next)


class BadInput(CorpusError):
    """Text, a record or a file from outside that cannot be used; names the file and, where there is one, the line."""


class BadConfig(CorpusError, ValueError):
    """A setting that cannot be honoured."""


class Mismatch(CorpusError):
    """Two things that do not belong together: attributes of other documents, a store of another tokenizer."""


class CorruptData(CorpusError):
    """A file of ours that is missing, short or changed."""


def described(error: Exception) -> str:
    """Type, message and place of an error of a user's function: the traceback does not cross from a worker process."""
    place = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
