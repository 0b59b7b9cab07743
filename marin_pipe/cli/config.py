"""From `build`'s annotation and the overrides to a config object. draccus is imported only if there are overrides."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from marin_pipe.cli.fields import Field, Fields
from marin_pipe.execution.errors import ConfigurationError

Overrides = Sequence[tuple[str, str]]


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
    return config_class()


def override(config_class: type, overrides: Overrides, *, fields: Fields) -> Any:
    """The config with `overrides` applied, by draccus. ConfigurationError names the field and the value."""
    import contextlib
    import io

    import draccus
    import yaml  # type: ignore[import-untyped]
    from draccus.utils import DecodingError, ParsingError

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return draccus.parse(
                config_class, args=[f"--{n}={_as_yaml(v, fields.by_name.get(n))}" for n, v in overrides]
            )
    except DecodingError as error:
        name, _, text = str(error).partition(": ")
        raise _refusal(name.strip("`"), text, overrides, fields) from error
    except ParsingError as error:
        # A rule of the dataclass's own (`__post_init__`) is the cause, if there is one.
        raise ConfigurationError(
            f"{config_class.__name__}: {error.__cause__ or error}", next="see --help for the fields and their defaults"
        ) from error
    except yaml.YAMLError as error:
        raise _refusal("", f"not YAML: {' '.join(str(error).split())}", overrides, fields) from error
    except SystemExit as error:
        # argparse inside draccus: "usage: ...\n...: error: argument --kind: invalid choice: ..."
        text = said.getvalue().rpartition("error: ")[2].strip()
        name, _, rest = text.removeprefix("argument --").partition(": ")
        raise _refusal(name, rest or text, overrides, fields) from error


def _as_yaml(value: str, field: Field | None) -> str:
    """`value` as draccus will read it. Text is quoted: YAML reads `null`, `007`, `a: b`, `#x` as something else."""
    is_text = field is not None and (
        field.kind == "text" or (field.kind == "optional text" and value.lower() not in ("null", "none", "~"))
    )
    if not is_text:
        return value
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value) + '"'


def _refusal(name: str, text: str, overrides: Overrides, fields: Fields) -> ConfigurationError:
    """`name` may reach into a value ("sizes.0"); the override it came with is the one to name."""
    own = [(n, v) for n, v in overrides if n == name or name.startswith(f"{n}.")] or list(overrides)
    given, value = own[-1]
    field = fields.by_name.get(given)
    return ConfigurationError(
        f"--{given} {value!r} does not fit the config",
        why=text.strip() or "draccus refused it",
        next=f"{given} is {field.type_text}, by default {field.default or 'nested'}"
        if field is not None
        else "see --help",
    )
