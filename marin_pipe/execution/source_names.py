"""The names that a piece of code takes from outside itself, by Python's scoping rules. Everything is iterative."""

import ast
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Import(NamedTuple):
    """Where an import statement takes a name from. `attribute` is None for a module; `level` counts leading dots."""

    module: str
    level: int
    attribute: str | None


class Reference(NamedTuple):
    """A use of `name.attributes...` that is not local to the code.

    `imported` is set for a name bound by an import inside the code. `optional` names may not exist: those that a class
    body binds itself, where a global of that name can still be meant. A `hint` stands in the annotation of a parameter
    or a field.
    """

    name: str
    attributes: tuple[str, ...]
    node: ast.expr
    """The call if it is called, else the name with its attributes."""
    imported: Import | None = None
    optional: bool = False
    hint: bool = False


class Names(NamedTuple):
    """What a piece of code refers to outside itself, and all attributes that it reads of anything."""

    references: list[Reference]
    attributes: frozenset[str]


@dataclass(slots=True, eq=False)
class _Scope:
    kind: str
    """module, class, function or comprehension."""
    parent: "_Scope | None"
    bound: set[str] = field(default_factory=set)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    declared_global: set[str] = field(default_factory=set)
    declared_nonlocal: set[str] = field(default_factory=set)
    uses: list[Reference] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    children: list[tuple["_Scope", list[ast.AST]]] = field(default_factory=list)


def names_in(nodes: Iterable[ast.AST], *, class_names: frozenset[str] = frozenset()) -> Names:
    """What `nodes` refer to outside themselves.

    Args:
        nodes: statements or expressions at the top level of a module, or of a class.
        class_names: the names bound in the class body that the nodes stand in; empty at module level.
    """
    top = _Scope("class" if class_names else "module", None, bound=set(class_names))
    scopes: list[_Scope] = []
    waiting: list[tuple[_Scope, list[ast.AST]]] = [(top, list(nodes))]
    while waiting:
        scope, members = waiting.pop()
        _visit(scope, members)
        scopes.append(scope)
        waiting.extend(scope.children)
    # Only now is known what every scope binds: a closure sees names that are bound further down.
    return Names(
        references=[found for scope in scopes for use in scope.uses for found in _resolve(scope, use)],
        attributes=frozenset().union(*(scope.attributes for scope in scopes)),
    )


def import_bindings(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Import]]:
    """Pairs of bound name and where it comes from; `("*", ...)` for a star import."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if alias.asname:
                yield alias.asname, Import(alias.name, 0, None)
            else:
                top = alias.name.partition(".")[0]
                yield top, Import(top, 0, None)
    elif statement.module != "__future__":
        for alias in statement.names:
            yield alias.asname or alias.name, Import(statement.module or "", statement.level, alias.name)


def imported_modules(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, int]]:
    """Modules that a statement may import, as name and number of leading dots: `from a import b` may import `a.b`."""
    if isinstance(statement, ast.Import):
        yield from ((alias.name, 0) for alias in statement.names)
    else:
        module = statement.module or ""
        yield module, statement.level
        yield from ((f"{module}.{alias.name}".lstrip("."), statement.level) for alias in statement.names)


def imported_by_text(node: ast.AST) -> str | None:
    """The module that `importlib.import_module("package.module")` imports."""
    if not isinstance(node, ast.Call) or len(node.args) != 1:
        return None
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    name = getattr(node.args[0], "value", None)
    return name if called in ("import_module", "__import__") and isinstance(name, str) and name[:1] != "." else None


def attribute_chain(node: ast.expr) -> tuple[ast.expr, tuple[str, ...], list[ast.expr]]:
    """`a.b.c` as (`a`, ("b", "c"), []). `getattr(a, "b", x)` counts as `a.b`, with `x` in the last item."""
    attributes: list[str] = []
    defaults: list[ast.expr] = []
    while True:
        if isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        elif (name := _constant_getattr(node)) is not None:
            assert isinstance(node, ast.Call)
            attributes.append(name)
            defaults += node.args[2:]
            node = node.args[0]
        else:
            return node, tuple(reversed(attributes)), defaults


def _constant_getattr(node: ast.expr) -> str | None:
    """The attribute that `getattr(x, "attribute")` reads."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"):
        return None
    name = node.args[1] if len(node.args) in (2, 3) else None
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None


