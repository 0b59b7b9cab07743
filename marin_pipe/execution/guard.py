"""The main guard: workers import the script that started a launch, which must not start it again."""

import ast
import os
from types import FrameType

from marin_pipe.execution.errors import ConfigurationError

_GUARDS = {ast.unparse(ast.parse(text)) for text in ('__name__ == "__main__"', '"__main__" == __name__')}


def require_main_guard(frame: FrameType | None, *, call: str) -> str:
    """The file of the script whose top level leads to `frame`.

    Raises:
        ConfigurationError: there is no script, or importing it would make the call (named by `call`) again.
    """
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    file = frame.f_code.co_filename if frame is not None else ""
    if frame is None or not os.path.isfile(file):
        raise ConfigurationError(
            f"{call} was called outside a script",
            why="worker processes import the functions of steps from Python files",
            next="put the steps in a .py file and start that",
        )
    if frame.f_globals.get("__name__") != "__main__" or not _is_guarded(file, frame.f_lineno):
        raise ConfigurationError(
            f"{os.path.basename(file)}, line {frame.f_lineno}: {call} is called when the file is imported",
            why="worker processes import the script to find its steps, and would start the launch again",
            next='move the call under `if __name__ == "__main__":`',
        )
    return file


def _is_guarded(file: str, line: int) -> bool:
    """Whether `line` of the script stands in the body of an `if __name__ == "__main__":`."""
    with open(file, encoding="utf-8") as source:
        tree = ast.parse(source.read(), file)
    return any(
        isinstance(statement, ast.If)
        and ast.unparse(statement.test) in _GUARDS
        and statement.body[0].lineno <= line <= (statement.body[-1].end_lineno or line)
        for statement in tree.body
    )
