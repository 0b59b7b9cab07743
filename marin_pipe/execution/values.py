"""Coercion: every argument becomes a value of its declared type, or an error that says where and why.

Two writings of one value must get one key (`lr: float = 1` and `1.0`, a list where a tuple is declared), and a wrong
type must fail while the graph is built. Only conversions that lose nothing are made. A `Step` stands for the value
it will produce and is checked by its function's return annotation.
"""

import collections.abc
import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath
from types import NoneType
from typing import Any, Literal, get_args, get_origin, is_typeddict

from pydantic import ValidationError

from marin_pipe.execution.declared import (
    ORIGIN,
    ClassSpec,
    alias_target,
    class_hints,
    class_spec,
    declared,
    describe,
    fits,
    is_path_like,
    members,
    spec_as,
)
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.handle import Step, StepPath
from marin_pipe.execution.inputs import InputFile, InputFiles
from marin_pipe.execution.mismatch import Mismatch

Coercer = Callable[[Any], Any]
"""Returns the very object it was given if that is of the declared type already; raises `Mismatch`."""

ATOMS = frozenset({str, int, float, bool, NoneType, bytes, complex})
"""Immutable types without parts."""
_HANDLES = (Step, StepPath)


def coerce(value: Any, annotation: Any, *, where: str) -> Any:
    """`value` as its declared type, copied so that a later change by the caller cannot reach it.

    Raises:
        GraphError: it is not of that type and cannot become one without loss; names `where` ("argument lr") and the
            part.
    """
    try:
        return snapshot(coercer(annotation)(value))
    except Mismatch as mismatch:
        raise mismatch.as_error(where) from None


_coercers: dict[Any, Coercer] = {}


def coercer(annotation: Any) -> Coercer:
    """The coercion to an annotation, compiled once."""
    try:
        return _coercers[annotation]
    except KeyError:
        made = _coercers[annotation] = _compile(annotation)
        return made
    except TypeError:  # unhashable, such as Annotated[int, []]
        return _compile(annotation)


def _compile(annotation: Any) -> Coercer:
    target = alias_target(annotation)
    if target is not annotation:
        return lambda value: coercer(target)(value)  # late, since an alias may contain itself
    alternatives = list(members(annotation))
    if len(alternatives) != 1:
        return _union(alternatives, annotation)
    plain = alternatives[0]
    if plain is not annotation:
        return coercer(plain)
    convert = _plain(plain)

    def check(value: Any) -> Any:
        if isinstance(value, _HANDLES):
            return _handle(value, plain)
        return convert(value)

    return convert if plain in _PRIMITIVES or convert is by_class else check


def _plain(annotation: Any) -> Coercer:
    """The coercion to an annotation that is no union, alias or marker, for values that are no handles."""
    if annotation in _PRIMITIVES:
        return _PRIMITIVES[annotation]
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Literal:
        return _literal(arguments)
    if is_typeddict(annotation):
        return _typed_dict(annotation)
    if origin in _ABSTRACT:
        origin = _ABSTRACT[origin]
    if origin is list or origin is _ANY_SEQUENCE:
        return _list(coercer(arguments[0] if arguments else Any), annotation, either=origin is _ANY_SEQUENCE)
    if origin is tuple:
        return _tuple(arguments, annotation)
    if origin in (set, frozenset):
        return _set(origin, coercer(arguments[0] if arguments else Any), annotation)
    if origin is dict:
        key, item = (coercer(a) for a in arguments or (Any, Any))
        return _dict(key, item, annotation)
    if origin is type:
        return _class_object(arguments, annotation)
    if origin is collections.abc.Callable:
        return _instance(callable, annotation)
    if isinstance(origin, type):
        return _class(origin, annotation)
    return by_class  # a form this file does not know says nothing it could check


# --- by the value's own class -----------------------------------------------------------------------------------------


def by_class(value: Any) -> Any:
    """Nothing is declared: the value stays, and what is declared inside it (fields) is coerced."""
    kind = type(value)
    if kind in ATOMS or isinstance(value, _HANDLES):
        return value
    if kind is list:
        return _same_or_new(value, [_element(by_class, v, i) for i, v in enumerate(value)])
    if kind is tuple:
        return _same_or_new(value, tuple(_element(by_class, v, i) for i, v in enumerate(value)))
    if kind is dict:
        return _same_or_new_dict(value, {k: _element(by_class, v, k) for k, v in value.items()})
    if hasattr(kind, "__canonical__") or isinstance(value, type):
        return value
    spec = class_spec(kind)
    return value if spec is None else _fields(value, spec)


