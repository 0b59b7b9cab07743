"""What a body returned -> the JSON kept in the record, checked so that it can be read back as what it was."""

import math
from collections.abc import Callable
from typing import Any

from marin_pipe.execution.declared import describe, members
from marin_pipe.execution.errors import GraphError, RecordError, ResultError
from marin_pipe.execution.identity import Shape, shape
from marin_pipe.execution.load import revive
from marin_pipe.execution.markers import Artifact
from marin_pipe.execution.mismatch import shown
from marin_pipe.execution.returns import place
from marin_pipe.execution.secret import refuse_secrets_in_result
from marin_pipe.execution.values import coerce

_SCALARS = (str, int, float, bool, type(None))
MAX_DEPTH = 100
"""Lists and dicts within each other. Readers of records allow about twice as many levels in all."""


def encode_result(
    result: Any, annotation: Any, *, step: str, function: Callable[..., Any] | None = None
) -> tuple[Any, str | None]:
    """The JSON of a result, and the class name of an artifact.

    Args:
        result: an `Artifact`, a JSON value or None.
        annotation: what the function declares to return; `Any` if it says nothing.
        function: what returned it, for errors.

    Raises:
        ResultError: it is not of the declared type, JSON has no form for it, its JSON does not lead back to it, or it
            holds a secret.
    """
    try:
        encoded, kind = _encode(result, annotation, step)
        refuse_secrets_in_result(encoded, where=f"step {step}: its result")
    except ResultError as error:
        where = f" ({place(function)})" if function is not None else ""
        raise ResultError(f"{error.what}{where}", why=error.why, next=error.next) from None
    return encoded, kind


def _encode(result: Any, annotation: Any, step: str) -> tuple[Any, str | None]:
    if isinstance(result, Artifact):
        return _encode_artifact(result, annotation, step), type(result).__name__
    if result is None and annotation is Any:
        return None, None
    _check_depth(result, step)
    try:
        value = coerce(result, annotation, where="the result")
    except GraphError as error:
        raise ResultError(
            f"step {step} returned what its annotation {describe(annotation)} does not allow: {error.what}",
            why=error.why,
            next="correct the function or its return annotation",
        ) from None
    encoded = _encode_json(value, shape(annotation), "the result", step)
    _check_way_back(encoded, value, annotation, step)
    return encoded, None


def _encode_artifact(result: Artifact, annotation: Any, step: str) -> Any:
    kind = type(result)
    if kind not in members(annotation):
        raise ResultError(
            f"step {step} returned a {kind.__name__}, its annotation says {describe(annotation)}",
            why="the annotation is how the recorded result is read back",
            next=f"annotate the function with -> {kind.__name__}",
        )
    try:
        encoded = result.model_dump(mode="json")
        _check_depth(encoded, step)
        encoded = _without_special_floats(encoded, kind.__name__, step)
        again = revive(encoded, annotation, data_url="", where="the result", step=step)
        # By text: nan is not equal to itself.
        same = type(again) is kind and repr(again) == repr(result)
    except (ValueError, RecordError) as error:  # pydantic's errors are ValueErrors
        raise ResultError(
            f"step {step} returned a {kind.__name__} that JSON cannot hold: {error}",
            next="use fields of JSON types: numbers, text, lists, dicts, models",
        ) from None
    if not same:
        raise ResultError(
            f"step {step} returned a {kind.__name__} whose JSON does not lead back to it: {shown(again)} is not "
            f"{shown(result)}",
            next="declare the fields with the types of their values",
        )
    return encoded


def _check_way_back(encoded: Any, value: Any, annotation: Any, step: str) -> None:
    try:
        again = revive(encoded, annotation, data_url="", where="the result", step=step)
    except RecordError as error:
        raise ResultError(f"step {step}: its result cannot be read back from JSON: {error}") from None
    # By text: nan is not equal to itself, and 1 equals True.
    if repr(again) != repr(value):
        raise ResultError(
            f"step {step} returned {shown(value)}, which would be read back as {shown(again)}",
            why="JSON has lists and text keys only, and the annotation does not say more",
            next="annotate the function with the exact type, or return an Artifact",
        )


def _encode_json(value: Any, declared: Shape, where: str, step: str) -> Any:
    kind = type(value)
    if kind is float and not math.isfinite(value):
        if declared.floats:
            return _special_float(value)
        raise ResultError(
            f"step {step}: {where} is {value}, and JSON has no such number",
            why="where the annotation declares a float it would be kept as text and read back",
            next="declare it, as in `-> float`, `-> dict[str, float]` or a float field of an Artifact",
        )
    if kind is str:
        return _encode_text(value, where, step)
    if kind in _SCALARS:
        return value
    if kind in (list, tuple):
        return [_encode_json(item, declared.item(index), f"{where}[{index}]", step) for index, item in enumerate(value)]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise ResultError(
                    f"step {step}: {where} has the key {key!r}, and JSON has text keys only", next="use text keys"
                )
        return {
            _encode_text(key, where, step): _encode_json(item, declared.field(key), f"{where}[{key!r}]", step)
            for key, item in value.items()
        }
    raise ResultError(
        f"step {step}: {where} is a {kind.__qualname__}, which JSON has no form for",
        next="return an Artifact, or numbers, text, lists and dicts",
    )


def _encode_text(value: str, where: str, step: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ResultError(
            f"step {step}: {where} holds text that is not Unicode: {error}",
            why="records are JSON in UTF-8, which has no lone surrogates",
            next="decode bytes with errors='replace' or 'backslashreplace'",
        ) from None
    return value


def _check_depth(value: Any, step: str) -> None:
    """ResultError for what is nested deeper than readers of records allow, or in itself."""
    pending = [(value, 1)] if isinstance(value, (list, tuple, dict)) else []
    while pending:
        container, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ResultError(
                f"step {step}: the result has more than {MAX_DEPTH} levels of lists and dicts within each other",
                why="records are JSON, whose readers limit the depth",
                next="write it to a file in ctx.output, and return what is flat",
            )
        for item in container.values() if isinstance(container, dict) else container:
            if isinstance(item, (list, tuple, dict)):
                pending.append((item, depth + 1))


def _special_float(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _without_special_floats(value: Any, where: str, step: str) -> Any:
    """nan and infinities as pydantic reads them back."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return _special_float(value)
    if isinstance(value, str):
        return _encode_text(value, where, step)
    if isinstance(value, dict):
        return {
            _encode_text(key, where, step): _without_special_floats(item, f"{where}.{key}", step)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_special_floats(item, f"{where}[{index}]", step) for index, item in enumerate(value)]
    return value