def _resolve(scope: _Scope, use: Reference) -> Iterator[Reference]:
    current: _Scope | None = scope
    name = use.name
    while current is not None and current.kind != "module":
        if current.kind == "class":
            # A class body looks in itself and then outside; functions within never see its names.
            if name in current.bound:
                if current is scope:
                    for origin in current.imports.get(name, ()):
                        yield use._replace(imported=origin)
                use = use._replace(optional=True)
        elif name in current.declared_global:
            break
        elif name in current.bound and name not in current.declared_nonlocal:
            for origin in current.imports.get(name, ()):
                yield use._replace(imported=origin)
            return
        current = current.parent
    yield use


def _visit(scope: _Scope, members: list[ast.AST]) -> None:
    stack = members[::-1]
    while stack:
        node = stack.pop()
        if isinstance(node, FunctionNode):
            scope.bound.add(node.name)
            stack += node.decorator_list
            _open_function(scope, stack, node.args, list(node.body))
        elif isinstance(node, ast.Lambda):
            _open_function(scope, stack, node.args, [node.body])
        elif isinstance(node, ast.ClassDef):
            scope.bound.add(node.name)
            stack += [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
            scope.children.append((_Scope("class", scope), list(node.body)))
        elif isinstance(node, _Comprehension):
            _open_comprehension(scope, stack, node)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                scope.uses.append(Reference(node.id, (), node))
            else:
                scope.bound.add(node.id)
        elif isinstance(node, ast.Attribute):
            _use(scope, stack, node, node)
        elif isinstance(node, ast.Call):
            chain = node.func if _constant_getattr(node) is None else node
            _use(scope, stack, chain, node)
            if chain is not node:
                stack += [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.NamedExpr):
            owner = scope
            while owner.kind == "comprehension" and owner.parent is not None:
                owner = owner.parent
            owner.bound.add(node.target.id)
            stack.append(node.value)
        elif isinstance(node, ast.AnnAssign):
            if scope.kind == "class":
                scope.uses += _hints(node.annotation)
            stack += [part for part in (node.target, node.value) if part is not None]
        elif isinstance(node, ast.Global):
            scope.declared_global.update(node.names)
            scope.uses += [Reference(name, (), ast.Name(name), optional=True) for name in node.names]
        elif isinstance(node, ast.Nonlocal):
            scope.declared_nonlocal.update(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for name, origin in import_bindings(node):
                scope.bound.add(name)
                scope.imports.setdefault(name, []).append(origin)
        else:
            scope.bound.update(captured_names(node))
            stack.extend(ast.iter_child_nodes(node))


def captured_names(node: ast.AST) -> Iterator[str]:
    """Names that a node binds as plain text: `except E as name`, and captures of match patterns."""
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _use(scope: _Scope, stack: list[ast.AST], chain: ast.expr, whole: ast.expr) -> None:
    base, attributes, defaults = attribute_chain(chain)
    scope.attributes.update(attributes)
    stack += defaults
    if isinstance(base, ast.Name):
        scope.uses.append(Reference(base.id, attributes, whole))
    else:
        stack.append(base)


def _open_function(scope: _Scope, stack: list[ast.AST], args: ast.arguments, body: list[ast.AST]) -> None:
    stack += args.defaults
    stack += [default for default in args.kw_defaults if default is not None]
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    for arg in every:
        if arg is not None and arg.annotation is not None:
            scope.uses += _hints(arg.annotation)
    inner = _Scope("function", scope, bound={arg.arg for arg in every if arg is not None})
    scope.children.append((inner, body))


def _hints(annotation: ast.expr) -> Iterator[Reference]:
    """The names in an annotation, also if it is written as text."""
    waiting: list[ast.AST] = [annotation]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute):
            base, attributes, _ = attribute_chain(node)
            if isinstance(base, ast.Name):
                yield Reference(base.id, attributes, node, hint=True)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError):  # text that is no type, as in Literal["a b"]
                waiting.append(ast.parse(node.value, mode="eval").body)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _open_comprehension(scope: _Scope, stack: list[ast.AST], node: _Comprehension) -> None:
    first, *rest = node.generators
    stack.append(first.iter)  # evaluated outside
    inner: list[ast.AST] = [first.target, *first.ifs]
    for generator in rest:
        inner += [generator.target, generator.iter, *generator.ifs]
    inner += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    scope.children.append((_Scope("comprehension", scope), inner))
