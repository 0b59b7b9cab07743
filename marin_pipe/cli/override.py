"""From overrides (`--name=value`) to a config object: changes to the default config, typed by its fields' annotations.

A list or a mapping is written as YAML; text and numbers are read as they stand. Types that are none of Python's own,
and the choice among registered classes, are draccus's.
"""

import dataclasses
import enum
import shlex
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from marin_pipe.cli.fields import LISTS, MAPPINGS, Fields, alternatives, nested_class, type_text
from marin_pipe.execution.errors import ConfigurationError

if TYPE_CHECKING:
    from yaml import Node  # type: ignore[import-untyped]

Overrides = Sequence[tuple[str, str]]
_NULLS = ("null", "none", "~")


@dataclass(frozen=True, kw_only=True)
class _Given:
    """One value on its way to the field it is for. `path` leads there from the object at hand."""

    override: tuple[str, str]
    path: tuple[str, ...]
    value: "str | Node"
    """Text as written on the command line, or a part of such a text that was read as YAML."""


class _Misfit(Exception):
    """A value that its type does not allow. `brackets` are those of a list or mapping that should be there."""

    def __init__(self, why: str, given: _Given, *, brackets: str = ""):
        super().__init__(why)
        self.why, self.given, self.brackets = why, given, brackets


def override(config_class: type, overrides: Overrides, *, fields: Fields) -> Any:
    """The default config with `overrides` applied, all at once. ConfigurationError names the field and the value."""
    given = [_Given(override=(name, text), path=tuple(name.split(".")), value=text) for name, text in overrides]
    try:
        return _changed(config_class, None, given)
    except _Misfit as error:
        raise _refusal(error, fields) from error


def _changed(cls: type, present: Any, given: Iterable[_Given]) -> Any:
    """`present` with some fields changed; if it is None, a new `cls`."""
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls) if field.init}
    groups: dict[str, list[_Given]] = {}
    for one in given:
        name, *path = one.path
        if name not in known:
            raise _Misfit(f"{cls.__name__} has no field {name!r}", one)
        groups.setdefault(name, []).append(dataclasses.replace(one, path=tuple(path)))
    changes = {}
    for name, group in groups.items():
        before = getattr(present, name) if present is not None else _default(known[name])
        changes[name] = _value(hints[name], before, group)
    try:
        # What `__post_init__` derives from other fields follows, so long as nothing but defaults is kept.
        if present is None or (all(_has_default(field) for field in known.values()) and present == cls()):
            return cls(**changes)
        return dataclasses.replace(present, **changes)
    except (ValueError, TypeError, AssertionError) as error:
        # A rule of the dataclass's own, or a field without a default.
        raise ConfigurationError(
            f"{cls.__name__}: {str(error) or type(error).__name__}", next="see --help for the fields and their defaults"
        ) from error


def _has_default(field: "dataclasses.Field[Any]") -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _value(hint: Any, present: Any, given: Sequence[_Given]) -> Any:
    """The new value of one field. A mapping for a nested object changes the fields that it names."""
    cls = nested_class(hint)
    if cls is None:
        return _decode(hint, given[-1])
    is_none = False
    parts: list[_Given] = []
    for one in given:
        is_none = not one.path and type(None) in alternatives(hint) and _is_null(_node(hint, one))
        if is_none:
            present, parts = None, []
        else:
            parts += [one] if one.path else _fields(cls, one)
    return None if is_none else _of_class(cls, present, parts, given[-1])


def _of_class(cls: Any, present: Any, parts: Sequence[_Given], whole: _Given) -> Any:
    """A nested object. Among registered classes, `type` chooses; without it, the class stays."""
    if not hasattr(cls, "get_known_choices"):
        return _changed(cls, present, parts)
    kinds = [one for one in parts if one.path == ("type",)]
    if not kinds and present is not None:
        return _changed(type(present), present, parts)
    name = _decode(str, kinds[-1]) if kinds else cls.default_choice_name()
    try:
        chosen = cls.get_choice_class(name)
    except KeyError as error:
        choices = ", ".join(cls.get_known_choices())
        raise _Misfit(
            f"its type is {name!r}, which is none of {choices}" if kinds else f"it has no type; there are {choices}",
            kinds[-1] if kinds else whole,
        ) from error
    rest = [one for one in parts if one.path != ("type",)]
    return _changed(chosen, present if type(present) is chosen else None, rest)


def _decode(hint: Any, given: _Given) -> Any:
    """The value that one text, or one YAML node, stands for."""
    node = _node(hint, given)
    options = [option for option in alternatives(hint) if option is not type(None)]
    if len(options) < len(alternatives(hint)) and _is_null(node):
        return None
    given = dataclasses.replace(given, value=node)
    if len(options) != 1:
        return _first_that_fits(options, given)
    (only,) = options
    origin, inner = typing.get_origin(only) or only, typing.get_args(only)
    cls = nested_class(only)
    if cls is not None:
        return _of_class(cls, None, _fields(cls, given), given)
    if origin in LISTS:
        return LISTS[origin](_items(origin, inner, given))
    if origin in MAPPINGS:
        key, value = inner or (Any, Any)
        return {_decode(key, k): _decode(value, v) for k, v in _pairs(given)}
    if origin is Literal or (isinstance(only, type) and issubclass(only, enum.Enum)):
        return _choice(only, given)
    return _leaf(only, given)


