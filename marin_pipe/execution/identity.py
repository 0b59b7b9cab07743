"""The canonical form of arguments, and the key made from it.

The form is JSON. It is total and strict: a value has exactly one form, two different values have two, and a value
without a form is an error that names the argument. Order of dicts and sets, host, process, Python version and hash
seed have no influence. Tags begin with "$"; a dict with such a key of its own is written as `{"$dict": ...}`.

Pure: this file reads no clock, environment or storage (only whether a `Path` argument is a local file), and knows no
handles. Objects that are their own identity say so with `__canonical__()`.
"""

import functools
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath, PureWindowsPath
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, ModuleType, NoneType
from typing import Any, NoReturn, get_args, get_origin, is_typeddict

from marin_pipe.execution.declared import (
    ClassSpec,
    Declared,
    Visit,
    alias_target,
    class_hints,
    class_spec,
    declared,
    members,
    spec_as,
)
from marin_pipe.execution.errors import GraphError

FORMAT = 1
_LONG_BYTES = 256
"""Longer byte strings enter the form by their digest, so that records stay readable."""
_LONG_INTEGER_BITS = 1024
"""Longer integers are written in hexadecimal: Python refuses to print them in decimal."""
_SEQUENCES = frozenset({"list", "tuple", "Sequence", "MutableSequence", "Iterable", "Collection", "Reversible"})
_SETS = frozenset({"set", "frozenset", "Set", "MutableSet"})
_MAPPINGS = frozenset({"dict", "Mapping", "MutableMapping"})
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class RuntimeUse:
    """What `visit` is told about a field annotated `Runtime[...]`: its value, which is left out of the form."""

    value: Any


def canonical_json(form: Any) -> str:
    """Deterministic ASCII JSON of a canonical form; 1, 1.0 and true stay different."""
    return _encode(form)


def compute_key(function: str, version: str, arguments: Mapping[str, Any]) -> str:
    """The key of a step, 64 hex digits: sha256 of format, identity name, version and canonical arguments."""
    text = _encode({"format": FORMAT, "function": function, "version": version, "arguments": arguments})
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any, annotation: Any, *, where: str, visit: Visit) -> Any:
    """The canonical form of a value already coerced to `annotation`.

    Args:
        value: the value.
        annotation: its declared type; `Any` or `object` for none. It decides only whether list and tuple differ.
        where: the argument's path, such as `config.layers[2]`, for errors and for `visit`.
        visit: called with path and object for everything the form names: objects with `__canonical__()`, functions,
            classes (also those of dataclasses, models and enums), bytes (whose form does not show what they hold),
            and `RuntimeUse` for `Runtime` fields.

    Raises:
        GraphError: the value, or something in it, has no canonical form.
    """
    return form(value, shape(annotation), where, visit)


def omitted(form: Any, field: Declared) -> bool:
    """Whether `field` is annotated `OmitAt` the value whose form this is."""
    return bool(field.omit_at) and canonical_json(form) in _omitted_forms(field)


@functools.cache
def _omitted_forms(field: Declared) -> set[str]:
    # The marker's value is coerced as the argument was, so that OmitAt(1) holds for a float. Imported here because
    # coercion knows handles, and handles know keys.
    from marin_pipe.execution.values import coerce

    values = [coerce(marker.value, field.annotation, where="OmitAt()") for marker in field.omit_at]
    return {canonical_json(canonical(v, field.annotation, where="OmitAt", visit=_ignore)) for v in values}


def _ignore(where: str, obj: object) -> None:
    pass


# --- what an annotation says about nested lists and tuples ------------------------------------------------------------


