"""The config object: what `build` may take, and what draccus makes of overrides."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_pipe.cli.config import config_class, default_config, override
from marin_pipe.cli.fields import check_reserved, field_docs, fields_of
from marin_pipe.execution.errors import ConfigurationError


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    lr: float = 0.1
    """Learning rate, after warm-up.

    More words that the help leaves out.
    """
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Config:
    n: int = 3
    text: str = "x"
    maybe: str | None = None
    switch: bool = False
    kind: Literal["a", "b"] = "a"
    color: Color = Color.RED
    inner: Inner = field(default_factory=Inner)
    optional: Inner | None = None

    def __post_init__(self) -> None:
        if self.n > 9:
            raise ValueError(f"n={self.n} must be at most 9")


FIELDS = fields_of(Config, default=Config())


def make(*overrides: tuple[str, str]) -> Config:
    made = override(Config, overrides, fields=FIELDS)
    assert isinstance(made, Config)
    return made


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("n", "-3", Config(n=-3)),
        ("switch", "true", Config(switch=True)),
        ("kind", "b", Config(kind="b")),
        ("color", "blue", Config(color=Color.BLUE)),
        ("inner.lr", "-1e-4", Config(inner=Inner(lr=-1e-4))),
        ("inner.sizes", "[3, 4]", Config(inner=Inner(sizes=(3, 4)))),
        ("inner", "{lr: 3}", Config(inner=Inner(lr=3.0))),
        ("optional.lr", "2", Config(optional=Inner(lr=2.0))),
        ("maybe", "null", Config(maybe=None)),
        ("maybe", "7", Config(maybe="7")),
    ],
)
def test_overrides_become_typed_values(name: str, value: str, expected: Config) -> None:
    assert make((name, value)) == expected


@given(st.text())
def test_text_stays_as_it_was_written(value: str) -> None:
    assert make(("text", value)).text == value


@pytest.mark.parametrize("value", ["null", "true", "007", "1e3", "a: b", "#x", "[1]", "{x", "'quoted'", "\udcff", ""])
def test_text_is_not_read_as_yaml(value: str) -> None:
    assert make(("text", value)).text == value


def test_the_last_of_two_overrides_stands() -> None:
    assert make(("n", "1"), ("text", "y"), ("n", "2")) == Config(n=2, text="y")


@pytest.mark.parametrize(
    ("name", "value", "what", "why"),
    [
        ("n", "x", "--n 'x' does not fit", "Couldn't parse 'x' into an int"),
        ("n", "3.5", "--n '3.5' does not fit", "Couldn't parse '3.5' into an int"),
        ("inner.sizes", "[a]", "--inner.sizes '[a]' does not fit", "Couldn't parse 'a' into an int"),
        ("kind", "z", "--kind 'z' does not fit", "invalid choice: 'z'"),
        ("switch", "maybe", "--switch 'maybe' does not fit", "Couldn't parse 'maybe' into a bool"),
        ("inner", "{lr", "--inner '{lr' does not fit", "not YAML"),
        ("n", "10", "Config: n=10 must be at most 9", ""),
    ],
)
def test_a_refused_value_is_named_with_its_field(
    name: str, value: str, what: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make((name, value))
    assert caught.value.what.startswith(what)
    assert why in caught.value.why
    assert caught.value.next
    assert capsys.readouterr() == ("", "")


def test_fields_are_described_for_the_help() -> None:
    described = {f.name: (f.type_text, f.default) for f in FIELDS.by_name.values()}
    assert described == {
        "n": ("int", "3"),
        "text": ("str", "'x'"),
        "maybe": ("str | None", "None"),
        "switch": ("bool", "False"),
        "kind": ("'a' | 'b'", "'a'"),
        "color": ("Color", "red"),
        "inner": ("Inner", ""),
        "inner.lr": ("float", "0.1"),
        "inner.sizes": ("tuple[int, ...]", "(1, 2)"),
        "optional": ("Inner | None", "None"),
        "optional.lr": ("float", "0.1"),
        "optional.sizes": ("tuple[int, ...]", "(1, 2)"),
    }
    assert field_docs(Inner) == {"lr": "Learning rate, after warm-up."}


def test_a_field_with_the_name_of_a_flag_is_refused() -> None:
    @dataclass(frozen=True)
    class Clash:
        max_concurrent: int = 1

    with pytest.raises(ConfigurationError, match="'max_concurrent' of Clash has the name of a flag"):
        check_reserved(fields_of(Clash, default=Clash()), frozenset({"max-concurrent"}), config_class=Clash)


def takes_nothing() -> dict[str, Any]:
    return {}


def takes_config(config: Config) -> dict[str, Any]:
    return {"n": config.n}


def test_what_build_takes() -> None:
    assert config_class(takes_nothing) is None
    assert config_class(takes_config) is Config


@dataclass
class Thawed:
    n: int = 1


@dataclass(frozen=True)
class Incomplete:
    n: int


def test_builds_that_are_refused() -> None:
    def two(a: Config, b: Config) -> None: ...

    def bare(config) -> None: ...

    def number(config: int) -> None: ...

    def thawed(config: Thawed) -> None: ...

    refused: list[tuple[Callable[..., Any], str]] = [
        (two, r"build\(a, b\) takes 2 arguments"),
        (bare, "which is no dataclass"),
        (number, "is annotated <class 'int'>"),
        (thawed, "the config Thawed is not frozen"),
    ]
    for build, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            config_class(build)
    with pytest.raises(ConfigurationError, match="'n' of Incomplete has no default"):
        default_config(Incomplete)


def test_the_defaults_need_no_draccus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "draccus", None)  # an import of it would fail
    assert default_config(Config) == Config()
