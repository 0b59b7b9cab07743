"""The fields of a config dataclass, as the command line sees them. Reads types only; draccus is not needed."""

import dataclasses
import itertools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from marin_pipe.execution.errors import ConfigurationError

Kind = Literal["text", "optional text", "switch", "other"]
_BOOLEANS = frozenset(("true", "false", "yes", "no", "on", "off", "y", "n", "1", "0", "t", "f"))


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field, by its dotted name from the config down."""

    name: str
    kind: Kind
    type_text: str
    default: str
    owner: type
    """The dataclass it belongs to."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """All fields of a config. `open_names` may have any sub-fields: their class depends on the value."""

    by_name: Mapping[str, Field]
    open_names: frozenset[str] = frozenset()

    def resolve(self, name: str) -> str | None:
        """The field that `name` means, dashes read as underscores; None if there is none."""
        for candidate in (name, name.replace("-", "_")):
            if candidate in self.by_name:
                return candidate
            parts = candidate.split(".")
            if any(".".join(parts[:i]) in self.open_names for i in range(1, len(parts))):
                return candidate
        return None

    def takes(self, name: str, value: str) -> bool:
        """Whether `value`, written after the field without "=", is its value: a bare switch means true."""
        return self.by_name[name].kind != "switch" or value.lower() in _BOOLEANS if name in self.by_name else True


NO_FIELDS = Fields(by_name={})


def fields_of(config_class: type, *, default: Any) -> Fields:
    """Every field of `config_class` and of the dataclasses nested in it. `default` is the config without overrides."""
    found: dict[str, Field] = {}
    open_names: set[str] = set()
    for field, value_class in _walk(config_class, default, prefix=""):
        found[field.name] = field
        if value_class is not None and hasattr(value_class, "get_known_choices"):
            open_names.add(field.name)
    return Fields(by_name=found, open_names=frozenset(open_names))


def check_reserved(fields: Fields, flags: frozenset[str], *, config_class: type) -> None:
    """Refuse a field that has an orchestration flag's name: `--name` could not mean both."""
    for name in fields.by_name:
        if name.replace("_", "-") in flags:
            raise ConfigurationError(
                f"the field {name!r} of {config_class.__name__} has the name of a flag of the command line",
                why=f"--{name.replace('_', '-')} on the command line would be ambiguous",
                next=f"rename the field, for example to {config_class.__name__.lower()}_{name}",
            )


def _walk(owner: type, default: Any, *, prefix: str) -> Iterator[tuple[Field, type | None]]:
    hints = typing.get_type_hints(owner)
    for field in dataclasses.fields(owner):
        if not field.init:
            continue
        name, hint = prefix + field.name, hints[field.name]
        value = getattr(default, field.name) if default is not None else _own_default(field)
        nested = _dataclass_in(hint)
        yield (
            Field(
                name=name,
                kind=_kind(hint),
                type_text=type_text(hint),
                default="" if nested is not None and value is not None else _value_text(value),
                owner=owner,
            ),
            nested,
        )
        if nested is not None:
            yield from _walk(nested, value if isinstance(value, nested) else None, prefix=f"{name}.")


def _own_default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else dataclasses.MISSING


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _dataclass_in(hint: Any) -> type | None:
    """The dataclass that `hint` is, or is when not None."""
    some = [h for h in _alternatives(hint) if h is not type(None)]
    return some[0] if len(some) == 1 and isinstance(some[0], type) and dataclasses.is_dataclass(some[0]) else None


def _kind(hint: Any) -> Kind:
    kinds = set(_alternatives(hint))
    if kinds == {str}:
        return "text"
    if kinds == {str, type(None)}:
        return "optional text"
    return "switch" if kinds <= {bool, type(None)} and bool in kinds else "other"


def type_text(hint: Any) -> str:
    """`int`, `float | None`, `tuple[int, ...]`, `'a' | 'b'`."""
    if typing.get_origin(hint) is Literal:
        return " | ".join(repr(value) for value in typing.get_args(hint))
    parts = _alternatives(hint)
    if len(parts) > 1:
        return " | ".join(type_text(part) for part in parts)
    if hint is type(None):
        return "None"
    return (
        hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
    )


def _value_text(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "(required)"
    text = str(value.value) if hasattr(value, "value") and hasattr(value, "name") else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def field_docs(owner: type) -> dict[str, str]:
    """First lines of the strings that stand below the fields of a dataclass."""
    import ast
    import inspect
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, SyntaxError):
        # No source to read them from (a class made at run time): the help then does without.
        return {}
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    docs = {}
    for field, below in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            docs[field.target.id] = below.value.value.strip().splitlines()[0]
    return docs
