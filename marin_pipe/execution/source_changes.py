"""What a piece of code changes outside itself when it runs: globals, containers, attributes of modules and classes."""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from marin_pipe.execution.source_names import FunctionNode, Names, Reference, attribute_chain

_FILLING = {"add", "append", "appendleft", "extend", "insert", "register", "setdefault", "update"}
_EMPTYING = {"clear", "discard", "pop", "popitem", "remove"}
METHODS = _FILLING | _EMPTYING
"""Methods that change what they are called on."""
_BY_NAME = {"delattr", "setattr"}


class _Change(NamedTuple):
    expression: ast.expr
    """What is changed: an attribute, a container, or the call of a method that changes its object."""
    attributes: tuple[str, ...] = ()
    """What `setattr` adds to it."""
    values: tuple[ast.expr, ...] | None = None
    """What is put into a container; None for an attribute."""


def changes(nodes: Iterable[ast.AST], names: Names) -> Iterator[Reference]:
    """The references in code through which it changes something of others, with the names they belong to.

    A function that fills a cache changes nothing: what it puts there it has computed from what it was given.
    """
    marked: dict[int, tuple[str, ...]] = {}
    for node in nodes:
        for change, function in _with_function(node):
            root = _root(change.expression)
            if root is not None and (change.values is None or function is None or _keeps(function, change.values)):
                marked[id(root)] = change.attributes
        for inner in ast.walk(node):
            if isinstance(inner, ast.Global):
                yield from (Reference(name, (), ast.Name(name)) for name in inner.names)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield Reference(node.target.id, (), node.target)
    for reference in names.references:
        if id(reference.node) in marked:
            yield reference._replace(attributes=reference.attributes + marked[id(reference.node)])


def collects(method: ast.AST) -> bool:
    """Whether a method puts something into a container of its class: `cls.registry[name] = cls`."""
    if not isinstance(method, FunctionNode) or not (arguments := [*method.args.posonlyargs, *method.args.args]):
        return False
    for change, _ in _with_function(method):
        root = _root(change.expression)
        if root is None or change.values is None:
            continue
        base, _, _ = attribute_chain(_chain(root))
        if isinstance(base, ast.Name) and base.id == arguments[0].arg:
            return True
    return False


def _with_function(node: ast.AST) -> Iterator[tuple[_Change, FunctionNode | None]]:
    """Every change in code, with the innermost function it stands in."""
    waiting: list[tuple[ast.AST, FunctionNode | None]] = [(node, None)]
    while waiting:
        member, function = waiting.pop()
        yield from ((change, function) for change in _direct(member))
        inside = member if isinstance(member, FunctionNode) else function
        waiting += ((child, inside) for child in ast.iter_child_nodes(member))


def _direct(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete | ast.For | ast.withitem):
        values = (value,) if isinstance(value := getattr(node, "value", None), ast.expr) else ()
        for target in _targets(node):
            if isinstance(target, ast.Subscript):
                yield _Change(target.value, values=values)
            elif isinstance(target, ast.Attribute):
                yield _Change(target)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        yield _Change(node, values=(*node.args, *(keyword.value for keyword in node.keywords)))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BY_NAME and node.args:
        name = getattr(node.args[1], "value", None) if len(node.args) > 1 else None
        yield _Change(node.args[0], (name,) if isinstance(name, str) else ())


def _targets(node: ast.AST) -> list[ast.expr]:
    found = list(getattr(node, "targets", ()))
    found += [t for name in ("target", "optional_vars") if (t := getattr(node, name, None)) is not None]
    for target in found:
        if isinstance(target, ast.Tuple | ast.List):
            found += target.elts
    return found


def _root(node: ast.expr) -> ast.expr | None:
    """The part of an expression that a `Reference` is made of: `a.b` in `a.b[0].c`; the call in `a.b().c`."""
    while True:
        base, _, _ = attribute_chain(_chain(node))
        if isinstance(base, ast.Name):
            return node
        if base is not _chain(node):
            node = base
        elif isinstance(base, ast.Subscript | ast.Starred | ast.Await | ast.NamedExpr):
            node = base.value
        elif isinstance(base, ast.Call):
            node = base.func
        else:
            return None


def _chain(node: ast.expr) -> ast.expr:
    """The name with attributes that is called, if it is a call."""
    return node.func if isinstance(node, ast.Call) and attribute_chain(node)[0] is node else node


def _keeps(function: FunctionNode, values: tuple[ast.expr, ...]) -> bool:
    """Whether what a function puts somewhere was given to it or stands in its code, and was not computed."""
    arguments = function.args
    given = {arg.arg for arg in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    given |= {arg.arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None}
    if not given:
        return True
    local = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    for value in values:
        if isinstance(value, ast.Name) and (value.id in given or value.id not in local):
            return True
        if isinstance(value, ast.Attribute | ast.Lambda):
            return True
    # A decorator returns what it was given.
    returned = (n.value for n in ast.walk(function) if isinstance(n, ast.Return))
    return any(isinstance(value, ast.Name) and value.id in given for value in returned)
