"""Fingerprint of the first-party code that a step's function reaches.

Code is read, never imported. Starting from the function, every name it uses is followed to the statements that define
or change it: functions, whole classes and their bases, constants, defaults, decorators, re-exports, in whatever file of
the project. What cannot be followed is listed. Values are not followed: the class of an argument counts if it is given.
"""

import ast
import builtins
import hashlib
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from marin_pipe.execution.source_file import Part, SourceFile, load_file
from marin_pipe.execution.source_find import Finder, Module
from marin_pipe.execution.source_names import Import, Reference

_FORMAT = "1"
_SHOWN_CHARACTERS = 100

# Uses of these reach code that no name leads to.
_DYNAMIC = {
    "builtins.__import__",
    "builtins.eval",
    "builtins.exec",
    "builtins.getattr",
    "builtins.globals",
    "importlib.import_module",
    "importlib.util.spec_from_file_location",
    "os.popen",
    "os.system",
    "runpy.run_module",
    "runpy.run_path",
    "subprocess.Popen",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.run",
    "sys.modules",
}
_IMPORTERS = {"builtins.__import__", "importlib.import_module"}


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What a step's function reaches."""

    digest: str
    """sha256 in hex. Does not depend on modules' names: code moved unchanged has the same digest."""
    parts: Mapping[str, str]
    """`"package.module.function"` (or constant, class, `Class.method`) -> digest of its normal form."""
    untraced: tuple[str, ...]
    """What could not be followed, as `"package.module.function: getattr(model, name)"`."""
    files: Mapping[str, str]
    """Absolute path of each first-party file that was read -> sha256 of its bytes."""


_known: dict[tuple[object, ...], tuple[Fingerprint, tuple[SourceFile, ...]]] = {}


