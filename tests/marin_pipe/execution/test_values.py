"""Coercion: one value however it is written, and an error for what does not fit."""

import collections
import dataclasses
import enum
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import GenericAlias
from typing import Any, Literal, NamedTuple, NewType, NotRequired, Protocol, TypedDict, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError, field_validator

from marin_pipe.execution.binding import substitute
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.handle import Ref, Step
from marin_pipe.execution.markers import Artifact, Runtime
from marin_pipe.execution.step import step
from marin_pipe.execution.values import coerce


def accepted(value, annotation):
    return coerce(value, annotation, where="argument x")


def exactly(left, right):
    """Equal with equal types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(exactly, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(exactly(v, right[k]) for k, v in left.items())
    return left == right


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


class Loud(str):
    __slots__ = ()


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Typed(TypedDict):
    a: float
    b: NotRequired[tuple[int, ...]]


class Readable(Protocol):
    def read(self) -> str: ...


UserId = NewType("UserId", int)
Number = TypeVar("Number", int, float)
Anything = TypeVar("Anything")
Bounded = TypeVar("Bounded", bound=float)


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (1, float, 1.0),
        (1, int, 1),
        (1, complex, 1 + 0j),
        (np.int64(3), int, 3),
        (np.float32(0.5), float, 0.5),
        (np.int64(3), float, 3.0),
        (np.bool_(True), bool, True),
        (np.str_("a"), str, "a"),
        (Size.SMALL, int, 1),
        (Loud("a"), str, "a"),
        (bytearray(b"a"), bytes, b"a"),
        ((1, 2), list[int], [1, 2]),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, 2], tuple[float, int], (1.0, 2)),
        ([], tuple[()], ()),
        (range(2), list[int], [0, 1]),
        ((1, 2), Sequence[float], [1.0, 2.0]),
        ([1, 2], Iterable[int], [1, 2]),
        ({1, 2}, frozenset[int], frozenset({1, 2})),
        ({1}, AbstractSet[float], frozenset({1.0})),
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        (collections.OrderedDict(a=1), Mapping[str, int], {"a": 1}),
        ({"a": 1, "b": [2]}, Typed, {"a": 1.0, "b": (2,)}),
        ("a", Path, Path("a")),
        (Color.RED, Color, Color.RED),
        ("red", Color, Color.RED),
        (1, Literal[1, "a"], 1),
        (None, int | None, None),
        (1, float | None, 1.0),
        (1, int | float, 1),
        (1, float | int, 1),
        (True, int | bool, True),
        ("a", Path | str, "a"),
        ([1, 2.5], list[int] | list[float], [1.0, 2.5]),
        (1, UserId, 1),
        (1, Number, 1),
        (1, Bounded, 1.0),
        ("a", Anything, "a"),
        (int, type[int], int),
        (bool, type, bool),
        (math.sqrt, Callable[[float], float], math.sqrt),
        (1, Any, 1),
        ((1, [2]), object, (1, [2])),
        (Point(1, 2), Point, Point(1.0, 2.0)),
        (Point(1, 2), tuple[int, int], (1, 2)),
        ("s3://b/k", str | os.PathLike, "s3://b/k"),
    ],
)
def test_values_become_their_declared_type(value, annotation, expected):
    assert exactly(accepted(value, annotation), expected)


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (True, int, "x: expected int, got True (bool)"),
        (1, bool, "x: expected bool, got 1 (int)"),
        (1.0, int, "x: expected int, got 1.0 (float)"),
        ("1", int, "x: expected int, got '1' (str)"),
        (True, float, "x: expected float, got True (bool)"),
        (2**53 + 1, float, "no exact float"),
        (10**400, float, "no exact float"),
        (1, str, "x: expected str, got 1 (int)"),
        (Path("a"), str, "expected str"),
        ("abc", list[str], "x: expected list[str], got 'abc' (str)"),
        ({1}, list[int], "expected list[int]"),
        ([1], set[int], "expected set[int]"),
        ((x for x in "a"), Iterable[str], "expected Iterable[str]"),
        ([1, "a"], list[int], "x[1]: expected int, got 'a' (str)"),
        ([1], tuple[int, int], "it has 1 elements, not 2"),
        ({"a": {"b": [1, None]}}, dict[str, dict[str, list[int]]], "x['a']['b'][1]: expected int, got None"),
        ({1: 1}, dict[str, int], "x[1]: expected str"),
        ({"b": []}, Typed, "missing keys: ['a']"),
        ({"a": 1, "c": 1}, Typed, "unknown keys: ['c']"),
        ("green", Color, "expected Color (RED, BLUE)"),
        (True, Literal[1], "expected one of 1"),
        (1.5, int | str, "x: expected int | str, got 1.5 (float)"),
        ([1, 1.5], list[int] | None, "x[1]: expected int, got 1.5 (float)"),
        (int, type[str], "expected type[str]"),
        (1, Callable, "expected Callable"),
        ({"lr": 1}, Point, "expected Point"),
        ({1: "a", 1.5: "b"}, dict[int, str], "x[1.5]: expected int"),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_where(value, annotation, message):
    with pytest.raises(GraphError, match=re.escape("argument x")) as caught:
        accepted(value, annotation)
    assert message in str(caught.value)


def test_the_written_order_of_a_union_decides_nothing():
    # Python takes these for one type and may hand out either.
    assert exactly(accepted(1, complex | float), accepted(1, float | complex))
    assert exactly(accepted([1], list[complex | float]), accepted([1], list[float | complex]))


def test_misplaced_markers_are_errors():
    with pytest.raises(GraphError, match="inside another one"):
        accepted([1], list[Runtime[int]])


primitives = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()


@given(st.recursive(primitives, lambda v: st.lists(v) | st.dictionaries(st.text(), v) | st.lists(v).map(tuple)))
def test_undeclared_values_stay_what_they_are(value):
    assert exactly(accepted(value, Any), value)


@given(st.lists(st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)))
def test_coercion_is_idempotent(values):
    once = accepted(values, tuple[float, ...])
    assert exactly(accepted(once, tuple[float, ...]), once)
    assert list(once) == values


# --- classes ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    lr: float = 0.1
    betas: tuple[float, ...] = ()
    scale: float = dataclasses.field(init=False, default=0.0)

    def __post_init__(self):
        if self.lr < 0:
            raise ValueError(f"lr={self.lr} must not be negative")
        object.__setattr__(self, "scale", self.lr * 2)


@dataclasses.dataclass
class Config:
    optimizer: Optimizer = Optimizer()
    sources: list[str] = dataclasses.field(default_factory=list)
    anything: Any = None


@dataclasses.dataclass(frozen=True)
class Forgetful:
    lr: float
    factor: dataclasses.InitVar[float] = 1.0


class Model(BaseModel):
    lr: float = 0.1
    optimizer: Optimizer = Optimizer()


def test_fields_are_coerced_through_the_constructor():
    made = accepted([Optimizer(lr=1, betas=[0, 1])], list[Optimizer])[0]  # type: ignore[arg-type]
    assert (type(made.lr), made.lr, made.betas, made.scale) == (float, 1.0, (0.0, 1.0), 2.0)
    assert accepted(Config(anything=Optimizer(lr=1)), Any).anything.lr.is_integer()


def test_an_object_that_fits_is_not_rebuilt():
    value = Optimizer(lr=0.5)
    assert accepted(value, Optimizer) is value
    model = Model()
    assert accepted(model, Model).lr == model.lr


def test_a_wrong_field_is_named():
    with pytest.raises(GraphError, match=re.escape("argument x[0].optimizer.lr: expected float, got '1' (str)")):
        accepted([_broken()], Any)


def _broken():
    optimizer = Optimizer()
    object.__setattr__(optimizer, "lr", "1")
    return Config(optimizer)


def test_init_only_values_cannot_be_rebuilt():
    assert accepted(Forgetful(0.5, 2.0), Any) == Forgetful(0.5)
    with pytest.raises(GraphError, match="factor"):
        accepted(Forgetful(1, 2.0), Any)


def test_a_subclass_keeps_its_class():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Special(Optimizer):
        extra: int = 1

    assert type(accepted(Special(lr=1), Optimizer)) is Special
    with pytest.raises(GraphError, match="expected Optimizer"):
        accepted(Config(), Optimizer)


# --- copies ----------------------------------------------------------------------------------------------------------


def test_later_changes_by_the_caller_do_not_reach_the_step():
    array = np.zeros(2)
    config = Config(sources=["a"], anything={"k": [1, {2}, array, bytearray(b"a")]})
    model = Model()
    kept, kept_model = accepted(config, Config), accepted(model, Model)
    config.sources.append("b")
    config.anything["k"].append(5)
    config.anything["k"][1].add(6)
    config.anything["k"][3].append(1)
    array[0] = 1
    config.optimizer = Optimizer(lr=9)
    model.lr = 9.0
    assert kept.sources == ["a"]
    assert kept.anything["k"][:2] == [1, {2}]
    assert len(kept.anything["k"]) == 4
    assert kept.anything["k"][2].tolist() == [0, 0]
    assert kept.anything["k"][3] == b"a"
    assert kept.optimizer.lr == 0.1
    assert kept_model.lr == 0.1


# --- handles ---------------------------------------------------------------------------------------------------------


class Documents(Artifact):
    count: int


class Cleaned(Documents):
    pass


RefToDocuments: Any = Ref[Documents]  # type: ignore[misc]


@step
def make_documents() -> Documents:
    raise NotImplementedError


@step
def make_cleaned() -> Cleaned:
    raise NotImplementedError


@step
def make_int() -> int:
    raise NotImplementedError


@step
def make_bool() -> bool:
    raise NotImplementedError


@step
def make_str() -> str:
    raise NotImplementedError


@step
def make_list() -> list[int]:
    raise NotImplementedError


@step
def make_dict() -> dict[str, Any]:
    raise NotImplementedError


@step
def make_either() -> int | None:
    raise NotImplementedError


@step
def make_nothing() -> None:
    pass


@step
def make_unknown():
    pass


@pytest.mark.parametrize(
    ("function", "annotation", "fits"),
    [
        (make_documents, Documents, True),
        (make_cleaned, Documents, True),
        (make_documents, Cleaned, False),
        (make_documents, Documents | None, True),
        (make_documents, RefToDocuments, True),
        (make_documents, Step[Documents], True),
        (make_documents, Step, True),
        (make_documents, Any, True),
        (make_documents, object, True),
        (make_documents, Anything, True),
        (make_documents, int, False),
        (make_documents, str, False),
        (make_documents, Path, False),
        (make_documents, list[Documents], False),
        (make_int, Documents, False),
        (make_int, RefToDocuments, False),
        (make_int, Step[Documents], False),
        (make_int, int, True),
        (make_int, float, True),
        (make_int, bool, False),
        (make_int, Literal[1, 2], True),
        (make_bool, int, False),
        (make_bool, bool, True),
        (make_str, str, True),
        (make_str, Path, True),
        (make_list, list[int], True),
        (make_list, tuple[int, ...], True),
        (make_list, Sequence[int], True),
        (make_list, list[str], False),
        (make_list, dict[str, int], False),
        (make_dict, Mapping[str, int], True),
        (make_dict, Typed, True),
        (make_either, int, True),
        (make_either, str, False),
        (make_nothing, None, True),
        (make_nothing, int, False),
        (make_unknown, Documents, True),
        (make_unknown, int, True),
        (make_documents, Readable, True),
    ],
)
def test_a_step_fits_by_what_its_function_returns(function, annotation, fits):
    handle = function()
    if fits:
        assert accepted(handle, annotation) is handle
        assert accepted([handle], GenericAlias(list, (annotation,)))[0] is handle
    else:
        with pytest.raises(GraphError, match=f"argument x: expected .*step {function.name} returns|expected"):
            accepted(handle, annotation)


@pytest.mark.parametrize(
    ("annotation", "fits"),
    [(Path, True), (os.PathLike, True), (Any, True), (RefToDocuments, True), (str, False), (Documents, False)],
)
def test_a_path_in_a_step_fits_where_paths_do(annotation, fits):
    path = make_documents() / "train"
    if fits:
        assert accepted(path, annotation) is path
    else:
        with pytest.raises(GraphError, match="would receive a path"):
            accepted(path, annotation)


def test_an_uncalled_step_function_is_explained():
    with pytest.raises(GraphError, match=re.escape("call it: make_documents(...)")):
        accepted(make_documents, Documents)


# --- substitution ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Uses:
    corpus: Ref[Documents]
    size: int = 1

    def __post_init__(self):
        if isinstance(self.corpus, Documents) and self.corpus.count < 1:
            raise ValueError("no documents")


class ModelUses(BaseModel):
    corpora: list[Ref[Documents]]

    @field_validator("corpora")
    @classmethod
    def some(cls, corpora):
        if any(isinstance(c, Documents) and c.count < 1 for c in corpora):
            raise ValueError("no documents")
        return corpora


def test_loaded_values_take_the_place_of_handles_everywhere():
    handle, loaded = make_documents(), Documents(count=3)
    value = [Uses(handle), ModelUses(corpora=[handle]), {"k": (handle, 1)}, {handle}, handle]
    made = substitute(value, lambda h: loaded if h is handle else pytest.fail("another handle"))
    assert made == [Uses(loaded), ModelUses(corpora=[loaded]), {"k": (loaded, 1)}, {loaded}, loaded]


def test_what_holds_no_handle_is_returned_as_it_is():
    value = [Optimizer(), {"a": (1, 2)}, Model()]
    assert substitute(value, lambda _: pytest.fail("there is no handle")) is value


def test_validators_see_the_loaded_values():
    empty = Documents(count=0)
    with pytest.raises(ValueError, match="no documents"):
        substitute(Uses(make_documents()), lambda _: empty)
    with pytest.raises(ValidationError, match="no documents"):
        substitute(ModelUses(corpora=[make_documents()]), lambda _: empty)