def _fields(value: Any, spec: ClassSpec) -> Any:
    """The object itself, or one made by its constructor from fields of the declared types."""
    changed: dict[str, Any] = {}
    for field in spec.fields:
        try:
            item = getattr(value, field.name)
        except AttributeError:
            raise Mismatch(value, f"a {type(value).__name__} whose field {field.name} is set") from None
        try:
            new = coercer(field.declared.annotation)(item)
        except Mismatch as mismatch:
            raise mismatch.inside(f".{field.name}") from None
        if new is not item:
            changed[field.name] = new
    if not changed:
        return value
    try:
        return rebuild(value, spec, changed)
    except (ValueError, TypeError) as error:
        raise Mismatch(value, type(value), why=f"its constructor refused the coerced fields: {_said(error)}") from error


def _said(error: Exception) -> str:
    """What an error says. Of pydantic's, without the values: it cuts them, so that secrets in them go unnoticed."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))


def rebuild(value: Any, spec: ClassSpec, changed: Mapping[str, Any]) -> Any:
    """A new object through the constructor of `value`'s class, so that its validators see the changed fields."""
    cls = type(value)
    if spec.init_only:
        raise GraphError(
            f"this {cls.__qualname__} cannot be rebuilt with {', '.join(changed)} replaced",
            why=f"it does not keep what it was given for {', '.join(spec.init_only)} (InitVar)",
            next="make it a field",
        )
    fields = {f.name: changed[f.name] if f.name in changed else getattr(value, f.name) for f in spec.fields if f.init}
    if spec.kind == "model":
        return cls.model_validate({**fields, **(value.model_extra or {})}, by_name=True, by_alias=False)
    return cls(**fields)


def _element(convert: Coercer, value: Any, index: Any) -> Any:
    try:
        return convert(value)
    except Mismatch as mismatch:
        raise mismatch.inside(f"[{index!r}]") from None


def _same_or_new(old: Sequence[Any], new: Any) -> Any:
    return old if all(a is b for a, b in zip(old, new, strict=True)) else new


def _same_or_new_dict(old: Mapping[Any, Any], new: dict[Any, Any]) -> Any:
    return old if all(new.get(k) is v for k, v in old.items()) else new


# --- primitives -------------------------------------------------------------------------------------------------------


def _numpy_kind(value: Any) -> str:
    """The kind letter of a numpy scalar's dtype, or ""; never imports numpy."""
    numpy = sys.modules.get("numpy")
    return value.dtype.kind if numpy is not None and isinstance(value, numpy.generic) else ""


