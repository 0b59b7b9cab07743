"""`experiment(build)`: the command line of an experiment file."""

import os
import sys
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any

from marin_pipe.cli.app import Script, dispatch, program_of_this_process
from marin_pipe.cli.config import config_class, default_config
from marin_pipe.cli.failures import guarded
from marin_pipe.cli.fields import NO_FIELDS, fields_of
from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.graph import Graph, build_graph
from marin_pipe.execution.handle import Step
from marin_pipe.execution.layout import name_problem


def experiment(build: Callable[..., Mapping[str, Step[Any]]]) -> None:
    """Run the command that this script's arguments ask for (by default `run`) and exit with its code.

    Args:
        build: takes a frozen dataclass with defaults for all fields (or nothing) and returns a dict of names and steps.
    """
    argv = sys.argv[1:]
    frame = sys._getframe(1)

    def command() -> int:
        file = _require_main_guard(frame)
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
        return build_graph(build() if wanted is None else build(config))

    return Script(
        name=name,
        description=_first_line(sys.modules["__main__"]),
        build=graph,
        config_class=wanted,
        default=default,
        fields=fields_of(wanted, default=default) if wanted is not None else NO_FIELDS,
    )


def _first_line(module: ModuleType) -> str:
    text = (module.__doc__ or "").strip()
    return text.splitlines()[0] if text else ""


def _require_main_guard(frame: FrameType | None) -> str:
    """The script's file. ConfigurationError if importing it would start the experiment: workers import the script."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    file = frame.f_code.co_filename if frame is not None else ""
    if frame is None or not os.path.isfile(file):
        raise ConfigurationError(
            "experiment() was called outside a script",
            why="its command line is that of a Python file, which workers import too",
            next="put the steps in a .py file, or call marin_pipe.run(steps) here",
        )
    if frame.f_globals.get("__name__") != "__main__" or not _is_guarded(file, frame.f_lineno):
        raise ConfigurationError(
            f"{os.path.basename(file)}, line {frame.f_lineno}: experiment() is called when the file is imported",
            why="worker processes import the script to find its steps, and would start the experiment again",
            next='move the call under `if __name__ == "__main__":`',
        )
    return file


def _is_guarded(file: str, line: int) -> bool:
    """Whether `line` of the script stands in the body of an `if __name__ == "__main__":`."""
    import ast

    with open(file, encoding="utf-8") as source:
        tree = ast.parse(source.read(), file)
    guards = {'__name__ == "__main__"', '"__main__" == __name__', "__name__ == '__main__'", "'__main__' == __name__"}
    return any(
        isinstance(statement, ast.If)
        and ast.unparse(statement.test) in guards
        and statement.body[0].lineno <= line <= (statement.body[-1].end_lineno or line)
        for statement in tree.body
    )
