"""One source file as the tracer sees it: what each top-level name stands for, as statements or as an import.

Files are parsed, never imported, and kept for the life of the process until they change.
"""

import ast
import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from marin_pipe.execution.source_changes import changes
from marin_pipe.execution.source_names import (
    FunctionNode,
    Import,
    Names,
    Reference,
    captured_names,
    import_bindings,
    imported_by_text,
    imported_modules,
    names_in,
)
from marin_pipe.execution.source_registry import Registration, may_be_filled, registrars, registrations
from marin_pipe.execution.source_tree import has_effect, normal_form

# File systems keep times in ticks of up to 2 s (FAT): a file this fresh can change again without a new time.
_FRESH_NS = 2_000_000_000


@dataclass(frozen=True, eq=False)
class Part:
    """A function, a method, the head of a class, or the statements of a constant.

    `qualname` is relative to the module. The head of a class is everything but its methods and inner classes.
    """

    qualname: str
    nodes: tuple[ast.AST, ...]
    class_names: frozenset[str] = frozenset()

    @cached_property
    def form(self) -> str:
        return "\n".join(normal_form(node) for node in self.nodes)

    @cached_property
    def names(self) -> Names:
        return names_in(self.nodes, class_names=self.class_names)

    @cached_property
    def changes(self) -> tuple[Reference, ...]:
        """Through what the part changes something outside itself."""
        return tuple(changes(self.nodes, self.names))


@dataclass(frozen=True)
class Statement:
    """A top-level statement that binds or changes a name, under the conditions it stands in.

    `binds` is False if it only changes what the name holds: `TABLE["a"] = 1`, `TABLE.update(...)`.
    """

    node: ast.stmt
    conditions: tuple[ast.expr, ...]
    binds: bool = True


@dataclass(frozen=True, eq=False)
class DefinedAt:
    """A function or class with what is evaluated to make it."""

    name: str
    node: FunctionNode | ast.ClassDef

    @cached_property
    def decorators(self) -> Part:
        return Part("", tuple(self.node.decorator_list))

    @cached_property
    def bases(self) -> Part:
        return Part("", tuple(self.node.bases) if isinstance(self.node, ast.ClassDef) else ())

    @cached_property
    def metaclass(self) -> Part:
        keywords = self.node.keywords if isinstance(self.node, ast.ClassDef) else []
        return Part("", tuple(keyword.value for keyword in keywords if keyword.arg == "metaclass"))


@dataclass(kw_only=True, eq=False)
class SourceFile:
    """Top-level names of a file. Names bound under `if TYPE_CHECKING` or `if __name__ == "__main__"` are left out."""

    path: str
    source: bytes
    digest: str
    """sha256 of its bytes."""
    statements: dict[str, list[Statement]] = field(default_factory=dict)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)
    loads: set[tuple[str, int]] = field(default_factory=set)
    """Modules that importing the file imports: name, and the number of leading dots."""
    exported: frozenset[str] | None = None
    """`__all__`, if it is written as a literal."""
    registrations: list[Registration] = field(default_factory=list)
    actions: list[Part] = field(default_factory=list)
    """Statements at top level other than definitions and imports, under their conditions: what importing does."""
    problem: str | None = None
    """Why it could not be parsed."""
    _definitions: "list[DefinedAt] | None" = None
    _parts: dict[str, list[Part]] = field(default_factory=dict)
    _registrars: dict[str, list[str]] = field(default_factory=dict)

    def is_class(self, name: str) -> bool:
        return any(isinstance(statement.node, ast.ClassDef) for statement in self.statements.get(name, ()))

    def is_function(self, name: str) -> bool:
        return any(isinstance(statement.node, FunctionNode) for statement in self.statements.get(name, ()))

    def is_code(self, name: str) -> bool:
        """Whether calling `name` runs code of this file."""
        return self.is_function(name) or self.is_class(name)

    def binds(self, name: str) -> bool:
        return any(statement.binds for statement in self.statements.get(name, ()))

    def holds(self, name: str, node: ast.stmt) -> bool:
        """Whether `node` is among the statements of `name`."""
        return any(statement.node is node for statement in self.statements.get(name, ()))

    def exports(self, name: str) -> bool:
        """Whether `from file import *` may bring `name`."""
        if "__all__" in self.statements:
            return self.exported is None or name in self.exported
        return not name.startswith("_")

    def parts(self, name: str) -> list[Part]:
        """Everything at top level that makes `name` what it is."""
        known = self._parts.get(name)
        if known is None:
            known = self._parts[name] = list(_split(name, self.statements.get(name, [])))
        return known

    def definitions(self) -> "list[DefinedAt]":
        """The functions and classes at top level that are decorated or have bases, and all other classes."""
        if self._definitions is None:
            nodes = ((name, s.node) for name, statements in self.statements.items() for s in statements)
            self._definitions = [
                DefinedAt(name, node)
                for name, node in nodes
                if isinstance(node, ast.ClassDef) or (isinstance(node, FunctionNode) and node.decorator_list)
            ]
        return self._definitions

    def registrars(self, name: str) -> list[str]:
        """The functions of this file through which others enter something into its container `name`."""
        known = self._registrars.get(name)
        if known is None:
            nodes = [statement.node for every in self.statements.values() for statement in every]
            found = registrars(nodes, name) if may_be_filled(self.source, name) else ()
            known = self._registrars[name] = sorted(set(found))
        return known

    def name_at(self, line: int) -> str | None:
        """A top-level name whose statement covers `line`: finds lambdas."""
        for name, statements in self.statements.items():
            for statement in statements:
                if statement.node.lineno <= line <= (statement.node.end_lineno or 0):
                    return name
        return None


