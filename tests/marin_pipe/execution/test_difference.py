"""Differences are named by the path a user would write, with both values."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_pipe.execution.difference import ABSENT, Change, difference, readable
from marin_pipe.execution.identity import canonical, canonical_json


@dataclasses.dataclass(frozen=True)
class Optimizer:
    lr: float = 0.1
    name: str = "adam"


@dataclasses.dataclass(frozen=True)
class Lion:
    lr: float = 0.1


@dataclasses.dataclass(frozen=True)
class Config:
    optimizer: Any = Optimizer()
    layers: tuple[int, ...] = (1, 2)
    weights: dict[Any, float] = dataclasses.field(default_factory=dict)


def ignore(_where, _obj):
    pass


def form(value):
    return canonical(value, Any, where="x", visit=ignore)


def lines(old, new):
    return [str(change) for change in difference({"config": form(old)}, {"config": form(new)})]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (Config(), Config(), []),
        (Config(), Config(Optimizer(lr=0.2)), ["config.optimizer.lr: 0.1 -> 0.2"]),
        (
            Config(),
            Config(Optimizer(lr=1.0, name="sgd"), layers=(1, 3)),
            [
                "config.optimizer.lr: 0.1 -> 1.0",
                'config.optimizer.name: "adam" -> "sgd"',
                "config.layers[1]: 2 -> 3",
            ],
        ),
        (Config(), Config(layers=(1, 2, 3)), ["config.layers[2]: (absent) -> 3"]),
        (Config(), Config(layers=(1,)), ["config.layers[1]: 2 -> (absent)"]),
        (
            Config(),
            Config(Lion()),
            ['config.optimizer: Optimizer(lr=0.1, name="adam") -> Lion(lr=0.1)'],
        ),
        (
            Config(weights={"a b": 1.0}),
            Config(weights={"a b": 2.0, "c": 1.0}),
            ["config.weights['a b']: 1.0 -> 2.0", "config.weights['c']: (absent) -> 1.0"],
        ),
        (Config(weights={1: 1.0}), Config(weights={1: 2.0}), ["config.weights[1]: 1.0 -> 2.0"]),
        ([{1}], [{1, 2}], ["config[0]{2}: (absent) -> 2"]),
        (1, 1.0, ["config: 1 -> 1.0"]),
        (1, True, ["config: 1 -> True"]),
        ([1], (1,), ["config: [1] -> (1,)"]),
        (None, float("nan"), ["config: None -> nan"]),
    ],
)
def test_changes_read_as_a_user_would_write_them(old, new, expected):
    assert lines(old, new) == expected


def test_arguments_that_came_or_went():
    assert difference({"a": 1}, {"b": 2}) == [Change("a", 1, ABSENT), Change("b", ABSENT, 2)]


def test_the_key_of_an_input_is_told_from_its_own_changes():
    old, new = {"$step": "a" * 64}, {"$step": "b" * 64}
    (change,) = difference({"corpus": [old]}, {"corpus": [new]})
    assert (change.path, change.is_input) == ("corpus[0]", True)
    assert str(change) == "corpus[0]: step aaaaaaaaaaaaaaaa -> step bbbbbbbbbbbbbbbb"
    (path,) = difference({"c": {**old, "path": "train"}}, {"c": {**old, "path": "test"}})
    assert str(path) == "c: step aaaaaaaaaaaaaaaa / train -> step aaaaaaaaaaaaaaaa / test"
    assert not path.is_input, "the upstream step is the same; the path is this step's own argument"
    assert not Change("x", old, 1).is_input


def test_a_changed_file_is_named():
    old = {"$files": [["a.txt", 1, "sha256:00"], ["b.txt", 2, "sha256:11"]]}
    new = {"$files": [["a.txt", 1, "sha256:00"], ["b.txt", 3, "sha256:22"]]}
    assert [str(c) for c in difference({"data": old}, {"data": new})] == [
        "data['b.txt']: 2 bytes, sha256:11 -> 3 bytes, sha256:22"
    ]


def test_long_values_are_cut():
    assert len(readable(form(list(range(1000))))) == 100


leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=2) | st.just(Optimizer())
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 2), inner, max_size=3)
        | st.sets(st.integers(0, 3), max_size=3)
    ),
    max_leaves=8,
)


@given(trees, trees)
def test_nothing_differs_exactly_if_the_forms_are_equal(old, new):
    changes = difference({"a": form(old)}, {"a": form(new)})
    assert (changes == []) == (canonical_json(form(old)) == canonical_json(form(new)))
    assert all(c.path.startswith("a") and readable(c.old) != "" != readable(c.new) for c in changes)
