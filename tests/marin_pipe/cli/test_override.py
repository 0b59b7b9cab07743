"""What overrides make of the default config, and what they are told if they cannot."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal, NamedTuple

import draccus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_pipe.cli.fields import fields_of
from marin_pipe.cli.override import override
from marin_pipe.execution.errors import ConfigurationError


class Color(Enum):
    RED = "red"
    NO = "no"


@dataclass(frozen=True, kw_only=True)
class Inner:
    lr: float = 0.1
    sizes: tuple[int, ...] = (1, 2)
    width: int = 4
    heads: int = 0

    def __post_init__(self) -> None:
        if self.heads == 0:
            object.__setattr__(self, "heads", self.width // 2)


@dataclass(frozen=True)
class Optimizer(draccus.ChoiceRegistry):
    rate: float = 0.1


@Optimizer.register_subclass("adam")
@dataclass(frozen=True)
class Adam(Optimizer):
    beta: float = 0.9


@Optimizer.register_subclass("sgd")
@dataclass(frozen=True)
class Sgd(Optimizer):
    momentum: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Config:
    n: int = 3
    x: float = 1.0
    text: str = "x"
    maybe: str | None = None
    limit: int | None = 7
    switch: bool = False
    kind: Literal["a", "on", 3] = "a"
    color: Color = Color.RED
    file: Path = Path("a")
    words: tuple[str, ...] = ("x",)
    numbers: list[int] = field(default_factory=list)
    weights: tuple[float, ...] = (1.0,)
    pair: tuple[int, str] = (1, "a")
    several: list[int] | None = None
    tags: frozenset[str] = frozenset()
    shares: dict[str, float] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    tuned: Inner = field(default_factory=lambda: Inner(lr=0.5, sizes=(8,)))
    optional: Inner | None = None
    layers: tuple[Inner, ...] = ()
    optimizer: Optimizer = Adam(rate=0.3)
    heads: int = 2
    groups: int = 2

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise ValueError(f"heads={self.heads} must be divisible by groups={self.groups}")


class Money(NamedTuple):
    cents: int


@dataclass(frozen=True)
class Budget:
    money: Money | None = None


FIELDS = fields_of(Config, default=Config())


def make(*overrides: tuple[str, str]) -> Config:
    made = override(Config, overrides, fields=FIELDS)
    assert isinstance(made, Config)
    return made


def refused(*overrides: tuple[str, str]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        make(*overrides)
    return caught.value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("n", "-3", Config(n=-3)),
        ("n", "010", Config(n=10)),
        ("x", "-1e-4", Config(x=-1e-4)),
        ("switch", "true", Config(switch=True)),
        ("switch", "off", Config(switch=False)),
        ("kind", "on", Config(kind="on")),
        ("kind", "3", Config(kind=3)),
        ("color", "no", Config(color=Color.NO)),
        ("color", "NO", Config(color=Color.NO)),
        ("file", "007", Config(file=Path("007"))),
        ("maybe", "null", Config(maybe=None)),
        ("maybe", "7", Config(maybe="7")),
        ("limit", "null", Config(limit=None)),
        ("words", "[a, true, 007, null, include b]", Config(words=("a", "true", "007", "null", "include b"))),
        ("numbers", "[3, 4]", Config(numbers=[3, 4])),
        ("pair", "[7, on]", Config(pair=(7, "on"))),
        ("tags", "[a, b]", Config(tags=frozenset("ab"))),
        ("shares", "{a: 3, on: 0.5}", Config(shares={"a": 3.0, "on": 0.5})),
        ("inner.lr", "3", Config(inner=Inner(lr=3.0))),
        ("inner", "{lr: 3}", Config(inner=Inner(lr=3.0))),
        ("optional.lr", "2", Config(optional=Inner(lr=2.0))),
        ("layers", "[{lr: 2}, {}]", Config(layers=(Inner(lr=2.0), Inner()))),
    ],
)
def test_overrides_become_typed_values(name: str, value: str, expected: Config) -> None:
    assert make((name, value)) == expected


@settings(deadline=None)  # the first example imports YAML
@given(st.text())
def test_text_stays_as_it_was_written(value: str) -> None:
    assert make(("text", value)).text == value


@pytest.mark.parametrize(
    "value",
    ["null", "true", "007", "1e3", "a: b", "#x", "[1]", "{x", "'quoted'", "\udcff", "", "include x", "include_all"],
)
def test_text_is_not_read_as_yaml(value: str) -> None:
    assert make(("text", value)).text == value


def test_the_last_of_two_overrides_stands() -> None:
    assert make(("n", "1"), ("text", "y"), ("n", "2")) == Config(n=2, text="y")


def test_overrides_are_applied_at_once() -> None:
    assert make(("groups", "5"), ("heads", "10")) == Config(heads=10, groups=5)


def test_what_is_not_overridden_inside_a_nested_object_stays_as_the_experiment_says() -> None:
    assert make(("tuned.width", "6")).tuned == Inner(lr=0.5, sizes=(8,), width=6, heads=2)
    assert make(("tuned", "{lr: 1}"), ("tuned.sizes", "[]")).tuned == Inner(lr=1.0, sizes=())


def test_what_a_nested_object_derives_from_its_defaults_follows() -> None:
    assert make(("inner.width", "8")).inner.heads == 4


def test_an_optional_object_can_be_switched_off_and_on() -> None:
    assert make(("optional.lr", "2"), ("optional", "null")).optional is None
    assert make(("optional", "null"), ("optional.lr", "2")).optional == Inner(lr=2.0)
    assert make(("optional", "{}")).optional == Inner()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([("optimizer.beta", "0.5")], Adam(rate=0.3, beta=0.5)),
        ([("optimizer.momentum", "1"), ("optimizer.type", "sgd")], Sgd(momentum=1.0)),
        ([("optimizer", "{type: sgd, rate: 2}")], Sgd(rate=2.0)),
        ([("optimizer.type", "adam")], Adam(rate=0.3)),
    ],
)
def test_registered_classes_are_chosen_by_their_type(overrides: list[tuple[str, str]], expected: Optimizer) -> None:
    assert make(*overrides).optimizer == expected


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("n", "x", "Couldn't parse 'x' into an int"),
        ("n", "3.5", "Couldn't parse '3.5' into an int"),
        ("n", "true", "Couldn't parse 'true' into an int"),
        ("n", "null", "Couldn't parse 'null' into an int"),
        ("x", "true", "Couldn't parse 'true' into a float"),
        ("numbers", "[a]", "Couldn't parse 'a' into an int"),
        ("words", "[a, [b]]", "a list is no str"),
        ("words", "{a: 1}", "a mapping is no list"),
        ("shares", "{a: x}", "Couldn't parse 'x' into a float"),
        ("pair", "[1]", "it has 1 items, not 2"),
        ("kind", "z", "'z' is none of a, on, 3"),
        ("color", "green", "'green' is none of red, no"),
        ("switch", "maybe", "Couldn't parse 'maybe' into a bool"),
        ("inner", "{lr", "it is not YAML"),
        ("inner", "{rl: 3}", "Inner has no field 'rl'"),
        ("inner", "null", "'null' is no mapping"),
        ("optimizer.type", "lion", "its type is 'lion', which is none of adam, sgd"),
        ("optimizer.momentum", "1", "Adam has no field 'momentum'"),
    ],
)
def test_a_refused_value_is_named_with_its_field(
    name: str, value: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused((name, value))
    assert error.what == f"--{name} {value!r} does not fit the config"
    assert why in error.why
    assert error.next
    assert "\n" not in error.why + error.next
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("words", "freedom", "write --words '[freedom]'"),
        ("words", "a, b", "write --words '[a, b]'"),
        ("words", "", "write --words '[]'"),
        ("words", "null", "write --words '[null]'"),
        ("numbers", "1,2", "write --numbers '[1,2]'"),
        ("numbers", "x", "numbers is list[int], by default []"),
        ("weights", "0.5", "write --weights '[0.5]'"),
        ("several", "3", "write --several '[3]'"),
        ("tags", "a", "write --tags '[a]'"),
        ("pair", "1, b", "write --pair '[1, b]'"),
        ("shares", "a=1", "write --shares '{a: 1}'"),
        ("inner", "lr=3", "write --inner '{lr: 3}'"),
        ("inner", "3", "inner is Inner"),
    ],
)
def test_a_list_or_mapping_without_brackets_is_told_how_to_write_it(name: str, value: str, way_out: str) -> None:
    assert refused((name, value)).next == way_out


def test_a_rule_of_the_config_is_told_in_its_own_words() -> None:
    error = refused(("heads", "3"))
    assert error.what == "Config: heads=3 must be divisible by groups=2"


def test_a_type_that_draccus_was_taught_is_decoded_by_it() -> None:
    draccus.decode.register(Money, lambda raw: Money(cents=round(raw * 100)))
    made = override(Budget, [("money", "1.5")], fields=fields_of(Budget, default=Budget()))
    assert made == Budget(money=Money(cents=150))
