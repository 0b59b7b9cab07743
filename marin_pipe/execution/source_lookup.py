"""What a name means at the top level of a module, followed through imports, re-exports and packages."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from marin_pipe.execution.source_file import SourceFile, load_file
from marin_pipe.execution.source_find import Finder, Module
from marin_pipe.execution.source_names import Import


@dataclass(frozen=True)
class Definition:
    module: Module
    name: str


@dataclass(frozen=True)
class Whole:
    """A module used as a value: everything in it counts."""

    module: Module


@dataclass(frozen=True)
class Outside:
    """Code that is not first-party, by its dotted name."""

    name: str


Target = Definition | Whole | Outside


class _Lookup(NamedTuple):
    """A name still to be looked up at the top level of a module."""

    module: Module
    name: str
    rest: tuple[str, ...]
    own: bool


class Resolver:
    """Looks names up, each module once. `files` holds every file that was read on the way."""

    def __init__(self) -> None:
        self.finder = Finder()
        self.modules: dict[str, Module] = {}
        self.files: dict[str, SourceFile] = {}
        self.glanced: dict[str, SourceFile] = {}
        """Files that were only searched for what they do to others, while `searching`."""
        self.searching = False
        self._known: dict[tuple[Module, str, tuple[str, ...], bool, bool], list[Target]] = {}

    def home(self, root: Any) -> Module | None:
        """The module that a function or class was defined in; None if it has no Python source."""
        name = root.__module__
        loaded = sys.modules.get(name)
        path = getattr(loaded, "__file__", None) or getattr(getattr(root, "__code__", None), "co_filename", None)
        if path is None or not path.endswith(".py") or not os.path.exists(path):
            return None
        path = os.path.abspath(path)
        spec = getattr(loaded, "__spec__", None)
        directories = tuple(getattr(loaded, "__path__", ())) or None
        package = getattr(loaded, "__package__", None) or name.rpartition(".")[0]
        if name in ("__main__", "__mp_main__"):
            package = spec.parent if spec is not None else ""
            name = os.path.splitext(os.path.basename(path))[0]
        return self.modules.setdefault(path, Module(name, package, path, directories))

    def file(self, module: Module) -> SourceFile:
        assert module.path is not None
        known = self.files.get(module.path)
        if known is not None:
            return known
        known = self.glanced.get(module.path) or load_file(module.path)
        (self.glanced if self.searching else self.files)[module.path] = known
        return known

    @contextmanager
    def search(self) -> Iterator[None]:
        """Within, files are read that do not count as read unless they turn out to matter."""
        self.searching = True
        try:
            yield
        finally:
            self.searching = False

    def find(self, name: str) -> Module | None:
        """One object per file, so that a script and the module of the same file are one."""
        module = self.finder.find(name)
        return module if module is None or module.path is None else self.modules.setdefault(module.path, module)

    def imported_modules(self) -> list[Module]:
        """The modules read so far and all first-party modules that they import when they are imported themselves."""
        found = {path: self.modules[path] for path in self.files}
        waiting = list(found.values())
        while waiting:
            module = waiting.pop()
            for name, level in sorted(self.file(module).loads):
                parts = absolute_name(module, name, level).split(".")
                for end in range(1, len(parts) + 1):
                    inner = self.find(".".join(parts[:end]))
                    if inner is None:
                        break
                    if inner.path is not None and inner.path not in found:
                        found[inner.path] = inner
                        waiting.append(inner)
        return list(found.values())

    def look_up(self, module: Module, name: str, attributes: tuple[str, ...], *, own: bool = False) -> list[Target]:
        """What `name.attributes...` means at the top level of `module`; empty if nothing there has that name.

        Args:
            own: whether code of the module itself asks, for which the module's `__getattr__` does not count.
        """
        key = (module, name, attributes, own, self.searching)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._settle([_Lookup(module, name, attributes, own)])
        return known

    def look_up_import(self, module: Module, origin: Import, attributes: tuple[str, ...]) -> list[Target]:
        """What `attributes` of a name mean that `module` imports from `origin`."""
        return self._settle(self._enter(module, origin, attributes))

    def _settle(self, waiting: list["Target | _Lookup"]) -> list[Target]:
        found: list[Target] = []
        seen: set[_Lookup] = set()
        while waiting:
            step = waiting.pop()
            if not isinstance(step, _Lookup):
                found.append(step)
            elif step not in seen:
                seen.add(step)
                waiting += self._expand(step)
        return found

    def _expand(self, step: "_Lookup") -> list["Target | _Lookup"]:
        """One step of `look_up`: through a file's own statements and imports, then stars, submodules, `__getattr__`."""
        module, name, rest, own = step
        file = self.file(module)
        out: list[Target | _Lookup] = []
        if name in file.statements:
            out.append(Definition(module, name))
        for origin in file.imports.get(name, ()):
            out += self._enter(module, origin, rest)
        if file.binds(name) or name in file.imports:
            return out
        for star in file.stars:
            source = self.find(absolute_name(module, star.module, star.level))
            if source is not None and source.path is not None and self.file(source).exports(name):
                out.append(_Lookup(source, name, rest, own))
        if module.directories is not None and (inner := self.find(f"{module.package}.{name}")) is not None:
            out.append(self._walk(inner, inner.name, rest))
        if not out and not own and file.binds("__getattr__"):
            out.append(Definition(module, "__getattr__"))
        return out

    def _enter(self, module: Module, origin: Import, rest: tuple[str, ...]) -> list["Target | _Lookup"]:
        """Through an import of `module` to what it names."""
        name = absolute_name(module, origin.module, origin.level)
        source = self.find(name)
        if origin.attribute is not None:
            rest = (origin.attribute, *rest)
            if source is not None and source is module and module.directories is not None:
                # `from . import part` in a package: the submodule.
                name, rest = f"{name}.{origin.attribute}", rest[1:]
                source = self.find(name)
        return [self._walk(source, name, rest)]

    def _walk(self, module: Module | None, name: str, attributes: tuple[str, ...]) -> "Target | _Lookup":
        """What `attributes` mean from the module called `name` on."""
        while module is not None:
            if module.path is not None:
                return _Lookup(module, attributes[0], attributes[1:], False) if attributes else Whole(module)
            if not attributes:
                break
            name, attributes = f"{name}.{attributes[0]}", attributes[1:]
            module = self.find(name)
        return Outside(".".join((name, *attributes)))


def absolute_name(module: Module, name: str, level: int) -> str:
    """Absolute form of a module's name as `module` imports it with `level` leading dots."""
    if not level:
        return name
    package = module.package.split(".")
    base = package[: len(package) - (level - 1)]
    return ".".join((*base, name) if name else base)
