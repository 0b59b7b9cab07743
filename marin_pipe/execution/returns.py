"""Return annotations that no result could ever satisfy: refused before a step has worked for hours."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin, is_typeddict

from marin_pipe.execution.declared import alias_target, class_hints, declared, describe, members
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.markers import Artifact

_SCALARS = (str, int, float, bool, NoneType)
_JSON = (*_SCALARS, list, tuple, dict)


def check_returns(fn: Callable[..., Any], annotation: Any, *, step: str) -> None:
    """GraphError if what `fn` is annotated to return, or a part or an alternative of it, cannot be kept in a record.

    Annotations that say nothing, or nothing known, pass: what the body returns is checked then.
    """
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        kind = "a coroutine" if inspect.iscoroutinefunction(fn) else "a generator"
        raise _refusal(step, fn, f"{fn.__qualname__} returns {kind}", "which is not run by being returned")
    if annotation in (Any, None):
        return
    if (part := next(_unstorable(annotation), None)) is not None:
        whole = describe(annotation)
        inside = "" if describe(part) == whole else f", and {describe(part)} in it"
        raise _refusal(step, fn, f"its return annotation {whole}{inside} can never be stored", "")


def _refusal(step: str, fn: Callable[..., Any], what: str, why: str) -> GraphError:
    return GraphError(
        f"step {step}: {what} ({place(fn)})",
        why=why or "a result is kept in the record of the output, as JSON",
        next="return an Artifact, None, or JSON: bool, int, float, str, lists, tuples, dicts with text keys; write "
        "anything else to a file in ctx.output",
    )


def place(fn: Callable[..., Any]) -> str:
    """Where a function stands, for messages: `count in exp.py, line 12`."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{fn.__qualname__} in {code.co_filename}, line {code.co_firstlineno}" if code else fn.__qualname__


def _unstorable(annotation: Any, *, whole: bool = True) -> Iterator[Any]:
    """The parts of an annotation whose values JSON has no form for."""
    waiting = [(annotation, whole)]
    seen: list[Any] = []
    while waiting:
        outer, whole = waiting.pop()
        for member in members(alias_target(outer)):
            member = alias_target(member)
            origin, arguments = get_origin(member) or member, get_args(member)
            if member is Any or any(member is known for known in seen):
                continue
            seen.append(member)
            if origin is Literal:
                if not all(type(value) in _SCALARS for value in arguments):
                    yield member
            elif is_typeddict(member):
                waiting += [(declared(hint).annotation, False) for hint in class_hints(member).values()]
            elif isinstance(origin, type) and issubclass(origin, Artifact):
                if not whole:
                    yield member
            elif isinstance(origin, type) and not _may_be_json(origin):
                yield member
            elif isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
                if not any(m in (str, Any, object) or get_origin(m) is Literal for m in members(arguments[0])):
                    yield member
                waiting.append((arguments[1], False))
            elif isinstance(origin, type):
                waiting += [(argument, False) for argument in arguments if argument is not ...]


def _may_be_json(cls: type) -> bool:
    """Whether some JSON value is an instance of a class."""
    try:
        return any(issubclass(kind, cls) for kind in _JSON)
    except TypeError:  # a protocol that cannot be asked
        return True
