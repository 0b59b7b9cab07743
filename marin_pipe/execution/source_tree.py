"""Normal form of a syntax tree: equal for two pieces of code that differ only in comments, docstrings, layout or hints.

It names node types and non-empty fields only, so that fields which a later Python adds do not change it.
"""

import ast

# `ctx` follows from the position; `kind` is the u of u"text"; the rest are type hints and comments.
_IGNORED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores", "type_params", "returns", "simple"}
_BODY_FIELDS = {"body", "orelse", "finalbody"}

_fields_of: dict[type[ast.AST], tuple[str, ...]] = {}


def normal_form(root: ast.AST) -> str:
    """Text of `root` without what has no effect. Iterative: deep expressions cost no Python stack."""
    out: list[str] = []
    stack: list[object] = [_Raw(root)]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is str:
            out.append(item)  # type: ignore[arg-type]
        elif kind is _Raw:
            _open(item.value, out, stack)  # type: ignore[attr-defined]
    return "".join(out)


class _Raw:
    """A value of the tree that waits to be written; plain strings on the stack are finished output."""

    __slots__ = ("value",)

    def __init__(self, value: object):
        self.value = value


def _open(value: object, out: list[str], stack: list[object]) -> None:
    if isinstance(value, ast.Name):
        out.append(f"${value.id} ")
    elif isinstance(value, ast.Constant):
        out.append(_constant(value.value))
    elif isinstance(value, ast.AnnAssign):
        # `x: int = 3` is `x = 3`.
        out.append("Assign(targets:[")
        stack += (")", _Raw(value.value), "]value:", _Raw(value.target))
    elif isinstance(value, ast.AST):
        out.append(f"{type(value).__name__}(")
        stack.append(")")
        if isinstance(value, ast.FunctionDef) and (hint := _dispatched_hint(value)) is not None:
            stack += (_Raw(hint), "dispatched on:")
        for name in reversed(_fields(type(value))):
            content = getattr(value, name, None)
            if name in _BODY_FIELDS and isinstance(content, list):
                content = _class_body(value) if isinstance(value, ast.ClassDef) else content
                content = [statement for statement in content if has_effect(statement)]
            elif name == "values" and isinstance(value, ast.JoinedStr):
                content = _merge_text(value.values)
            if content is None or content == []:
                continue
            stack += (_Raw(content), f"{name}:")
    elif isinstance(value, list):
        out.append("[")
        stack.append("]")
        stack.extend(_Raw(member) for member in reversed(value))
    else:
        out.append(f"{value!r} ")


def _dispatched_hint(node: ast.FunctionDef) -> ast.expr | None:
    """The hint that a bare `@handler.register` acts on: functools.singledispatch chooses the function by it."""
    if not any(isinstance(d, ast.Attribute) and d.attr == "register" for d in node.decorator_list):
        return None
    return next((arg.annotation for arg in [*node.args.posonlyargs, *node.args.args] if arg.arg != "self"), None)


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    known = _fields_of.get(kind)
    if known is None:
        ignored = _IGNORED_FIELDS | ({"annotation"} if kind is ast.arg else set())
        known = _fields_of[kind] = tuple(name for name in kind._fields if name not in ignored)
    return known


def _merge_text(values: list[ast.expr]) -> list[ast.expr]:
    """Literal pieces of an f-string, joined: Python versions cut them differently, and leave empty ones."""
    merged: list[ast.expr] = []
    for value in values:
        if not isinstance(value, ast.Constant):
            merged.append(value)
        elif merged and isinstance(merged[-1], ast.Constant):
            merged[-1] = ast.Constant(merged[-1].value + value.value)  # type: ignore[operator]
        elif value.value != "":
            merged.append(value)
    return merged


def _constant(value: object) -> str:
    if type(value) is int:
        # Hexadecimal: decimal text of huge integers is refused by Python.
        return f"int {value:x} "
    return f"{type(value).__name__} {value!r} "


def has_effect(statement: object) -> bool:
    """False for docstrings and other bare constants, `pass`, declarations without a value, and overloads."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return not any(_last_name(decorator) == "overload" for decorator in statement.decorator_list)
    return not isinstance(statement, ast.Pass)


def _class_body(node: ast.ClassDef) -> list[object]:
    """The body; annotations of fields stay if there is a decorator or a base: dataclasses and models act on them."""
    if not (node.decorator_list or node.bases):
        return list(node.body)
    return [
        ["field", member.target, member.annotation, member.value] if isinstance(member, ast.AnnAssign) else member
        for member in node.body
    ]


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