class Shape:
    """The part of an annotation that the form depends on: where it says nothing, a tuple is not a list."""

    __slots__ = ("_generic", "_item", "_members", "_positions", "_value", "fields", "floats", "open")

    def __init__(self, annotations: Iterable[Any]) -> None:
        self._members = [m for a in annotations for m in _members(a)]
        self.open = not self._members or any(m in (Any, object) for m in self._members)
        self.floats = float in self._members and not self.open and str not in self._members
        """Whether text where the annotation stands can only be how JSON writes nan or an infinity."""
        self.fields = _typed_dict_fields(self._members)
        self._generic = [m for m in self._members if get_args(m) and isinstance(get_origin(m), type)]
        self._positions: dict[int, Shape] = {}
        self._item: Shape | None = None
        self._value: Shape | None = None

    def item(self, index: int) -> "Shape":
        """Of the element at `index` of a list or tuple."""
        if self._item is not None:
            return self._item
        if any(_origin_name(m) == "tuple" and get_args(m)[1:] != (...,) for m in self._members):
            if index not in self._positions:
                self._positions[index] = Shape(a for m in self._members for a in _item_annotations(m, index))
            return self._positions[index]
        self._item = Shape(a for m in self._members for a in _item_annotations(m, 0))
        return self._item

    def field(self, key: str) -> "Shape":
        """Of a dict's value under `key`."""
        declared = (self.fields or {}).get(key)
        return self.value() if declared is None else shape(declared.annotation)

    def spec(self, cls: type) -> ClassSpec | None:
        """Of an object of class `cls`."""
        meant = next((m for m in self._generic if issubclass(cls, get_origin(m))), None)
        return class_spec(cls) if meant is None else spec_as(cls, meant)

    def value(self) -> "Shape":
        """Of a dict's values."""
        if self._value is None:
            named = (m for m in self._members if _origin_name(m) in _MAPPINGS)
            self._value = Shape(a for m in named for a in get_args(m)[1:])
        return self._value


_shapes: dict[Any, Shape] = {}


def shape(annotation: Any) -> Shape:
    """The shape of an annotation, computed once."""
    try:
        return _shapes[annotation]
    except KeyError:
        made = _shapes[annotation] = Shape((annotation,))
        return made
    except TypeError:  # unhashable, such as Annotated[int, []]
        return Shape((annotation,))


def _members(annotation: Any) -> list[Any]:
    annotation = alias_target(annotation)
    return [alias_target(m) for m in members(annotation)]


def _origin_name(annotation: Any) -> str:
    return getattr(get_origin(annotation) or annotation, "__name__", "")


def _item_annotations(member: Any, index: int) -> tuple[Any, ...]:
    name, arguments = _origin_name(member), get_args(member)
    if name == "tuple" and arguments and arguments[-1] is not ...:
        return arguments[index : index + 1]
    return arguments[:1] if name in _SEQUENCES or name in _SETS else ()


def _typed_dict_fields(annotations: list[Any]) -> dict[str, Declared] | None:
    typed = [m for m in annotations if is_typeddict(m)]
    if len(typed) != 1:
        return None
    return {name: declared(hint) for name, hint in class_hints(typed[0]).items()}


# --- the form ---------------------------------------------------------------------------------------------------------


