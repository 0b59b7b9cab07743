"""Where a module's source lies, found without importing anything, and whether it belongs to the project.

First-party is what a researcher edits: not the standard library, not installed packages, not the engine itself.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from types import ModuleType

# The engine's own code is versioned by its records' format, not by every step's source.
_ENGINE = ("marin_pipe.execution", "marin_pipe.cli", "marin_storage")
# These do the work of a step, also when they are installed as packages.
_LIBRARY = ("marin_pipe.steps", "marin_corpus", "marin_trainer")

_LIBRARY_TOPS = {name.partition(".")[0] for name in _LIBRARY}

_PREFIXES = (sys.prefix, sys.base_prefix, sys.exec_prefix)
_INSTALLED = tuple(
    {os.path.dirname(os.path.abspath(os.__file__)) + os.sep}
    | {os.path.join(os.path.abspath(prefix), lib) + os.sep for prefix in _PREFIXES for lib in ("lib", "lib64", "Lib")}
)


@dataclass(frozen=True, eq=False)
class Module:
    """A module that is first-party or can lead to one."""

    name: str
    """As shown: a script is called after its file, however it was started."""
    package: str
    """What its relative imports start from."""
    path: str | None
    """Absolute path of its source; None for a package without `__init__.py` and for code that is not first-party."""
    directories: tuple[str, ...] | None
    """Where its submodules lie; None for a plain module."""


def is_first_party(name: str, path: str) -> bool:
    """Whether the source file `path` of module `name` belongs to the project."""
    if _within(name, _LIBRARY):
        return True
    return name != "marin_pipe" and not _within(name, _ENGINE) and not _is_installed(path)


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


@cache
def _is_installed(path: str) -> bool:
    parts = path.split(os.sep)
    return (path + os.sep).startswith(_INSTALLED) or "site-packages" in parts or "dist-packages" in parts


class Finder:
    """Finds modules by name, each once."""

    def __init__(self) -> None:
        self._found: dict[str, Module | None] = {}

    def find(self, name: str) -> Module | None:
        """The module, or None if it is neither first-party nor a package that may hold first-party modules."""
        module: Module | None = None
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            prefix = ".".join(parts[:end])
            if prefix not in self._found:
                self._found[prefix] = self._look_up(prefix, module)
            module = self._found[prefix]
            if module is None:
                return None
        return module

    def _look_up(self, name: str, parent: Module | None) -> Module | None:
        if parent is not None and parent.directories is None:
            return None
        path, directories = _loaded(name) or _search(name, parent) or (None, None)
        package = name if directories is not None else name.rpartition(".")[0]
        if path is not None and is_first_party(name, path):
            return Module(name, package, path, directories)
        if directories is None or (
            name.partition(".")[0] not in _LIBRARY_TOPS and all(map(_is_installed, directories))
        ):
            # Nothing within an installed package is first-party, so it is not searched.
            return None
        return Module(name, package, None, directories)


Place = tuple[str | None, tuple[str, ...] | None]


def _loaded(name: str) -> Place | None:
    module = sys.modules.get(name)
    if not isinstance(module, ModuleType):
        return None
    path = module.__dict__.get("__file__")
    directories = module.__dict__.get("__path__")
    if path is None and directories is None:
        return None
    if path is not None and not os.path.exists(path):
        return None
    return _source(path), None if directories is None else tuple(map(os.path.abspath, directories))


def _search(name: str, parent: Module | None) -> Place | None:
    """As Python's path finder does, but reading directories anew: its cache misses files of the same clock tick."""
    last = name.rpartition(".")[2]
    namespace: list[str] = []
    for entry in sys.path if parent is None else parent.directories or ():
        base = os.path.join(os.path.abspath(entry), last)
        if os.path.isfile(os.path.join(base, "__init__.py")):
            return os.path.join(base, "__init__.py"), (base,)
        if os.path.isfile(base + ".py"):
            return base + ".py", None
        if os.path.isdir(base):
            namespace.append(base)
    if parent is None:
        for place in _ask_hooks(name):
            return place
    return (None, tuple(namespace)) if namespace else None


def _ask_hooks(name: str) -> Iterator[Place]:
    """Import hooks, as editable installs place them."""
    for finder in sys.meta_path:
        if finder in (BuiltinImporter, FrozenImporter, PathFinder) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(name, None)
        if spec is not None:
            places = spec.submodule_search_locations
            yield _source(spec.origin), None if places is None else tuple(map(os.path.abspath, places))


def _source(path: str | None) -> str | None:
    return os.path.abspath(path) if path is not None and path.endswith(".py") else None
