"""Generic dataclasses and named tuples: their type parameters declare the types of their fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import pytest

from marin_pipe import OmitAt, Ref, Runtime, Step, step
from marin_pipe.execution.errors import GraphError

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Box(Generic[T]):
    value: T
    others: list[T] | None = None
    added: Annotated[T | None, OmitAt(None)] = None
    workers: Runtime[int] = 1


@dataclass
class Loose(Generic[T]):
    value: T


@dataclass(frozen=True)
class Larger(Box[T]):
    size: int = 0


@dataclass(frozen=True)
class Swapped(Generic[T, U], Larger[U]):
    """Its second parameter is what its base's first one is."""

    also: T | None = None


@dataclass(frozen=True)
class Floats(Box[float]):
    pass


class Pair(NamedTuple, Generic[T]):
    left: T
    right: T


@dataclass(frozen=True)
class Holder(Generic[T]):
    box: Box[T]
    source: Ref[T] | None = None


A: Any = "a"
"""Text where a number is declared, unseen by the type checker."""


@step
def number() -> float:
    return 1.0


@step
def text() -> str:
    return ""


NUMBER: Any = 1
TEXT: Any = text()


@step
def floats(
    box: Box[float] | None = None,
    loose: Loose[float] | None = None,
    swapped: Swapped[str, float] | None = None,
    own: Floats | None = None,
    pair: Pair[float] | None = None,
    holder: Holder[float] | None = None,
    sequence: Box[Sequence[int]] | None = None,
) -> str:
    return repr((box, loose, swapped, own, pair, holder, sequence))


@step
def anything(value: Any) -> str:
    return repr(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (floats(Box(1)), floats(Box(1.0))),
        (floats(Box(1.0, [2])), floats(Box(1, [2.0]))),
        (floats(Box(1.0, added=None)), floats(Box(1.0))),
        (floats(Box(1.0, workers=3)), floats(Box(1.0))),
        (floats(Larger(1, size=1)), floats(Larger(1.0, size=1))),
        (floats(loose=Loose(1)), floats(loose=Loose(1.0))),
        (floats(loose=Loose[int](1)), floats(loose=Loose(1.0))),
        (floats(swapped=Swapped(1)), floats(swapped=Swapped(1.0))),
        (floats(own=Floats(1)), floats(own=Floats(1.0))),
        (anything(Floats(1)), anything(Floats(1.0))),
        (floats(pair=Pair(1, 2)), floats(pair=Pair(1.0, 2.0))),
        (floats(holder=Holder(Box(1))), floats(holder=Holder(Box(1.0)))),
        (floats(sequence=Box([1, 2])), floats(sequence=Box((1, 2)))),
        (anything(Loose[int](1)), anything(Loose(1))),
    ],
)
def test_these_are_one_step(one: Step[str], other: Step[str]) -> None:
    assert one.key == other.key


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"box": Box(A)}, "box.value: expected float"),
        ({"box": Box(1.0, [A])}, r"box.others\[0\]: expected float"),
        ({"box": Larger(A)}, "box.value: expected float"),
        ({"box": Box(TEXT)}, "box.value: expected float"),
        ({"swapped": Swapped(A, also="b")}, "swapped.value: expected float"),
        ({"swapped": Swapped(1.0, also=NUMBER)}, r"swapped.also: expected str \| None"),
        ({"own": Floats(A)}, "own.value: expected float"),
        ({"pair": Pair(1.0, A)}, "pair.right: expected float"),
        ({"holder": Holder(Box(A))}, "holder.box.value: expected float"),
        ({"holder": Holder(Box(1.0), source=TEXT)}, "holder.source"),
    ],
)
def test_a_field_of_another_type_is_refused(arguments: dict[str, Any], where: str) -> None:
    with pytest.raises(GraphError, match=where):
        floats(**arguments)


def test_a_step_that_makes_the_parameter_is_taken() -> None:
    made = floats(Box(number()), holder=Holder(Box(number()), source=number()))
    assert [where for where, _ in made.bound.inputs] == ["box.value", "holder.box.value", "holder.source"]


def test_without_a_declared_parameter_values_differ_by_their_type() -> None:
    assert anything(Box(1)).key != anything(Box(1.0)).key


def test_the_body_cannot_see_parameters_that_bear_no_identity() -> None:
    assert not hasattr(anything(Loose[int](1)).bound.arguments["value"], "__orig_class__")


@step
def everything(**options: int) -> dict[str, int]:
    return options


def test_any_name_may_be_an_option() -> None:
    made = everything(self=1, function=2, args=3, kwargs=4)
    assert made.bound.canonical == {"options": {"self": 1, "function": 2, "args": 3, "kwargs": 4}}
