"""The fields of a config, as the command line and its help see them."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import draccus
import pytest

from marin_pipe.cli.fields import check_reserved, field_docs, fields_of
from marin_pipe.execution.errors import ConfigurationError


class Color(Enum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Inner:
    lr: float = 0.1
    """Learning rate, after warm-up.

    More words that the help leaves out.
    """
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Optimizer(draccus.ChoiceRegistry):
    pass


@Optimizer.register_subclass("adam")
@dataclass(frozen=True)
class Adam(Optimizer):
    beta: float = 0.9


@dataclass(frozen=True, kw_only=True)
class Config:
    n: int = 3
    text: str = "x"
    maybe: str | None = None
    kind: Literal["a", "b"] = "a"
    color: Color = Color.RED
    inner: Inner = field(default_factory=lambda: Inner(lr=0.5))
    optional: Inner | None = None
    many: dict[str, list[Inner]] = field(default_factory=dict)
    optimizer: Optimizer = Adam()


FIELDS = fields_of(Config, default=Config())


def test_fields_are_described_for_the_help() -> None:
    described = {f.name: (f.type_text, f.default) for f in FIELDS.by_name.values()}
    assert described == {
        "n": ("int", "3"),
        "text": ("str", "'x'"),
        "maybe": ("str | None", "None"),
        "kind": ("'a' | 'b'", "'a'"),
        "color": ("Color", "red"),
        "inner": ("Inner", ""),
        "inner.lr": ("float", "0.5"),
        "inner.sizes": ("tuple[int, ...]", "(1, 2)"),
        "optional": ("Inner | None", "None"),
        "optional.lr": ("float", "0.1"),
        "optional.sizes": ("tuple[int, ...]", "(1, 2)"),
        "many": ("dict[str, list[Inner]]", "{}"),
        "optimizer": ("Optimizer", ""),
        "optimizer.beta": ("float", "0.9"),
    }
    assert field_docs(Inner) == {"lr": "Learning rate, after warm-up."}


def test_a_field_with_the_name_of_a_flag_is_refused() -> None:
    @dataclass(frozen=True)
    class Clash:
        max_concurrent: int = 1

    with pytest.raises(ConfigurationError, match="'max_concurrent' of Clash has the name of a flag"):
        check_reserved(fields_of(Clash, default=Clash()), frozenset({"max-concurrent"}), config_class=Clash)
