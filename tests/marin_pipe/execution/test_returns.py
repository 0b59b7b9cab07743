"""What steps may be annotated to return, and what comes back of nan and infinities."""

import datetime
import math
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, NewType, NotRequired, Protocol, TypedDict, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import Lab
from pydantic import BaseModel, Field
from upath import UPath

from marin_pipe import Artifact, Step, step
from marin_pipe.execution.backends.results import encode_result
from marin_pipe.execution.errors import GraphError, ResultError
from marin_pipe.execution.load import revive
from marin_pipe.execution.records import Record, encode, parse


class Score(Artifact):
    value: float = 0.0
    by_name: dict[str, float] = Field(default_factory=dict)
    curve: list[float | None] = Field(default_factory=list)
    best: tuple[int, float] = (0, 0.0)


@dataclass
class Point:
    x: int


class Pair(NamedTuple):
    x: int


class Model(BaseModel):
    x: int


class Mode(Enum):
    FAST = 1


class Entry(TypedDict):
    score: float
    name: NotRequired[str]


class Bad(TypedDict):
    points: list[Point]


class Supports(Protocol):
    def run(self) -> int: ...


Name = NewType("Name", str)
T = TypeVar("T")


def annotated(annotation: Any) -> Any:
    def body() -> Any: ...

    body.__qualname__ = body.__name__ = "make"
    body.__annotations__["return"] = annotation
    return step(body)


@pytest.mark.parametrize(
    ("annotation", "part"),
    [
        (set, "set"),
        (frozenset[str], "frozenset[str]"),
        (np.ndarray, "ndarray"),
        (np.float32, "float32"),
        (Point, "Point"),
        (Pair, "Pair"),
        (Model, "Model"),
        (Mode, "Mode"),
        (Literal[Mode.FAST], "Literal"),
        (bytes, "bytes"),
        (complex, "complex"),
        (Path, "Path"),
        (UPath, "UPath"),
        (datetime.datetime, "datetime"),
        (Generator[int, None, None], "Generator[int, None, None]"),
        (Iterator[int], "Iterator[int]"),
        (Callable[[], int], "Callable"),
        (type[int], "type[int]"),
        (Step[int], "Step[int]"),
        (Score | Path, "and Path in it"),
        (list[np.ndarray], "and ndarray in it"),
        (dict[str, set[int]], "and set[int] in it"),
        (dict[int, str], "dict[int, str]"),
        (tuple[int, bytes], "and bytes in it"),
        (Sequence[Point] | None, "and Point in it"),
        (list[Score], "and Score in it"),
        (Bad, "and Point in it"),
    ],
)
def test_what_can_never_be_stored_is_refused_when_the_step_is_built(annotation: Any, part: str) -> None:
    make = annotated(annotation)
    with pytest.raises(GraphError) as caught:
        make()
    assert "step make" in caught.value.what
    assert part in caught.value.what
    assert f"make in {__file__}, line " in caught.value.what
    assert "Artifact" in caught.value.next


@pytest.mark.parametrize(
    "annotation",
    [
        *(None, Any, object, bool, int, float, str, list, tuple, dict, Score, Score | None, Artifact),
        *(list[int], tuple[int, ...], tuple[str, float], dict[str, list[float | None]], dict[Literal["a", "b"], int]),
        *(Mapping[str, Any], Sequence[str], Iterable[int], Hashable, Supports, Entry, Name, T, Literal["a", 1, None]),
    ],
)
def test_what_may_be_stored_is_not(annotation: Any) -> None:
    assert annotated(annotation).returns == (annotation if annotation is not None else type(None))


@step
def numbers():
    yield 1


@step
async def later() -> int:
    return 1


