"""Functions and classes that arguments name. A key holds their names without their modules, so that code can move;
whoever serves an output therefore has to know that one name stood for one thing.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.identity import foreign_package

Named = Callable[..., Any]


def module_of(named: Named) -> str:
    """The module of a function or class as records keep it: a script is called after its file."""
    if named.__module__ not in ("__main__", "__mp_main__"):
        return named.__module__
    file = getattr(sys.modules.get(named.__module__), "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else "__main__"


def first_party_modules(functions: Iterable[Named]) -> dict[str, str]:
    """Name -> module of those whose name alone is in the key: of an installed one, the package is there too."""
    return {f.__qualname__: module_of(f) for f in functions if foreign_package(f.__module__) is None}


def moved(recorded: Mapping[str, str], functions: Iterable[Named]) -> list[tuple[str, str, str]]:
    """Name, recorded module and present module of everything that lies elsewhere than it did."""
    if not recorded:
        return []
    present = first_party_modules(functions)
    return [
        (name, recorded[name], module)
        for name, module in present.items()
        if name in recorded and recorded[name] != module
    ]


class Namesakes:
    """Refuses two things of one name in one graph."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str | None], Named] = {}
        self._checked: set[int] = set()

    def check(self, step: str, functions: Iterable[Named]) -> None:
        """GraphError if a function or class that the arguments of `step` name shares its name with an earlier one."""
        for function in functions:
            if id(function) in self._checked:
                continue
            self._checked.add(id(function))
            name = (function.__qualname__, foreign_package(function.__module__))
            known = self._by_name.setdefault(name, function)
            if known is not function and _place(known) != _place(function):
                raise GraphError(
                    f"step {step}: an argument names {module_of(function)}.{function.__qualname__}, another step of "
                    f"this graph {module_of(known)}.{known.__qualname__}",
                    why=f"both are {function.__qualname__!r} in the keys, so their outputs would be taken for one "
                    "another",
                    next="rename one of the two",
                )


def _place(named: Named) -> object:
    """Equal for one thing that was imported twice, as a script and as a module, or again after an edit."""
    if "<locals>" in named.__qualname__:
        return named
    return getattr(sys.modules.get(named.__module__), "__file__", None) or named.__module__
