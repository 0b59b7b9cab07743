"""`experiment(build)`: the command line of an experiment file."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from marin_pipe.cli.app import dispatch, program_of_this_process
from marin_pipe.cli.config import config_class, default_config
from marin_pipe.cli.failures import guarded
from marin_pipe.cli.fields import NO_FIELDS, fields_of
from marin_pipe.cli.interrupts import quiet_interrupts
from marin_pipe.cli.output import cut
from marin_pipe.cli.script import Script
from marin_pipe.cli.user_code import user_code
from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.graph import Graph, build_graph
from marin_pipe.execution.guard import require_main_guard
from marin_pipe.execution.handle import Step
from marin_pipe.execution.layout import name_problem

# An experiment file imports this before most else, such as jax.
quiet_interrupts()


def experiment(build: Callable[..., Mapping[str, Step[Any]]]) -> None:
    """Run the command that this script's arguments ask for (by default `run`) and exit with its code.

    Args:
        build: takes a frozen dataclass with defaults for all fields (or nothing) and returns a dict of names and steps.
    """
    frame = sys._getframe(1)
    if frame.f_globals.get("__name__") != "__main__":
        # Somebody imports the script: that import must fail, not this process end.
        require_main_guard(frame, call="experiment()")
    argv = sys.argv[1:]

    def command() -> int:
        file = require_main_guard(frame, call="experiment()")
        return dispatch(argv, program=program_of_this_process(), script=_describe(build, file))

    sys.exit(guarded(command, debug="--debug" in argv))


def _describe(build: Callable[..., Mapping[str, Step[Any]]], file: str) -> Script:
    name = os.path.splitext(os.path.basename(file))[0]
    problem = name_problem(name)
    if problem is not None:
        raise ConfigurationError(
            f"the file name {os.path.basename(file)!r} cannot name an experiment: {problem}", next="rename the file"
        )
    wanted = config_class(build)
    default = default_config(wanted) if wanted is not None else None

    def graph(config: Any) -> Graph:
        with user_code("build()"):
            steps = build() if wanted is None else build(config)
        return build_graph(_checked(steps))

    return Script(
        name=name,
        description=_first_line(sys.modules["__main__"]),
        build=graph,
        config_class=wanted,
        default=default,
        fields=fields_of(wanted, default=default) if wanted is not None else NO_FIELDS,
    )


def _checked(steps: object) -> Any:
    """What build() returned, if it may hold steps."""
    if steps is None:
        raise ConfigurationError(
            "build() returned nothing",
            why="the steps that it returns are what is run",
            next='did you forget to return them? `return {"name": step}`',
        )
    if not isinstance(steps, Mapping | Step | Iterable) or isinstance(steps, str):
        raise ConfigurationError(
            f"build() returned {type(steps).__name__} {cut(repr(steps), 80)}, which is no step",
            why="build() returns a dict of names and steps",
            next='for example `return {"name": step}`',
        )
    return steps


def _first_line(module: ModuleType) -> str:
    text = (module.__doc__ or "").strip()
    return text.splitlines()[0] if text else ""