@pytest.mark.parametrize(("make", "words"), [(numbers, "returns a generator"), (later, "returns a coroutine")])
def test_bodies_that_would_not_run_are_refused(make: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        make()


SPECIAL = [math.nan, math.inf, -math.inf]


def there_and_back(value: Any, annotation: Any) -> Any:
    """Through a record's bytes."""
    result, kind = encode_result(value, annotation, step="s")
    record = {**RECORD, "result": result, "result_type": kind}
    stored = parse(Record, encode(Record(**record)), key="record")
    return revive(stored.result, annotation, data_url="", where="s")


RECORD: dict[str, Any] = {
    **dict.fromkeys(("name", "function", "module", "version", "key", "build_key", "resources"), ""),
    "arguments": {},
    "provenance": {
        **dict.fromkeys(("run", "host", "user", "python", "packages"), ""),
        **dict.fromkeys(("experiment", "git_commit", "git_dirty_digest")),
        "argv": (),
    },
}


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize(
    ("make", "annotation"),
    [
        (lambda x: x, float),
        (lambda x: x, float | None),
        (lambda x: x, int | float),
        (lambda x: {"loss": x, "other": 1.0}, dict[str, float]),
        (lambda x: {"loss": [1.0, x]}, dict[str, list[float]]),
        (lambda x: {"loss": [1.0, x]}, Mapping[str, Sequence[float] | None]),
        (lambda x: (1, x), tuple[int, float]),
        (lambda x: (x, x), tuple[float, ...]),
        (lambda x: ("NaN", x), tuple[str, float]),
        (lambda x: {"score": x, "name": "Infinity"}, Entry),
        (lambda x: Score(value=x), Score),
        (lambda x: Score(by_name={"a": x}, curve=[None, x], best=(1, x)), Score),
        (lambda x: Score(by_name={"a": x}), Score | None),
    ],
)
def test_special_floats_come_back_where_floats_are_declared(make: Any, annotation: Any, special: float) -> None:
    value = make(special)
    again = there_and_back(value, annotation)
    assert type(again) is type(value)
    assert repr(again) == repr(value)


@given(st.dictionaries(st.text(), st.lists(st.floats() | st.none())))
def test_any_floats_come_back(value: dict[str, list[float | None]]) -> None:
    assert repr(there_and_back(value, dict[str, list[float | None]])) == repr(value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "nan"])
@pytest.mark.parametrize("annotation", [str, str | None, Any, float | str])
def test_text_that_looks_like_one_stays_text(text: str, annotation: Any) -> None:
    assert there_and_back(text, annotation) == text


@pytest.mark.parametrize("annotation", [Any, float | str, float | Any, dict[str, Any], list, Mapping])
@pytest.mark.parametrize("special", SPECIAL)
def test_where_no_float_is_declared_they_are_refused(annotation: Any, special: float) -> None:
    value: Any = {"a": special} if annotation in (dict[str, Any], Mapping) else [special]
    value = value if annotation in (Any, dict[str, Any], list, Mapping) else special
    with pytest.raises(ResultError, match="no such number") as caught:
        encode_result(value, annotation, step="s")
    assert "-> float" in caught.value.next


WRONG = """
from typing import Any
from marin_pipe import step

class Thing:
    pass

@step
def text() -> int:
    return "x"

@step
def thing() -> Any:
    return [Thing()]

@step
def loss() -> dict[str, float]:
    return {"train": float("nan"), "eval": float("inf")}

@step
def show(losses: dict[str, float]) -> str:
    return repr(losses)
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [("text", "the result: expected int, got 'x' (str)"), ("thing", "the result[0] is a Thing, which JSON has no")],
)
def test_a_wrong_result_is_explained_with_its_function(lab: Lab, name: str, says: str) -> None:
    module = lab.module(WRONG)
    failure = lab.run(getattr(module, name)())[name].failure
    assert failure is not None
    assert says in failure.message
    assert f"({name} in {lab.folder / 'exp.py'}, line " in failure.message
    assert "argument the result" not in failure.message
    assert "exp.Thing" not in failure.message


def test_a_consumer_and_load_get_them_back(lab: Lab) -> None:
    module = lab.module(WRONG)
    made = module.show(module.loss())
    assert lab.statuses(made) == {"loss": "built", "show": "built"}
    assert made.load(root=lab.root) == "{'train': nan, 'eval': inf}"
    assert repr(module.loss().load(root=lab.root)) == "{'train': nan, 'eval': inf}"