def fingerprint(functions: Sequence[Callable[..., Any] | type]) -> Fingerprint:
    """Fingerprint of the first-party code that `functions` reach. Kept until one of the files changes.

    Args:
        functions: the step's plain function, and the functions and classes that its arguments hold. They count even if
            they are not first-party.
    """
    roots = tuple(functions)
    known = _known.get(roots)
    if known is not None and all(_unchanged(file) for file in known[1]):
        return known[0]
    trace = _Trace()
    for root in roots:
        trace.start(root)
    trace.follow()
    result = trace.result()
    _known[roots] = (result, tuple(trace.files.values()))
    return result


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs between the parts of two fingerprints, for people: `["changed helpers.clean", "added ..."]`."""
    changed = [f"changed {name}" for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    removed, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    moved: list[str] = []
    for name in list(removed):
        target = next((other for other in added if new[other] == old[name] and _last(other) == _last(name)), None)
        if target is not None:
            moved.append(f"moved {name} to {target}")
            removed.remove(name)
            added.remove(target)
    return changed + moved + [f"added {name}" for name in added] + [f"removed {name}" for name in removed]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _unchanged(file: SourceFile) -> bool:
    return os.path.exists(file.path) and load_file(file.path) is file


@dataclass(frozen=True)
class _Definition:
    module: Module
    name: str


@dataclass(frozen=True)
class _Whole:
    """A module used as a value: everything in it counts."""

    module: Module


@dataclass(frozen=True)
class _Outside:
    """Code that is not first-party, by its dotted name."""

    name: str


_Target = _Definition | _Whole | _Outside


class _Trace:
    """One walk from the roots over everything they reach."""

    def __init__(self) -> None:
        self.finder = Finder()
        self.modules: dict[str, Module] = {}
        self.files: dict[str, SourceFile] = {}
        self.reached: set[tuple[str, str]] = set()
        self.queue: deque[_Definition] = deque()
        # Reached parts, with what each name in them stands for where its text does not tell.
        self.parts: list[tuple[Module, Part, list[tuple[str, _Target]]]] = []
        self.untraced: set[str] = set()

    def start(self, root: Any) -> None:
        module = self.root_module(root)
        qualname = root.__qualname__
        if module is None or module.path is None:
            self.untraced.add(f"{root.__module__}.{qualname}: it has no Python source")
            return
        file = self.file(module)
        name: str | None = qualname.partition(".")[0]
        if name not in file.statements and (code := getattr(root, "__code__", None)) is not None:
            name = file.name_at(code.co_firstlineno)
        if name is None or name not in file.statements:
            self.untraced.add(f"{module.name}.{qualname}: its definition is not at the top level of {module.path}")
            return
        self.reach(_Definition(module, name))

    def root_module(self, root: Any) -> Module | None:
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
        if known is None:
            known = self.files[module.path] = load_file(module.path)
            if known.problem is not None:
                self.untraced.add(f"{module.name}: {module.path} cannot be parsed: {known.problem}")
        return known

    def find(self, name: str) -> Module | None:
        """One object per file, so that a script and the module of the same file are one."""
        module = self.finder.find(name)
        return module if module is None or module.path is None else self.modules.setdefault(module.path, module)

    def reach(self, definition: _Definition) -> None:
        assert definition.module.path is not None
        key = (definition.module.path, definition.name)
        if key not in self.reached:
            self.reached.add(key)
            self.queue.append(definition)

    def follow(self) -> None:
        while self.queue:
            definition = self.queue.popleft()
            for part in self.file(definition.module).parts(definition.name):
                uses: list[tuple[str, _Target]] = []
                for reference in part.references:
                    text = ".".join((reference.name, *reference.attributes))
                    for target in self.targets(definition.module, part, reference):
                        uses.append((text, target))
                        if not self.within(part, target):
                            self.arrive(target)
                self.parts.append((definition.module, part, uses))

    def within(self, part: Part, target: _Target) -> bool:
        """Whether all that defines `target` is in `part` already, as the variable of a loop at top level is."""
        if not isinstance(target, _Definition):
            return False
        return all(statement.node in part.nodes for statement in self.file(target.module).statements[target.name])

    def arrive(self, target: _Target) -> None:
        if isinstance(target, _Definition):
            self.reach(target)
        elif isinstance(target, _Whole) and target.module.path is not None:
            file = self.file(target.module)
            for name in file.statements:
                self.reach(_Definition(target.module, name))
            if target.module.directories is not None:
                for name in file.imports:
                    for inner in self.look_up(target.module, name, ()):
                        if isinstance(inner, _Definition):
                            self.reach(inner)

    def targets(self, module: Module, part: Part, reference: Reference) -> Iterator[_Target]:
        where = f"{module.name}.{part.qualname}"
        if reference.imported is not None:
            found = self.settle(self.enter(module, reference.imported, reference.attributes))
        else:
            found = self.look_up(module, reference.name, reference.attributes, own=True)
        if not found and hasattr(builtins, reference.name):
            found = [_Outside(f"builtins.{reference.name}")]
        if not found and not reference.optional and not reference.name.startswith("__"):
            self.untraced.add(f"{where}: {_shown(reference.node)}")
        for target in found:
            if isinstance(target, _Outside) and target.name in _DYNAMIC:
                whole = self.imported_by_text(target.name, reference.node)
                if whole is None:
                    self.untraced.add(f"{where}: {_shown(reference.node)}")
                    continue
                yield whole
            else:
                yield target

    def imported_by_text(self, function: str, node: ast.expr) -> _Target | None:
        """`import_module("package.module")` names its module."""
        if function not in _IMPORTERS or not isinstance(node, ast.Call) or len(node.args) != 1:
            return None
        name = getattr(node.args[0], "value", None)
        if not isinstance(name, str) or name.startswith("."):
            return None
        module = self.find(name)
        return _Outside(name) if module is None else _Whole(module)

    def look_up(self, module: Module, name: str, attributes: tuple[str, ...], *, own: bool = False) -> list[_Target]:
        """What `name.attributes...` means at the top level of `module`; empty if nothing there has that name.

        Args:
            own: whether code of the module itself asks, for which the module's `__getattr__` does not count.
        """
        return self.settle([_Lookup(module, name, attributes, own)])

    def settle(self, waiting: list["_Target | _Lookup"]) -> list[_Target]:
        """Look up until only targets are left."""
        found: list[_Target] = []
        seen: set[_Lookup] = set()
        while waiting:
            step = waiting.pop()
            if not isinstance(step, _Lookup):
                found.append(step)
            elif step not in seen:
                seen.add(step)
                waiting += self.expand(step)
        return found

    def expand(self, step: "_Lookup") -> list["_Target | _Lookup"]:
        """One step of `look_up`: through a file's own statements and imports, then stars, submodules, `__getattr__`."""
        module, name, rest, own = step
        file = self.file(module)
        out: list[_Target | _Lookup] = []
        if name in file.statements:
            out.append(_Definition(module, name))
        for origin in file.imports.get(name, ()):
            out += self.enter(module, origin, rest)
        if file.binds(name) or name in file.imports:
            return out
        for star in file.stars:
            source = self.find(_absolute(module, star))
            if source is not None and source.path is not None and self.file(source).exports(name):
                out.append(_Lookup(source, name, rest, own))
        if module.directories is not None and (inner := self.find(f"{module.package}.{name}")) is not None:
            out.append(self.walk(inner, inner.name, rest))
        if not out and not own and file.binds("__getattr__"):
            out.append(_Definition(module, "__getattr__"))
        return out

    def enter(self, module: Module, origin: Import, rest: tuple[str, ...]) -> list["_Target | _Lookup"]:
        """Through an import of `module` to what it names."""
        name = _absolute(module, origin)
        source = self.find(name)
        if origin.attribute is not None:
            rest = (origin.attribute, *rest)
            if source is not None and source.path == module.path:
                # `from . import part` in a package: the submodule.
                name, rest = f"{name}.{origin.attribute}", rest[1:]
                source = self.find(name)
        return [self.walk(source, name, rest)]

    def walk(self, module: Module | None, name: str, attributes: tuple[str, ...]) -> "_Target | _Lookup":
        """What `attributes` mean from the module called `name` on."""
        while module is not None:
            if module.path is not None:
                return _Lookup(module, attributes[0], attributes[1:], False) if attributes else _Whole(module)
            if not attributes:
                break
            name, attributes = f"{name}.{attributes[0]}", attributes[1:]
            module = self.find(name)
        return _Outside(".".join((name, *attributes)))

    def result(self) -> Fingerprint:
        owners = Counter(part.qualname for _, part, _ in self.parts)
        contents: list[str] = []
        parts: dict[str, str] = {}
        for module, part, uses in self.parts:
            meanings = sorted({text for use in uses if (text := _meaning(module, use, owners)) is not None})
            digest = _sha256("\n".join((part.form, *meanings)))
            contents.append(f"{part.qualname} {digest}")
            name = f"{module.name}.{part.qualname}"
            parts[name] = digest if name not in parts else _sha256(parts[name] + digest)
        for path, file in self.files.items():
            if file.problem is not None:
                contents.append(file.digest)
                parts[self.modules[path].name] = file.digest
        return Fingerprint(
            digest=_sha256("\n".join((_FORMAT, *sorted(contents)))),
            parts=dict(sorted(parts.items())),
            untraced=tuple(sorted(self.untraced)),
            files={path: file.digest for path, file in sorted(self.files.items())},
        )


class _Lookup(NamedTuple):
    """A name still to be looked up at the top level of a module."""

    module: Module
    name: str
    rest: tuple[str, ...]
    own: bool


def _meaning(module: Module, use: tuple[str, _Target], owners: Counter[str]) -> str | None:
    """What a name stands for, where the text of the code and the other parts do not tell.

    Modules of first-party code are named only if two reached parts share a name: code may move between modules.
    """
    text, target = use
    if isinstance(target, _Outside):
        return None if target.name in (text, f"builtins.{text}") else f"{text} = {target.name}"
    if isinstance(target, _Whole) or target.module.path == module.path:
        return None
    if owners[target.name] > 1:
        return f"{text} = {target.module.name}.{target.name}"
    return None if target.name in text.split(".") else f"{text} = {target.name}"


def _absolute(module: Module, origin: Import) -> str:
    """Absolute name of the module that an import statement in `module` names."""
    if not origin.level:
        return origin.module
    package = module.package.split(".")
    base = package[: len(package) - (origin.level - 1)]
    return ".".join((*base, origin.module) if origin.module else base)


def _shown(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