def _int(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if _numpy_kind(value) in ("i", "u"):
        return int(value)
    return _accept_handle(value, int)


def _float(value: Any) -> Any:
    if type(value) is float:
        return value
    if isinstance(value, float) or _numpy_kind(value) == "f":
        return float(value)
    if (isinstance(value, int) and not isinstance(value, bool)) or _numpy_kind(value) in ("i", "u"):
        whole = int(value)
        try:
            exact = int(float(whole)) == whole
        except OverflowError:
            exact = False
        if not exact:
            raise Mismatch(value, float, why="this integer has no exact float")
        return float(whole)
    return _accept_handle(value, float)


def _complex(value: Any) -> Any:
    if type(value) is complex:
        return value
    if _numpy_kind(value) == "c":
        return complex(value)
    try:
        return complex(_float(value)) if not isinstance(value, _HANDLES) else _handle(value, complex)
    except Mismatch:
        raise Mismatch(value, complex) from None


def _bool(value: Any) -> Any:
    if type(value) is bool:
        return value
    if _numpy_kind(value) == "b":
        return bool(value)
    return _accept_handle(value, bool)


def _str(value: Any) -> Any:
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    return _accept_handle(value, str)


def _bytes(value: Any) -> Any:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return _accept_handle(value, bytes)


def _none(value: Any) -> Any:
    return None if value is None else _accept_handle(value, None)


def _accept_handle(value: Any, annotation: Any) -> Any:
    if isinstance(value, _HANDLES):
        return _handle(value, annotation)
    raise Mismatch(value, annotation, next=_advice(value))


_PRIMITIVES: dict[Any, Coercer] = {
    Any: by_class,
    object: by_class,
    int: _int,
    float: _float,
    complex: _complex,
    bool: _bool,
    str: _str,
    bytes: _bytes,
    NoneType: _none,
}


def _advice(value: Any) -> str:
    from marin_pipe.execution.step import StepFunction

    if isinstance(value, StepFunction):
        return f"call it: {value.name}(...) is the step"
    if isinstance(value, InputFile | InputFiles):
        return f"annotate the argument {type(value).__name__}"
    return ""


# --- containers -------------------------------------------------------------------------------------------------------

_ANY_SEQUENCE = Sequence
_ABSTRACT: dict[Any, Any] = {
    collections.abc.MutableSequence: list,
    collections.abc.Sequence: _ANY_SEQUENCE,
    collections.abc.Iterable: _ANY_SEQUENCE,
    collections.abc.Collection: _ANY_SEQUENCE,
    collections.abc.Reversible: _ANY_SEQUENCE,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


def _list(item: Coercer, annotation: Any, *, either: bool) -> Coercer:
    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple | range):
            raise Mismatch(value, annotation, next=_advice(value))
        new = [_element(item, v, i) for i, v in enumerate(value)]
        if type(value) is list or (either and type(value) is tuple):
            return _same_or_new(value, new)
        return new

    return convert


def _tuple(arguments: tuple[Any, ...], annotation: Any) -> Coercer:
    if annotation is tuple or arguments[1:] == (...,):
        repeated = coercer(arguments[0] if arguments else Any)
        positions = None
    else:
        repeated, positions = by_class, [coercer(a) for a in arguments]

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise Mismatch(value, annotation, next=_advice(value))
        if positions is not None and len(positions) != len(value):
            raise Mismatch(value, annotation, why=f"it has {len(value)} elements, not {len(positions)}")
        converters = positions if positions is not None else [repeated] * len(value)
        new = tuple(_element(c, v, i) for i, (c, v) in enumerate(zip(converters, value, strict=True)))
        return _same_or_new(value, new) if type(value) is tuple else new

    return convert


def _set(kind: Any, item: Coercer, annotation: Any) -> Coercer:
    def convert(value: Any) -> Any:
        if not isinstance(value, set | frozenset):
            raise Mismatch(value, annotation, next=_advice(value))
        pairs = [(v, _element(item, v, v)) for v in value]
        if type(value) is kind and all(a is b for a, b in pairs):
            return value
        return kind(b for _, b in pairs)

    return convert


def _dict(key: Coercer, item: Coercer, annotation: Any) -> Coercer:
    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Mismatch(value, annotation, next=_advice(value))
        new = {_element(key, k, k): _element(item, v, k) for k, v in value.items()}
        if len(new) != len(value):
            raise Mismatch(value, annotation, why="two of its keys are one after coercion")
        if type(value) is dict and all(a is b for a, b in zip(value, new, strict=True)):
            return _same_or_new_dict(value, new)
        return new

    return convert


def _typed_dict(annotation: Any) -> Coercer:
    hints = {name: declared(hint).annotation for name, hint in class_hints(annotation).items()}
    required = annotation.__required_keys__

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Mismatch(value, annotation, next=_advice(value))
        missing, unknown = sorted(required - value.keys()), sorted(map(str, value.keys() - hints.keys()))
        if missing or unknown:
            raise Mismatch(value, annotation, why=f"missing keys: {missing}; unknown keys: {unknown}")
        new = {k: _element(coercer(hints[k]), v, k) for k, v in value.items()}
        return _same_or_new_dict(value, new) if type(value) is dict else new

    return convert


# --- classes ----------------------------------------------------------------------------------------------------------


def _literal(values: tuple[Any, ...]) -> Coercer:
    def convert(value: Any) -> Any:
        for allowed in values:
            if type(allowed) is type(value) and allowed == value:
                return value
        raise Mismatch(value, "one of " + ", ".join(map(repr, values)), next=_advice(value))

    return convert


def _class_object(arguments: tuple[Any, ...], annotation: Any) -> Coercer:
    bases = tuple(get_origin(m) or m for a in arguments for m in members(a))
    bases = tuple(b for b in bases if isinstance(b, type) and b is not object)

    def accepts(value: Any) -> bool:
        return isinstance(value, type) and (not bases or issubclass(value, bases))

    return _instance(accepts, annotation)


def _instance(accepts: Callable[[Any], bool], annotation: Any) -> Coercer:
    def convert(value: Any) -> Any:
        if not accepts(value):
            raise Mismatch(value, annotation, next=_advice(value))
        return value

    return convert


def _class(cls: Any, annotation: Any) -> Coercer:
    if cls in (Step, StepPath):
        return _instance(lambda _: False, annotation)  # handles were accepted before
    if issubclass(cls, Enum):
        return _enum(cls)
    if getattr(cls, "_is_protocol", False) and not getattr(cls, "_is_runtime_protocol", False):
        return by_class
    generic = bool(get_args(annotation))

    def convert(value: Any) -> Any:
        if isinstance(value, cls):
            spec = spec_as(type(value), annotation) if generic else None
            return by_class(value) if spec is None else _fields(value, spec)
        if type(value) is str and issubclass(cls, PurePath):
            return cls(value)
        if is_path_like(cls) and cls.__module__.partition(".")[0] == "upath" and isinstance(value, str | Path):
            return cls(value)
        raise Mismatch(value, annotation, next=_advice(value))

    return convert


def _enum(cls: type[Enum]) -> Coercer:
    def convert(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        for member in cls:
            if type(member.value) is type(value) and member.value == value:
                return member
        raise Mismatch(value, f"{cls.__qualname__} ({', '.join(cls.__members__)})", next=_advice(value))

    return convert


# --- unions -----------------------------------------------------------------------------------------------------------

_PREFERENCE = {bool: 0, int: 1, float: 2, complex: 3, str: 4}


def _union(alternatives: list[Any], annotation: Any) -> Coercer:
    """The alternative the value is of already, else the first it can become.

    Alternatives are tried in an order of their own: Python takes `int | str` and `str | int` for equal and hands out
    either, so the written order must not decide a key.
    """
    ordered = sorted(alternatives, key=lambda a: (_PREFERENCE.get(a, 9), describe(a)))
    exact = ATOMS.intersection(a for a in ordered if isinstance(a, type))
    anything = any(a in (Any, object) for a in ordered)
    coercers = [coercer(a) for a in ordered if a not in (Any, object)]

    def convert(value: Any) -> Any:
        if type(value) in exact:
            return value
        converted, found, failures = None, False, []
        for option in coercers:
            try:
                new = option(value)
            except Mismatch as mismatch:
                failures.append(mismatch)
                continue
            if new is value:
                return value
            if not found:
                converted, found = new, True
        if found:
            return converted
        if anything:
            return by_class(value)
        deep = [f for f in failures if f.path]
        if len(deep) == 1:
            raise deep[0]
        raise Mismatch(value, annotation, next=next((f.next for f in failures if f.next), ""))

    return convert


# --- handles ----------------------------------------------------------------------------------------------------------


def _handle(value: Step[Any] | StepPath, annotation: Any) -> Any:
    """A handle where `annotation` is declared, if what it stands for can be of that type."""
    if isinstance(value, StepPath):
        origin = get_origin(annotation) or annotation
        if origin in (StepPath, Any, object) or is_path_like(annotation):
            return value
        raise Mismatch(
            value, annotation, why="the step would receive a path", next="annotate the argument UPath, Path or Ref[...]"
        )
    produced = value.function.hints.get("return", Any)
    wanted = annotation
    if get_origin(annotation) is Step or annotation is Step:
        wanted = (get_args(annotation) or (Any,))[0]
    if fits(produced, wanted):
        return value
    raise Mismatch(value, annotation, why=f"step {value.name} returns {describe(produced)}")


# --- copies -----------------------------------------------------------------------------------------------------------


def snapshot(value: Any) -> Any:
    """A copy of everything in `value` that its holder could still change; input files as they are now.

    Constructors do not run: the copy has the same fields.
    """
    kind = type(value)
    if kind in ATOMS or kind in _HANDLES:
        return value
    if kind is list:
        return [snapshot(v) for v in value]
    if kind is tuple:
        return _same_or_new(value, tuple(snapshot(v) for v in value))
    if kind is dict:
        return {k: snapshot(v) for k, v in value.items()}
    if kind is set:
        return set(value)
    if kind is bytearray:
        return bytearray(value)
    if isinstance(value, InputFile | InputFiles):
        return value.resolved()
    if hasattr(kind, "__canonical__") or isinstance(value, type):
        return value
    spec = class_spec(kind)
    if spec is not None:
        return _snapshot_fields(value, spec)
    numpy = sys.modules.get("numpy")
    return value.copy() if numpy is not None and kind is numpy.ndarray else value


def _snapshot_fields(value: Any, spec: ClassSpec) -> Any:
    changed = {}
    for field in spec.fields:
        item = getattr(value, field.name)
        new = snapshot(item)
        if new is not item:
            changed[field.name] = new
    if spec.frozen and not changed:
        return value
    if spec.kind == "namedtuple":
        return value._replace(**changed)
    if spec.kind == "model":
        return value.model_copy(update=changed)
    made = copy.copy(value)
    getattr(made, "__dict__", {}).pop(ORIGIN, None)
    for name, new in changed.items():
        object.__setattr__(made, name, new)
    return made