def _first_that_fits(options: Sequence[Any], given: _Given) -> Any:
    problems = []
    for option in options:
        try:
            return _decode(option, given)
        except _Misfit as error:
            problems.append(error)
    brackets = next((error.brackets for error in problems if error.brackets), "")
    raise _Misfit("; ".join(error.why for error in problems), given, brackets=brackets)


def _items(origin: Any, inner: tuple[Any, ...], given: _Given) -> list[Any]:
    node: Any = given.value
    if node.id != "sequence":
        raise _Misfit(f"{_shown(node)} is no list", given, brackets="[]")
    parts = [dataclasses.replace(given, value=part) for part in node.value]
    if origin is not tuple or not inner or inner[1:] == (...,):
        return [_decode(inner[0] if inner else Any, part) for part in parts]
    if len(inner) != len(parts):
        raise _Misfit(f"it has {len(parts)} items, not {len(inner)}", given)
    return [_decode(hint, part) for hint, part in zip(inner, parts, strict=True)]


def _pairs(given: _Given) -> list[tuple[_Given, _Given]]:
    node: Any = given.value
    if node.id != "mapping":
        raise _Misfit(f"{_shown(node)} is no mapping", given, brackets="{}")
    return [(dataclasses.replace(given, value=k), dataclasses.replace(given, value=v)) for k, v in node.value]


def _fields(cls: type, given: _Given) -> list[_Given]:
    """A mapping's values, each on its way to the field that its key names."""
    whole = dataclasses.replace(given, value=_node(cls, given))
    return [dataclasses.replace(value, path=(_decode(str, key),)) for key, value in _pairs(whole)]


def _choice(hint: Any, given: _Given) -> Any:
    """A member of an enumeration by its value or name, or one of the values of a Literal."""
    members: Sequence[Any] = typing.get_args(hint) or list(hint)
    text = _scalar(hint, given)
    names = [(getattr(member, "value", member), getattr(member, "name", None), member) for member in members]
    for value, name, member in names:
        if text in (str(value), name) or (isinstance(value, bool) and text == str(value).lower()):
            return member
    raise _Misfit(f"{text!r} is none of {', '.join(str(value) for value, _, _ in names)}", given)


def _leaf(hint: Any, given: _Given) -> Any:
    import draccus
    from draccus.utils import DraccusException

    # YAML would read 010 as 8, 1:30 as 90 and `true` as a number.
    raw = _scalar(hint, given) if _is_word(hint) else _plain(given)
    try:
        return draccus.decode(hint, raw)
    except DraccusException as error:
        raise _Misfit(getattr(error, "message", None) or str(error), given) from error
    except Exception as error:
        # draccus says so of types that it has no decoder for.
        raise _Misfit(str(error), given) from error


def _scalar(hint: Any, given: _Given) -> str:
    node: Any = given.value
    if node.id != "scalar":
        raise _Misfit(f"{_shown(node)} is no {type_text(hint)}", given)
    return str(node.value)


def _plain(given: _Given) -> Any:
    import yaml

    try:
        return yaml.constructor.SafeConstructor().construct_document(given.value)
    except yaml.YAMLError as error:
        raise _Misfit(_not_yaml(error), given) from error


def _node(hint: Any, given: _Given) -> "Node":
    """The value as a YAML node. What can only be text, or one of several words, is not read as YAML."""
    import yaml

    if not isinstance(given.value, str):
        return given.value
    if not all(_is_word(option) for option in alternatives(hint)):
        try:
            node = yaml.compose(given.value, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            raise _Misfit(_not_yaml(error), given) from error
        if node is not None:
            return node
    return yaml.ScalarNode("tag:yaml.org,2002:str", given.value)


def _is_word(hint: Any) -> bool:
    """Whether a value is one text, whatever stands in it."""
    if hint is bool:  # yes, on, False: YAML knows them all
        return False
    words = (str, int, float, PurePath, enum.Enum, type(None))
    return typing.get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, words))


def _is_null(node: Any) -> bool:
    return node.id == "scalar" and node.style not in ("'", '"') and node.value.lower() in _NULLS


def _shown(node: Any) -> str:
    return repr(node.value) if node.id == "scalar" else {"sequence": "a list", "mapping": "a mapping"}[node.id]


def _not_yaml(error: Exception) -> str:
    return f"it is not YAML: {' '.join(str(error).split())}"


def _refusal(error: _Misfit, fields: Fields) -> ConfigurationError:
    name, text = error.given.override
    field = fields.by_name.get(name)
    next_ = "see --help"
    if field is not None:
        way_out = _in_brackets(field.hint, error) if error.brackets else None
        default = f", by default {field.default}" if field.default else ""
        next_ = f"write --{name} {shlex.quote(way_out)}" if way_out else f"{name} is {field.type_text}{default}"
    return ConfigurationError(f"--{name} {text!r} does not fit the config", why=error.why, next=next_)


def _in_brackets(hint: Any, error: _Misfit) -> str | None:
    """The override's text as the list or mapping that was probably meant; None if that would not fit either."""
    text = error.given.override[1]
    for inside in (text, text.replace("=", ": ")):
        candidate = f"{error.brackets[0]}{inside}{error.brackets[1]}"
        try:
            _value(hint, None, [dataclasses.replace(error.given, path=(), value=candidate)])
        except (_Misfit, ConfigurationError):
            continue
        return candidate
    return None
