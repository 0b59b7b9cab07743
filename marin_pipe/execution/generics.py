"""What the type parameters of a generic class stand for, in each class that its instances inherit fields from."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, get_args, get_origin

Binding = Mapping[Any, Any]
"""Type parameter -> what it stands for."""


def bindings(cls: type, arguments: Sequence[Any]) -> dict[type, Binding]:
    """For `cls[arguments]` and each of its bases; without arguments, parameters of `cls` stand for themselves."""
    found: dict[type, Binding] = {}
    waiting: list[tuple[type, Sequence[Any]]] = [(cls, arguments)]
    while waiting:
        current, given = waiting.pop()
        if current in found:
            continue
        own = found[current] = dict(zip(getattr(current, "__parameters__", ()), given, strict=False))
        for base in vars(current).get("__orig_bases__", current.__bases__):
            origin = get_origin(base) or base
            if origin not in (Generic, Protocol) and isinstance(origin, type):
                waiting.append((origin, [bound(argument, own) for argument in get_args(base)]))
    return found


def bound(annotation: Any, binding: Binding) -> Any:
    """`annotation` with type parameters replaced."""
    if not binding:
        return annotation
    if annotation in binding:
        return binding[annotation]
    inside = getattr(annotation, "__parameters__", ())
    if not inside or isinstance(annotation, type):
        return annotation
    return annotation[tuple(binding.get(parameter, parameter) for parameter in inside)]


def bound_fields(cls: type, hints: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, Any]:
    """The hints of a class's fields, each with the parameters of the class that declares it replaced."""
    by_class = bindings(cls, arguments)
    if not any(by_class.values()):
        return dict(hints)
    owners = {
        name: by_class.get(base, {}) for base in reversed(cls.__mro__) for name in vars(base).get("__annotations__", ())
    }
    return {name: bound(hint, owners.get(name, {})) for name, hint in hints.items()}
