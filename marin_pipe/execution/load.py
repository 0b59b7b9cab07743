"""Committed results, loaded and typed."""

import os
from typing import Any

from pydantic import ValidationError

from marin_pipe.execution import decide
from marin_pipe.execution.declared import describe, members
from marin_pipe.execution.errors import GraphError, MissingOutput, RecordError
from marin_pipe.execution.handle import Step
from marin_pipe.execution.identity import Shape, shape
from marin_pipe.execution.layout import join_url
from marin_pipe.execution.markers import Artifact
from marin_pipe.execution.observe import data_directory, observe
from marin_pipe.execution.pin import resolve_pin
from marin_pipe.execution.source import fingerprint
from marin_pipe.execution.values import coerce

SPECIAL_FLOATS = frozenset({"NaN", "Infinity", "-Infinity"})
"""How records spell the floats that JSON lacks, as pydantic does."""


def load_step(step: Step[Any], *, root: str | os.PathLike[str] | None) -> Any:
    """The result of a step's current commit, with `.path` set on an artifact.

    Raises:
        MissingOutput: there is none.
        IdentityConflict: another function made it.
        RecordError: it no longer validates.
    """
    from marin_storage import open_store

    from marin_pipe.execution.run import resolve_root

    if step.options.pin is not None:
        commit, data = resolve_pin(step, step.options.pin)
    else:
        store = open_store(resolve_root(root))
        current = observe(store, step.directory, key=step.key).served()
        if current is None:
            raise MissingOutput(
                f"step {step.name} has no output in {store.url}",
                why=f"{step.directory} holds no commit",
                next="run it first",
            )
        if decide.has_moved(step, current):
            decide.check_function(step, current, source=fingerprint((step.function.fn, *step.bound.functions)))
        commit, data = current, join_url(store.url, data_directory(step.directory, current))
    where = f"{step.directory}, commit {commit.number}"
    annotation = step.function.hints.get("return")
    return revive(commit.record.result, annotation, data_url=data, where=where, step=step.name)


def _with_floats(value: Any, declared: Shape) -> Any:
    """JSON with nan and infinities, which it holds as text, where floats are declared."""
    if type(value) is str:
        return float(value) if declared.floats and value in SPECIAL_FLOATS else value
    if type(value) is list:
        return [_with_floats(item, declared.item(index)) for index, item in enumerate(value)]
    if type(value) is dict:
        return {key: _with_floats(item, declared.field(key)) for key, item in value.items()}
    return value


def revive(result: Any, annotation: Any, *, data_url: str, where: str, step: str = "STEP") -> Any:
    """A recorded JSON result as the type the step declares, an artifact with its path.

    Args:
        where: the output, for errors.
        step: the name of the step that made it, for errors.

    Raises:
        RecordError: it no longer validates.
    """
    declared = annotation if annotation is not None else Any
    kinds = [m for m in members(declared) if isinstance(m, type) and issubclass(m, Artifact)]
    problem = ""
    for kind in kinds if isinstance(result, dict) or declared in kinds else ():
        try:
            return kind.model_validate(result).located_at(data_url)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "(whole result)"
            problem = problem or f"{field}: {first['msg']}"
    try:
        if not problem:
            return coerce(_with_floats(result, shape(declared)), declared, where="the result")
    except GraphError as error:
        problem = error.what
    raise RecordError(
        f"{where}: the recorded {describe(declared)} no longer validates: {problem}",
        why="the type that the step returns was changed after the output was built",
        next=f"rebuild it with `run --force {step}`, or correct the type",
    )