@dataclass(frozen=True)
class _Cached:
    stamp: tuple[int, ...]
    fresh: bool
    file: SourceFile


_cache: dict[str, _Cached] = {}


def load_file(path: str) -> SourceFile:
    """The parsed file; the same object for as long as its bytes do not change. OSError if it cannot be read."""
    status = os.stat(path)
    stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    cached = _cache.get(path)
    if cached is not None and cached.stamp == stamp and not cached.fresh:
        return cached.file
    fresh = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < _FRESH_NS
    with open(path, "rb") as stream:
        data = stream.read()
    digest = hashlib.sha256(data).hexdigest()
    file = cached.file if cached is not None and cached.file.digest == digest else _parse(path, data, digest)
    _cache[path] = _Cached(stamp, fresh, file)
    return file


def _parse(path: str, data: bytes, digest: str) -> SourceFile:
    file = SourceFile(path=path, source=data, digest=digest)
    try:
        with warnings.catch_warnings():
            # Python itself reports doubtful syntax when it imports the file.
            warnings.simplefilter("ignore")
            tree = ast.parse(data, filename=path)
    except (SyntaxError, ValueError) as error:
        file.problem = str(error)
        return file
    _Scan(file).run(tree.body)
    _bind_globals(file)
    return file


def _bind_globals(file: SourceFile) -> None:
    """Names that only functions bind, which declare them global: there they are defined."""
    if b"global" not in file.source:
        return
    functions = [s for every in list(file.statements.values()) for s in every if isinstance(s.node, FunctionNode)]
    for function in functions:
        for node in ast.walk(function.node):
            for name in node.names if isinstance(node, ast.Global) else ():
                known = file.statements.setdefault(name, [])
                if name not in file.imports and all(isinstance(s.node, FunctionNode) for s in known):
                    known.append(function)


