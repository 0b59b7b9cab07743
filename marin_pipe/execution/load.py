"""Committed results, loaded and typed."""

import os
from typing import Any

from marin_pipe.execution.errors import MissingOutput, RecordError
from marin_pipe.execution.handle import Step
from marin_pipe.execution.markers import Artifact
from marin_pipe.execution.observe import data_directory, observe
from marin_pipe.execution.pin import join_url, resolve_pin
from marin_pipe.execution.values import coerce


def load_step(step: Step[Any], *, root: str | os.PathLike[str] | None) -> Any:
    """The result of a step's current commit, with `.path` set on an artifact."""
    from marin_storage import open_store

    from marin_pipe.execution.run import resolve_root

    if step.options.pin is not None:
        commit, data = resolve_pin(step, step.options.pin)
    else:
        store = open_store(resolve_root(root))
        seen = observe(store, step.directory, key=step.key)
        if seen.commit is None:
            raise MissingOutput(
                f"step {step.name} has no output in {store.url}",
                why=f"{step.directory} holds no commit",
                next="run it first",
            )
        commit, data = seen.commit, join_url(store.url, data_directory(step.directory, seen.commit))
    where = f"{step.directory}, commit {commit.number}"
    return revive(commit.record.result, step.function.hints.get("return"), data_url=data, where=where)


def revive(result: Any, annotation: Any, *, data_url: str, where: str) -> Any:
    """A recorded JSON result as the type the step declares. RecordError if it no longer validates."""
    from pydantic import ValidationError

    next_ = "rebuild it with `run --force STEP`, or correct the class"
    if isinstance(annotation, type) and issubclass(annotation, Artifact):
        try:
            return annotation.model_validate(result).located_at(data_url)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "(whole result)"
            raise RecordError(
                f"{where}: the recorded {annotation.__name__} no longer validates: {field}: {first['msg']}",
                why="the class was changed after the output was built",
                next=next_,
            ) from error
    return coerce(result, annotation if annotation is not None else Any, where=where)
