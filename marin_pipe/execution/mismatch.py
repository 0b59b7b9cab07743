"""A value that is not of its declared type: what the coercions raise, and how a value looks in an error message."""

import reprlib
from typing import Any

from marin_pipe.execution.declared import describe
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.handle import Step, StepPath
from marin_pipe.execution.secret import redact

_SHOWN_CHARACTERS = 80


class Mismatch(Exception):
    """A part of a value does not fit. `path` is filled in on the way out."""

    def __init__(self, value: Any, expected: Any, *, why: str = "", next: str = "") -> None:
        super().__init__()
        self.value, self.expected, self.why, self.next = value, expected, why, next
        self.path = ""

    def inside(self, part: str) -> "Mismatch":
        self.path = part + self.path
        return self

    def as_error(self, where: str) -> GraphError:
        """What the user sees; `where` names the value: "argument lr"."""
        expected = self.expected if isinstance(self.expected, str) else describe(self.expected)
        return GraphError(
            f"{where}{self.path}: expected {expected}, got {shown(self.value)}", why=self.why, next=self.next
        )


class _Shown(reprlib.Repr):
    """Redacts before it shortens: the rest of a secret is no longer found as one."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = _SHOWN_CHARACTERS

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(redact(x), level)

    def repr_instance(self, x: Any, level: int) -> str:  # noqa: ARG002  the base class calls it so
        try:
            text = redact(repr(x))
        except Exception as error:  # a broken __repr__ of the user's must not hide the error that is to be shown
            return f"<{type(x).__name__} whose repr() raises {type(error).__name__}>"
        if len(text) <= self.maxother:
            return text
        end = (self.maxother - 3) // 2
        return f"{text[:end]}...{text[-end:]}"


_shown = _Shown()


def shown(value: Any) -> str:
    """A value for an error message: short, without secrets, with its type."""
    return repr(value) if isinstance(value, Step | StepPath) else f"{_shown.repr(value)} ({type(value).__name__})"
