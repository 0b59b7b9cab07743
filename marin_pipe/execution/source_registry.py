"""Registries: tables that functions of the project are entered into by a decorator or a call, in whatever file.

    MODELS = {}

    def register(function):
        MODELS[function.__name__] = function
        return function

Code that reads `MODELS` reaches every function that is registered in a module which the step's modules import.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from marin_pipe.execution.source_names import FunctionNode, attribute_chain

_FILLING_METHODS = {"add", "append", "extend", "insert", "register", "setdefault", "update"}


class Registration(NamedTuple):
    """A decorator, or a bare call, at top level: something that may enter `defines` into a registry."""

    name: str
    attributes: tuple[str, ...]
    node: ast.stmt
    defines: str | None
    """Name of the decorated function or class; None for a call."""


def registrations(statement: ast.stmt) -> Iterator[Registration]:
    """What a top-level statement may enter into registries."""
    callables: list[ast.expr] = []
    defines: str | None = None
    if isinstance(statement, FunctionNode | ast.ClassDef):
        defines = statement.name
        callables = [node.func if isinstance(node, ast.Call) else node for node in statement.decorator_list]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        callables = [statement.value.func]
    for node in callables:
        # `register("name")(function)`
        base, attributes, _ = attribute_chain(node.func if isinstance(node, ast.Call) else node)
        if isinstance(base, ast.Name):
            yield Registration(base.id, attributes, statement, defines)


def may_be_filled(source: bytes, name: str) -> bool:
    """Whether indented code of a file seems to put something into `name`: a quick look before its tree is walked."""
    pattern = rf"^[ \t]+{re.escape(name)}\s*(\[|\.({'|'.join(sorted(_FILLING_METHODS))})\b)"
    return re.search(pattern.encode(), source, re.MULTILINE) is not None


def registrars(functions: Iterable[ast.AST], name: str) -> Iterator[str]:
    """Names of those functions that put into the global `name` something they are given.

    A cache is no registry: what it holds was computed. So the parameter itself must be entered, or be returned, as a
    decorator does.
    """
    for function in functions:
        if isinstance(function, FunctionNode) and any(_registers(inner, name) for inner in _with_inner(function)):
            yield function.name


def _with_inner(function: ast.AST) -> Iterator[FunctionNode]:
    return (node for node in ast.walk(function) if isinstance(node, FunctionNode))


def _registers(function: FunctionNode, name: str) -> bool:
    given = {arg.arg for arg in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]}
    filled = False
    returned = False
    for node in ast.walk(function):
        if isinstance(node, ast.Return):
            returned |= isinstance(node.value, ast.Name) and node.value.id in given
        for value in _put_into(node, name):
            filled = True
            if isinstance(value, ast.Name) and value.id in given:
                return True
    return filled and returned


def _put_into(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """The values that a statement or call puts into `name`."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name:
                yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING_METHODS:
        base = node.func.value
        # `TABLE.setdefault(key, []).append(function)`, `TABLE[key].append(function)`
        while isinstance(base, ast.Call | ast.Attribute | ast.Subscript):
            base = base.func if isinstance(base, ast.Call) else base.value
        if isinstance(base, ast.Name) and base.id == name:
            yield from node.args
