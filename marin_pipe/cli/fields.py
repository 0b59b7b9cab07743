"""The fields of a config dataclass, as the command line sees them. Reads types only; draccus is not needed."""

import collections.abc
import dataclasses
import itertools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from marin_pipe.execution.errors import ConfigurationError

LISTS: Mapping[Any, Any] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: tuple,
    collections.abc.Set: frozenset,
}
"""Types that are written as a list, and what is made of it."""
MAPPINGS = (dict, collections.abc.Mapping)
_BOOLEANS = frozenset(("true", "false", "yes", "no", "on", "off", "y", "n", "1", "0", "t", "f"))


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field, by its dotted name from the config down."""

    name: str
    hint: Any
    default: str
    """For people; empty for a nested object."""
    owner: type
    """The dataclass it belongs to."""

    @property
    def is_switch(self) -> bool:
        """Whether `--name` alone means true."""
        return bool in alternatives(self.hint) and set(alternatives(self.hint)) <= {bool, type(None)}

    @property
    def is_list(self) -> bool:
        return any((typing.get_origin(option) or option) in LISTS for option in alternatives(self.hint))

    @property
    def is_mapping(self) -> bool:
        return any((typing.get_origin(option) or option) in MAPPINGS for option in alternatives(self.hint))

    @property
    def type_text(self) -> str:
        return type_text(self.hint)


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

    def switch(self, name: str) -> str | None:
        """The field that `name` means if it is a bool."""
        field = self.by_name.get(self.resolve(name) or "")
        return field.name if field is not None and field.is_switch else None

    def whole(self, name: str) -> Field | None:
        """The list or mapping that `name` reaches into: its value is given whole."""
        parts = name.replace("-", "_").split(".")
        outer = (self.by_name.get(".".join(parts[:length])) for length in range(len(parts) - 1, 0, -1))
        field = next((field for field in outer if field is not None), None)
        return field if field is not None and (field.is_list or field.is_mapping) else None

    def takes(self, name: str, value: str) -> bool:
        """Whether `value`, written after the field without "=", is its value: a bare switch means true."""
        field = self.by_name.get(name)
        return field is None or not field.is_switch or value.lower() in _BOOLEANS


NO_FIELDS = Fields(by_name={})


def fields_of(config_class: type, *, default: Any) -> Fields:
    """Every field of `config_class` and of the dataclasses nested in it. `default` is the config without overrides."""
    found: dict[str, Field] = {}
    open_names: set[str] = set()
    for field in _walk(config_class, default, prefix=""):
        found[field.name] = field
        if hasattr(nested_class(field.hint), "get_known_choices"):
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


def _walk(owner: type, default: Any, *, prefix: str) -> Iterator[Field]:
    hints = typing.get_type_hints(owner)
    for field in dataclasses.fields(owner):
        if not field.init:
            continue
        name, hint = prefix + field.name, hints[field.name]
        value = getattr(default, field.name) if default is not None else _own_default(field)
        cls = nested_class(hint)
        is_nested = cls is not None and isinstance(value, cls)
        yield Field(name=name, hint=hint, default="" if is_nested else _value_text(value), owner=owner)
        below = type(value) if is_nested else cls
        if below is not None and dataclasses.is_dataclass(below):
            yield from _walk(below, value if is_nested else None, prefix=f"{name}.")


def _own_default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else dataclasses.MISSING


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union; of any other type, that type alone."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def nested_class(hint: Any) -> Any:
    """The dataclass (or draccus class with choices) that `hint` is, or is when not None; None if it is none."""
    some = [h for h in alternatives(hint) if h is not type(None)]
    if len(some) != 1 or not isinstance(some[0], type):
        return None
    return some[0] if dataclasses.is_dataclass(some[0]) or hasattr(some[0], "get_known_choices") else None


def type_text(hint: Any) -> str:
    """`int`, `float | None`, `tuple[int, ...]`, `'a' | 'b'`."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " | ".join(repr(value) for value in inner)
    parts = alternatives(hint)
    if len(parts) > 1:
        return " | ".join(type_text(part) for part in parts)
    if hint in (None, type(None), ...):
        return "..." if hint is ... else "None"
    if inner:
        return f"{type_text(origin)}[{', '.join(type_text(part) for part in inner)}]"
    return hint.__qualname__ if isinstance(hint, type) else str(hint).replace("typing.", "")


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
