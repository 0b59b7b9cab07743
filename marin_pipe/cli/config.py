"""From `build`'s annotation to the config that it takes."""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any

from marin_pipe.cli.user_code import user_code
from marin_pipe.execution.errors import ConfigurationError


def config_class(build: Callable[..., Any]) -> type | None:
    """The frozen dataclass that `build` takes; None if it takes nothing. ConfigurationError for anything else."""
    parameters = list(inspect.signature(build).parameters.values())
    if not parameters:
        return None
    wanted = "build() takes nothing, or one config: `def build(config: MyConfig) -> dict[str, Step]`"
    if len(parameters) > 1:
        names = ", ".join(parameter.name for parameter in parameters)
        raise ConfigurationError(f"build({names}) takes {len(parameters)} arguments", next=wanted)
    try:
        annotation = typing.get_type_hints(build).get(parameters[0].name)
    except NameError as error:
        raise ConfigurationError(f"the annotations of build() cannot be resolved: {error}", next=wanted) from error
    if not (isinstance(annotation, type) and dataclasses.is_dataclass(annotation)):
        raise ConfigurationError(
            f"the argument {parameters[0].name!r} of build() is annotated {annotation!r}, which is no dataclass",
            why="the command line makes it from its fields and their defaults",
            next=wanted,
        )
    if not annotation.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigurationError(
            f"the config {annotation.__name__} is not frozen",
            why="it is recorded as it was built, so build() must not change it",
            next="declare it with @dataclass(frozen=True)",
        )
    return annotation


def default_config(config_class: type) -> Any:
    """`config_class()`; ConfigurationError if a field has no default."""
    missing = [
        field.name
        for field in dataclasses.fields(config_class)
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigurationError(
            f"the field {missing[0]!r} of {config_class.__name__} has no default",
            why="an experiment must run without any arguments",
            next=f"give it one: `{missing[0]}: ... = ...`",
        )
    with user_code(f"{config_class.__name__}()"):
        return config_class()
