"""What `build` may take."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from marin_pipe.cli.config import config_class, default_config
from marin_pipe.execution.errors import ConfigurationError


@dataclass(frozen=True)
class Config:
    n: int = 3


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
