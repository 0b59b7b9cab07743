"""What an annotation declares: its type without markers, and the fields of the classes users write."""

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

from pydantic import BaseModel

from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.generics import bindings, bound, bound_fields
from marin_pipe.execution.markers import OmitAt, RuntimeMarker

_TYPE_ALIAS = getattr(typing, "TypeAliasType", None)
"""`type X = ...`, Python 3.12 and newer."""
ORIGIN = "__orig_class__"
"""Where `G[int](1)` notes its type parameters; a copy has none, so that a body cannot depend on them."""
Visit = Callable[[str, object], None]
"""Told of everything a value names, with its path in the arguments."""


@dataclass(frozen=True, eq=False)
class Declared:
    """An annotation without its outer markers. Compared by identity: OmitAt(1) equals OmitAt(True) in Python."""

    annotation: Any
    runtime: bool = False
    omit_at: tuple[OmitAt, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a dataclass, model or named tuple."""

    name: str
    declared: Declared
    init: bool = True


@dataclass(frozen=True, kw_only=True)
class ClassSpec:
    """The fields of a class, and what else its instances may hold."""

    kind: Literal["dataclass", "model", "namedtuple"]
    fields: tuple[FieldSpec, ...]
    frozen: bool
    known: frozenset[str]
    """Names an instance's `__dict__` may hold: fields, and `cached_property` values (which are derived)."""
    other_slots: tuple[str, ...] = ()
    """Slots that are no fields."""
    init_only: tuple[str, ...] = ()
    """`InitVar` names: an instance does not keep their values, so it cannot be rebuilt."""


def declared(annotation: Any) -> Declared:
    """Split the outer `Annotated` (and `Final`, `Required`) of a parameter or field into type and markers."""
    runtime, omit_at = False, []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            for marker in annotation.__metadata__:
                runtime = runtime or isinstance(marker, RuntimeMarker)
                if isinstance(marker, OmitAt):
                    omit_at.append(marker)
            annotation = annotation.__origin__
        elif origin in (Final, Required, NotRequired):
            annotation = get_args(annotation)[0]
        else:
            return Declared(annotation, runtime, tuple(omit_at))


def members(annotation: Any) -> Iterator[Any]:
    """The alternatives of an annotation: members of unions, what aliases, `NewType` and `TypeVar` stand for.

    A marker in here is misplaced: it would have to apply to a part of a value.
    """
    inner = declared(annotation)
    if inner.runtime or inner.omit_at:
        raise GraphError(
            f"the annotation {describe(annotation)} is inside another one",
            why="Runtime and OmitAt hold for a whole argument or field",
            next="write them outermost, such as Runtime[int | None] or Annotated[list[int], OmitAt(None)]",
        )
    annotation = inner.annotation
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from members(member)
    elif isinstance(annotation, TypeVar):
        for member in annotation.__constraints__ or (annotation.__bound__ or Any,):
            yield from members(member)
    elif isinstance(annotation, typing.NewType):
        yield from members(annotation.__supertype__)
    elif annotation is None:
        yield NoneType
    else:
        yield annotation


def alias_target(annotation: Any) -> Any:
    """What a `type X = ...` alias stands for; other annotations are returned as they are."""
    while _TYPE_ALIAS is not None and isinstance(annotation, _TYPE_ALIAS):
        annotation = annotation.__value__
    return annotation


def describe(annotation: Any) -> str:
    """An annotation as its author would write it, without module names."""
    if annotation is NoneType:
        return "None"
    if get_origin(annotation) is Annotated and any(isinstance(m, RuntimeMarker) for m in annotation.__metadata__):
        return f"Runtime[{describe(annotation.__origin__)}]"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(describe(member) for member in get_args(annotation))
    arguments = get_args(annotation)
    if arguments and isinstance(get_origin(annotation), type) and get_origin(annotation) is not Annotated:
        inner = ", ".join("..." if a is ... else describe(a) for a in arguments if not isinstance(a, list))
        return f"{get_origin(annotation).__qualname__}[{inner}]"
    return getattr(annotation, "__name__", None) or str(annotation).replace("typing.", "")


def is_path_like(annotation: Any) -> bool:
    """Whether a declared type takes a path."""
    cls = get_origin(annotation) or annotation
    return isinstance(cls, type) and (issubclass(cls, PathLike) or cls.__module__.partition(".")[0] == "upath")


def fits(produced: Any, wanted: Any) -> bool:
    """Whether a result annotated `produced` can be of the type `wanted`; only a clear mismatch is False."""
    try:
        known = _known_fits.get((produced, wanted))
    except TypeError:  # unhashable, such as Annotated[int, []]
        return _any_fits(produced, wanted)
    if known is None:
        known = _known_fits[produced, wanted] = _any_fits(produced, wanted)
    return known


_known_fits: dict[tuple[Any, Any], bool] = {}


def _any_fits(produced: Any, wanted: Any) -> bool:
    return any(_fits(p, w) for p in members(alias_target(produced)) for w in members(alias_target(wanted)))


def _fits(produced: Any, wanted: Any) -> bool:
    if any(a in (Any, object) or isinstance(a, str) for a in (produced, wanted)):
        return True
    have, want = get_origin(produced) or produced, get_origin(wanted) or wanted
    if have is Literal:
        return any(_fits(type(v), wanted) for v in get_args(produced))
    if want is Literal:
        return any(_fits(produced, type(v)) for v in get_args(wanted))
    have, want = (dict if is_typeddict(t) else t for t in (have, want))
    if not isinstance(have, type) or not isinstance(want, type) or getattr(want, "_is_protocol", False):
        return True
    if have is bool and want is not bool:
        return False
    widened = (have, want) in {(int, float), (int, complex), (float, complex), (list, tuple), (tuple, list)}
    if not widened and not issubclass(have, want) and not (have is str and is_path_like(want)):
        return False
    have_arguments, want_arguments = get_args(produced), get_args(wanted)
    if have is tuple or want is tuple or len(have_arguments) != len(want_arguments):
        return True
    return all(fits(h, w) for h, w in zip(have_arguments, want_arguments, strict=True))


_specs: dict[Any, ClassSpec | None] = {}


def class_spec(cls: type) -> ClassSpec | None:
    """The fields of a dataclass, pydantic model or named tuple; None for any other class."""
    try:
        return _specs[cls]
    except KeyError:
        spec = _specs[cls] = _class_spec(cls, ())
        return spec


def spec_as(cls: type, annotation: Any) -> ClassSpec | None:
    """The fields of an object of class `cls` where `annotation` is declared: `G[float]` says what `T` is in them."""
    key = (cls, annotation)
    if key not in _specs:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if not arguments or not isinstance(origin, type) or not issubclass(cls, origin):
            return class_spec(cls)
        if cls is not origin:  # its parameters are those that make its base the declared one
            # Abstract classes such as Callable take arguments without naming parameters.
            own = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
            inherited = bindings(cls, getattr(cls, "__parameters__", ())).get(origin, {})
            meant = {inherited.get(parameter): value for parameter, value in own.items()}
            arguments = tuple(bound(parameter, meant) for parameter in getattr(cls, "__parameters__", ()))
        _specs[key] = _class_spec(cls, arguments)
    return _specs[key]


def class_hints(cls: type) -> dict[str, Any]:
    """Resolved annotations of a class, with their markers."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise GraphError(
            f"an annotation of {cls.__qualname__} cannot be resolved: {error}",
            next="import the name at module level, not only under TYPE_CHECKING",
        ) from error


def _class_spec(cls: type, arguments: tuple[Any, ...]) -> ClassSpec | None:
    if dataclasses.is_dataclass(cls):
        hints = bound_fields(cls, class_hints(cls), arguments)
        fields = tuple(FieldSpec(f.name, declared(hints[f.name]), f.init) for f in dataclasses.fields(cls))
        init_only = tuple(n for n, f in cls.__dataclass_fields__.items() if _is_init_var(f))
        frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        return _spec(cls, "dataclass", fields, frozen=frozen, init_only=init_only)
    if issubclass(cls, BaseModel):
        fields = tuple(
            FieldSpec(name, declared(Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation))
            for name, info in cls.model_fields.items()
        )
        return _spec(cls, "model", fields, frozen=bool(cls.model_config.get("frozen")))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = bound_fields(cls, class_hints(cls), arguments)
        fields = tuple(FieldSpec(name, declared(hints.get(name, Any))) for name in cls._fields)
        return _spec(cls, "namedtuple", fields, frozen=True)
    return None


def _spec(
    cls: type,
    kind: Literal["dataclass", "model", "namedtuple"],
    fields: tuple[FieldSpec, ...],
    *,
    frozen: bool,
    init_only: tuple[str, ...] = (),
) -> ClassSpec:
    names = {field.name for field in fields}
    derived = {n for base in cls.__mro__ for n, v in vars(base).items() if isinstance(v, functools.cached_property)}
    slots: set[str] = set()
    if kind == "dataclass":
        for base in cls.__mro__:
            own = vars(base).get("__slots__", ())
            slots.update((own,) if isinstance(own, str) else own)
    return ClassSpec(
        kind=kind,
        fields=fields,
        frozen=frozen,
        known=frozenset(names | derived | {ORIGIN}),
        other_slots=tuple(sorted(slots - names - {"__dict__", "__weakref__"})),
        init_only=init_only,
    )


def _is_init_var(field: Any) -> bool:
    return field._field_type is dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]