def form(value: Any, shape: Shape, where: str, visit: Visit) -> Any:
    """`canonical` with the annotation's shape already known."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is bool or kind is NoneType:
        return value
    if kind is int:
        return value if value.bit_length() <= _LONG_INTEGER_BITS else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    handler = _HANDLERS.get(kind)
    if handler is not None:
        return handler(value, shape, where, visit)
    return _object(value, shape, where, visit)


def _text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:  # lone surrogates: legal in str (file names), not in stored JSON
        return {"$str": value.encode("utf-8", "surrogatepass").hex()}
    return value


def _list(value: list[Any], shape: Shape, where: str, visit: Visit) -> list[Any]:
    return [form(v, shape.item(i), f"{where}[{i}]", visit) for i, v in enumerate(value)]


def _tuple(value: tuple[Any, ...], shape: Shape, where: str, visit: Visit) -> Any:
    items = [form(v, shape.item(i), f"{where}[{i}]", visit) for i, v in enumerate(value)]
    return {"$tuple": items} if shape.open else items


def _set(value: set[Any] | frozenset[Any], shape: Shape, where: str, visit: Visit) -> Any:
    return {"$set": sorted((form(v, shape.item(0), f"{where}{{...}}", visit) for v in value), key=canonical_json)}


def _dict(value: dict[Any, Any], shape: Shape, where: str, visit: Visit) -> Any:
    fields: Mapping[Any, Declared] = shape.fields or {}
    pairs, plain = [], True
    for key, item in value.items():
        if type(key) is not str and not isinstance(key, int | Enum):
            _refuse(where, f"the dict key {key!r} is a {type(key).__name__}", next="use str, int, bool or enum keys")
        inside = f"{where}[{key!r}]"
        key_form = form(key, _CLOSED, inside, visit)
        plain = plain and type(key_form) is str and not key_form.startswith("$")
        field = fields.get(key)
        if field is None:
            pairs.append((key_form, form(item, shape.value(), inside, visit)))
        elif field.runtime:
            visit(inside, RuntimeUse(item))
        else:
            item_form = canonical(item, field.annotation, where=inside, visit=visit)
            if not omitted(item_form, field):
                pairs.append((key_form, item_form))
    if plain:
        return dict(pairs)
    return {"$dict": sorted(([k, v] for k, v in pairs), key=lambda pair: canonical_json(pair[0]))}


def _bytes(value: bytes | bytearray, _: Shape, where: str, visit: Visit) -> Any:
    visit(where, value)
    tag = f"${type(value).__name__}"
    if len(value) <= _LONG_BYTES:
        return {tag: value.hex()}
    return {tag: {"size": len(value), "sha256": hashlib.sha256(value).hexdigest()}}


_Handler = Callable[[Any, Shape, str, Visit], Any]
_HANDLERS: dict[type, _Handler] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _set,
    bytes: _bytes,
    bytearray: _bytes,
}
_CLOSED = Shape((str,))


def _object(value: Any, shape: Shape, where: str, visit: Visit) -> Any:
    cls = type(value)
    if hasattr(cls, "__canonical__"):
        visit(where, value)
        return value.__canonical__()
    if isinstance(value, Enum):
        visit(where, cls)
        name: str | None = value.name
        if name is None:  # a Flag without bits
            name = repr(value.value)
        return _from_package({"$enum": f"{cls.__qualname__}.{name}"}, cls.__module__)
    spec = shape.spec(cls)
    if spec is not None:
        return _fields(value, spec, where, visit)
    if isinstance(value, PurePath):
        return _path(value, where)
    tagged = _TAGGED.get(f"{cls.__module__}.{cls.__qualname__}")
    if tagged is not None:
        if isinstance(value, re.Pattern) and isinstance(value.pattern, bytes):
            visit(where, value.pattern)
        return tagged(value)
    if cls.__module__.partition(".")[0] == "numpy" or _is_numpy_scalar(value):
        made = _numpy(value, where)
        if made is not None:
            return made
    if cls.__module__.partition(".")[0] == "upath":
        return _upath(value, where)
    if callable(value):
        return _named(value, where, visit)
    return _refuse(where, f"a {_class_name(cls)} has no canonical form", next=_advice(value))


def _fields(value: Any, spec: ClassSpec, where: str, visit: Visit) -> Any:
    cls = type(value)
    _refuse_other_state(value, spec, where)
    visit(where, cls)
    fields: dict[str, Any] = {}
    for field in spec.fields:
        inside = f"{where}.{field.name}"
        try:
            item = getattr(value, field.name)
        except AttributeError:
            _refuse(where, f"the field {field.name} of this {cls.__qualname__} is not set", next="set it")
        if field.declared.runtime:
            visit(inside, RuntimeUse(item))
            continue
        item_form = form(item, shape(field.declared.annotation), inside, visit)
        if not omitted(item_form, field.declared):
            fields[field.name] = item_form
    if spec.kind == "model":
        for name, item in (value.model_extra or {}).items():
            fields[name] = form(item, _OPEN, f"{where}.{name}", visit)
    return _from_package({"$class": cls.__qualname__, "fields": fields}, cls.__module__)


_OPEN = Shape(())


def _refuse_other_state(value: Any, spec: ClassSpec, where: str) -> None:
    """Identity is in the fields; what else an object holds would reach the step without being in its key."""
    cls = type(value)
    other = [n for n in spec.other_slots if hasattr(value, n)]
    held = getattr(value, "__dict__", None)
    if held and not spec.known.issuperset(held):
        other += sorted(held.keys() - spec.known)
    if spec.kind == "model":
        for name, item in (value.__pydantic_private__ or {}).items():
            private = cls.__private_attributes__.get(name)
            if private is None or item != private.get_default():
                other.append(name)
    if other:
        _refuse(
            where,
            f"this {cls.__qualname__} has state outside its fields: {', '.join(other)}",
            next="make it a field, or a functools.cached_property if it is derived from the fields",
        )
    if spec.kind != "namedtuple" and isinstance(
        value, str | int | float | bytes | list | tuple | dict | set | frozenset
    ):
        _refuse(where, f"{cls.__qualname__} has state outside its fields: it is a {cls.__mro__[-2].__name__}", next="")


def _path(value: PurePath, where: str) -> Any:
    if isinstance(value, Path) and os.path.isfile(value):
        _refuse(
            where,
            f"{str(value)!r} is a local file",
            why="a path bears its text as identity, so an edit of the file would not be noticed",
            next=f"pass InputFile({str(value)!r}); or, if only the text matters, pass it as str",
        )
    if isinstance(value, PureWindowsPath):
        return {"$windows_path": _text(str(value))}
    return {"$path": _text(str(value))}


def _upath(value: Any, where: str) -> Any:
    if getattr(value, "storage_options", None):
        _refuse(
            where,
            f"the path {str(value)!r} carries storage options",
            why="they would reach the step without being in its key",
            next="pass the URL as text and open it in the step",
        )
    return {"$path": _text(str(value))}


_TAGGED: dict[str, Callable[[Any], Any]] = {
    "builtins.complex": lambda v: {"$complex": [repr(v.real), repr(v.imag)]},
    "builtins.range": lambda v: {"$range": [v.start, v.stop, v.step]},
    "datetime.date": lambda v: {"$date": v.isoformat()},
    "datetime.datetime": lambda v: {"$datetime": v.isoformat() + ("+fold" if v.fold else "")},
    "datetime.time": lambda v: {"$time": v.isoformat() + ("+fold" if v.fold else "")},
    "datetime.timedelta": lambda v: {"$timedelta": [v.days, v.seconds, v.microseconds]},
    "datetime.timezone": lambda v: {"$timezone": str(v)},
    "decimal.Decimal": lambda v: {"$decimal": str(v)},
    "fractions.Fraction": lambda v: {"$fraction": str(v)},
    "re.Pattern": lambda v: {"$regex": [_pattern_text(v), v.flags]},
    "uuid.UUID": lambda v: {"$uuid": str(v)},
    "zoneinfo.ZoneInfo": lambda v: {"$timezone": v.key},
}


def _pattern_text(pattern: "re.Pattern[Any]") -> Any:
    text = pattern.pattern
    return _text(text) if isinstance(text, str) else {"$bytes": text.hex()}


# --- numpy, by content, without importing it --------------------------------------------------------------------------


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic | numpy.dtype)


def _numpy(value: Any, where: str) -> Any:
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.dtype):
        return {"$dtype": _dtype(value, where)}
    if type(value) is numpy.ndarray:
        return {"$ndarray": {"dtype": _dtype(value.dtype, where), "shape": list(value.shape), **_content(value, where)}}
    if isinstance(value, numpy.generic):
        array = numpy.asarray(value)
        return {"$scalar": {"dtype": _dtype(array.dtype, where), "value": str(value), **_content(array, where)}}
    return None


def _content(array: Any, where: str) -> dict[str, Any]:
    if array.dtype.names:  # a record's padding bytes are not content
        return {"fields": [_content(array[name], where) for name in array.dtype.names]}
    ordered = array if array.dtype.isbuiltin == 2 else array.astype(array.dtype.newbyteorder("<"), copy=False)
    return {"sha256": hashlib.sha256(ordered.tobytes()).hexdigest()}


def _dtype(dtype: Any, where: str) -> Any:
    if dtype.names:
        return [[name, _dtype(dtype.fields[name][0], where)] for name in dtype.names]
    if dtype.subdtype is not None:
        base, extent = dtype.subdtype
        return [_dtype(base, where), list(extent)]
    if dtype.hasobject or dtype.char in "gG":
        why = "object arrays hold anything" if dtype.hasobject else "its layout differs between machines"
        _refuse(where, f"a numpy array of dtype {dtype} has no canonical form", why=why, next="use another dtype")
    return dtype.name if dtype.isbuiltin == 2 else dtype.newbyteorder("<").str


# --- functions and classes, by name -----------------------------------------------------------------------------------


def _named(value: Any, where: str, visit: Visit) -> Any:
    qualname, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if not isinstance(qualname, str) or not isinstance(module, str) or isinstance(value, MethodType):
        _refuse(where, f"a {_class_name(type(value))} has no canonical form", next=_advice(value))
    if "<" in qualname:
        kind = "a lambda" if "<lambda>" in qualname else "defined inside a function"
        _refuse(
            where,
            f"{qualname} is {kind}",
            why="functions are named in the key, and what this one captured has no name",
            next="move it to the top level of its file and pass what it captured as arguments",
        )
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not value:
        _refuse(
            where,
            f"{module}.{qualname} is another object than the one passed",
            why="functions and classes are named in the key, so the name must lead to the same object",
            next="pass the one that its module defines",
        )
    visit(where, value)
    return _from_package({"$function": qualname}, module)


def _from_package(form: dict[str, Any], module: str) -> dict[str, Any]:
    package = foreign_package(module)
    return form if package is None else {**form, "package": package}


@functools.cache
def foreign_package(module: str) -> str | None:
    """The top-level package of an installed or standard module, whose source is not fingerprinted; else None.

    A function of the user's own is told from another of its name by its source, and keeps its key when it moves; of
    an installed one only the name is known.
    """
    top = module.partition(".")[0]
    if top.startswith("marin_") or top == "__main__":
        return None
    if top in sys.stdlib_module_names:
        return top
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return top if re.search(r"[/\\](site|dist)-packages[/\\]", file) else None


# --- errors -----------------------------------------------------------------------------------------------------------


def _class_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _advice(value: Any) -> str:
    if isinstance(value, MethodType):
        return "pass a function at the top level of a module, and the object's data as another argument"
    if isinstance(value, functools.partial):
        return "pass the function and its arguments as separate arguments"
    if hasattr(value, "read") or hasattr(value, "fileno"):
        return "pass InputFile(path) and open it in the step"
    if isinstance(value, GeneratorType) or hasattr(value, "__next__"):
        return "pass a list; an iterator can be read only once"
    if isinstance(value, ModuleType | FunctionType | BuiltinFunctionType):
        return "pass a function or class of the module"
    return "pass its data as a frozen dataclass; if it has no influence on the result, annotate it Runtime[...]"


def _refuse(where: str, what: str, *, why: str = "", next: str) -> NoReturn:
    raise GraphError(
        f"argument {where}: {what}",
        why=why or "the key of a step is made from the exact value of every argument",
        next=next,
    )
