"""What a body returned -> the JSON kept in the record, checked so that it can be read back as what it was."""

import math
from typing import Any

from marin_pipe.execution.declared import describe, members
from marin_pipe.execution.errors import GraphError, RecordError, ResultError
from marin_pipe.execution.load import revive
from marin_pipe.execution.markers import Artifact
from marin_pipe.execution.values import coerce

_SCALARS = (str, int, float, bool, type(None))


def encode_result(result: Any, annotation: Any, *, step: str) -> tuple[Any, str | None]:
    """The JSON of a result, and the class name of an artifact.

    Args:
        result: an `Artifact`, a JSON value or None.
        annotation: what the function declares to return; `Any` if it says nothing.

    Raises:
        ResultError: it is not of the declared type, JSON has no form for it, or its JSON does not lead back to it.
    """
    if isinstance(result, Artifact):
        return _encode_artifact(result, annotation, step), type(result).__name__
    if result is None and annotation is Any:
        return None, None
    try:
        value = coerce(result, annotation, where="the result")
    except GraphError as error:
        raise ResultError(
            f"step {step} returned what its annotation {describe(annotation)} does not allow: {error.what}",
            why=error.why,
            next="correct the function or its return annotation",
        ) from None
    encoded = _encode_json(value, "the result", step)
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
        encoded = _without_special_floats(result.model_dump(mode="json"))
        again = revive(encoded, annotation, data_url="", where="the result", step=step)
        # By text: nan is not equal to itself.
        same = type(again) is kind and repr(again) == repr(result)
    except (ValueError, RecordError) as error:  # pydantic's errors are ValueErrors
        raise ResultError(
            f"step {step} returned a {kind.__name__} that JSON cannot hold: {error}",
            next="use fields of JSON types: numbers, text, lists, dicts, models",
        ) from error
    if not same:
        raise ResultError(
            f"step {step} returned a {kind.__name__} whose JSON does not lead back to it: {again!r} is not {result!r}",
            next="declare the fields with the types of their values",
        )
    return encoded


def _check_way_back(encoded: Any, value: Any, annotation: Any, step: str) -> None:
    try:
        again = revive(encoded, annotation, data_url="", where="the result", step=step)
    except RecordError as error:
        raise ResultError(f"step {step}: its result cannot be read back from JSON: {error}") from error
    if again != value or type(again) is not type(value):
        raise ResultError(
            f"step {step} returned {value!r}, which would be read back as {again!r}",
            why="JSON has lists and text keys only, and the annotation does not say more",
            next="annotate the function with the exact type, or return an Artifact",
        )


def _encode_json(value: Any, where: str, step: str) -> Any:
    kind = type(value)
    if kind is float and not math.isfinite(value):
        raise ResultError(
            f"step {step}: {where} is {value}, and JSON has no such number",
            next="return None instead, or an Artifact with a float field",
        )
    if kind is str:
        return _encode_text(value, where, step)
    if kind in _SCALARS:
        return value
    if kind in (list, tuple):
        return [_encode_json(item, f"{where}[{index}]", step) for index, item in enumerate(value)]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise ResultError(
                    f"step {step}: {where} has the key {key!r}, and JSON has text keys only", next="use text keys"
                )
        return {_encode_text(key, where, step): _encode_json(v, f"{where}[{key!r}]", step) for key, v in value.items()}
    raise ResultError(
        f"step {step}: {where} is a {kind.__module__}.{kind.__qualname__}, which JSON has no form for",
        next="return an Artifact, or numbers, text, lists and dicts",
    )


def _encode_text(value: str, where: str, step: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ResultError(f"step {step}: {where} holds text that is not Unicode: {error}") from error
    return value


def _without_special_floats(value: Any) -> Any:
    """nan and infinities as pydantic reads them back."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _without_special_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_special_floats(item) for item in value]
    return value