class _Scan:
    """Fills a `SourceFile` from its statements."""

    def __init__(self, file: SourceFile):
        self.file = file

    def run(self, body: list[ast.stmt]) -> None:
        waiting: list[tuple[ast.stmt, tuple[ast.expr, ...]]] = [(node, ()) for node in reversed(body)]
        while waiting:
            node, conditions = waiting.pop()
            if isinstance(node, ast.If):
                self.note(ast.Expr(node.test), conditions, at=node)
                inner = [(branch, conditions + tests) for branch, tests in _branches(node)]
            elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
                assert isinstance(node, ast.Try | ast.TryStar)
                inner = [(member, conditions) for member in [*node.body, *node.orelse, *node.finalbody]]
                for handler in node.handlers:
                    tests = (handler.type,) if handler.type is not None else ()
                    inner += [(member, conditions + tests) for member in handler.body]
            else:
                self.statement(node, conditions)
                continue
            waiting += reversed(inner)

    def statement(self, node: ast.stmt, conditions: tuple[ast.expr, ...]) -> None:
        self.file.registrations += registrations(node)
        if isinstance(node, FunctionNode | ast.ClassDef):
            if has_effect(node):
                self.bind(node.name, node, conditions)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.take_imports(node, conditions)
        elif has_effect(node):
            self.note(node, conditions, at=node)

    def take_imports(self, node: ast.Import | ast.ImportFrom, conditions: tuple[ast.expr, ...]) -> None:
        self.file.loads |= set(imported_modules(node))
        for name, origin in import_bindings(node):
            if name == "*":
                self.file.stars.append(origin)
                continue
            self.file.imports.setdefault(name, []).append(origin)
            if conditions:
                # Which of two imports is taken depends on the condition, so it counts as a statement, too.
                self.bind(name, node, conditions, binds=False)

    def note(self, node: ast.stmt, conditions: tuple[ast.expr, ...], *, at: ast.stmt) -> None:
        """A statement that is no definition: whatever it binds or changes."""
        ast.copy_location(node, at)
        self.file.actions.append(Part("", (*conditions, node)))
        bound, changed = self.effects(node, conditions)
        for name in bound:
            self.bind(name, node, conditions)
        for name in changed - bound:
            self.bind(name, node, conditions, binds=False)
        if "__all__" in bound | changed:
            self.export(node)

    def effects(self, node: ast.stmt, conditions: tuple[ast.expr, ...]) -> tuple[set[str], set[str]]:
        bound: set[str] = set()
        changed: set[str] = set()
        waiting: list[ast.AST] = [node]
        while waiting:
            member = waiting.pop()
            if isinstance(member, ast.Name):
                if not isinstance(member.ctx, ast.Load):
                    bound.add(member.id)
            elif isinstance(member, ast.Attribute | ast.Subscript):
                if not isinstance(member.ctx, ast.Load):
                    changed.update(_root_name(member))
                waiting.append(member.value)
                if isinstance(member, ast.Subscript):
                    waiting.append(member.slice)
            elif isinstance(member, FunctionNode | ast.ClassDef):
                bound.add(member.name)
            elif isinstance(member, ast.Import | ast.ImportFrom):
                self.take_imports(member, conditions)
            elif (name := imported_by_text(member)) is not None:
                self.file.loads.add((name, 0))
            elif not isinstance(member, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                if isinstance(member, ast.Expr) and isinstance(member.value, ast.Call):
                    changed.update(self.changed_by(member.value))
                bound.update(captured_names(member))
                waiting.extend(ast.iter_child_nodes(member))
        return bound, changed

    def changed_by(self, call: ast.Call) -> Iterator[str]:
        """A bare call at top level changes its receiver, and constants and classes that are given to it."""
        if isinstance(call.func, ast.Attribute):
            yield from _root_name(call.func)
        for argument in call.args:
            if isinstance(argument, ast.Name) and not self.file.is_function(argument.id):
                yield argument.id

    def bind(self, name: str, node: ast.stmt, conditions: tuple[ast.expr, ...], *, binds: bool = True) -> None:
        self.file.statements.setdefault(name, []).append(Statement(node, conditions, binds))

    def export(self, node: ast.stmt) -> None:
        value = getattr(node, "value", None)
        first = len(self.file.statements["__all__"]) == 1
        try:
            names = frozenset(ast.literal_eval(value)) if value is not None else None
        except (ValueError, TypeError):
            names = None
        known = frozenset() if first else self.file.exported
        self.file.exported = None if names is None or known is None else known | names


def _branches(node: ast.If) -> Iterator[tuple[ast.stmt, tuple[ast.expr, ...]]]:
    """Statements of an `if` with the condition each adds; without those that only a type checker or a launch sees."""
    test = node.test
    type_only = isinstance(test, ast.Name | ast.Attribute) and "TYPE_CHECKING" in (
        getattr(test, "id", ""),
        getattr(test, "attr", ""),
    )
    if type_only or _is_main_guard(test):
        yield from ((member, ()) for member in node.orelse)
        return
    yield from ((member, (test,)) for member in node.body)
    negated = ast.UnaryOp(ast.Not(), test)
    yield from ((member, (negated,)) for member in node.orelse)


def _is_main_guard(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare):
        return False
    sides = [test.left, *test.comparators]
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides) and any(
        isinstance(side, ast.Constant) and side.value == "__main__" for side in sides
    )


def _root_name(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id


def _split(name: str, statements: list[Statement]) -> Iterator[Part]:
    """One part for the name itself, and one for each method and inner class."""
    nodes: dict[str, list[ast.AST]] = {name: []}
    scopes: dict[str, frozenset[str]] = {name: frozenset()}
    for statement in statements:
        nodes[name] += statement.conditions
        if not isinstance(statement.node, ast.ClassDef):
            nodes[name].append(statement.node)
            continue
        waiting: list[tuple[str, ast.ClassDef, frozenset[str]]] = [(name, statement.node, frozenset())]
        while waiting:
            qualname, cls, outer = waiting.pop()
            inside = frozenset(_class_names(cls))
            rest: list[ast.stmt] = []
            for member in cls.body:
                if isinstance(member, ast.ClassDef):
                    waiting.append((f"{qualname}.{member.name}", member, inside))
                elif isinstance(member, FunctionNode):
                    if has_effect(member):
                        nodes.setdefault(f"{qualname}.{member.name}", []).append(member)
                        scopes[f"{qualname}.{member.name}"] = inside
                else:
                    rest.append(member)
            head = ast.ClassDef(cls.name, cls.bases, cls.keywords, rest, cls.decorator_list)
            nodes.setdefault(qualname, []).append(head)
            scopes[qualname] = outer
    for qualname, members in nodes.items():
        yield Part(qualname, tuple(members), scopes[qualname])


def _class_names(cls: ast.ClassDef) -> Iterator[str]:
    for member in cls.body:
        if isinstance(member, FunctionNode | ast.ClassDef):
            yield member.name
        else:
            yield from (node.id for node in ast.walk(member) if isinstance(node, ast.Name) and _stores(node))


def _stores(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)
