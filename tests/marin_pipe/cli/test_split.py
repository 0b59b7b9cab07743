"""argv divided between click and draccus."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_pipe.cli.fields import NO_FIELDS, fields_of
from marin_pipe.cli.split import find_command, split
from marin_pipe.execution.errors import ConfigurationError

FLAGS = {"--only": True, "--max-concurrent": True, "--no-wait": False, "--debug": False, "-f": False, "--help": False}
COMMANDS = ("run", "plan", "logs")


@dataclass(frozen=True)
class Inner:
    lr: float = 0.1
    warm: bool = False
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Config:
    n: int = 1
    run_name: str = "x"
    shuffle: bool = False
    sizes: tuple[int, ...] = ()
    shares: dict[str, int] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


FIELDS = fields_of(Config, default=Config())


def test_flags_and_overrides_in_any_order() -> None:
    parts = split(
        ["--inner.lr", "-0.5", "--only", "a*", "STEP", "--n=-3", "-f", "--sizes", "[1, 2]", "--no-wait"],
        flags=FLAGS,
        fields=FIELDS,
    )
    assert parts.arguments == ("--only", "a*", "STEP", "-f", "--no-wait")
    assert parts.overrides == (("inner.lr", "-0.5"), ("n", "-3"), ("sizes", "[1, 2]"))


@pytest.mark.parametrize(
    ("argv", "override"),
    [
        (["--shuffle"], ("shuffle", "true")),
        (["--shuffle", "--debug"], ("shuffle", "true")),
        (["--shuffle", "no"], ("shuffle", "no")),
        (["--shuffle=false"], ("shuffle", "false")),
        (["--inner.warm", "STEP"], ("inner.warm", "true")),
        (["--run_name="], ("run_name", "")),
        (["--run-name", "a=b"], ("run_name", "a=b")),
        (["--run_name=--odd"], ("run_name", "--odd")),
        (["--n", "-1e3"], ("n", "-1e3")),
    ],
)
def test_values_of_overrides(argv: list[str], override: tuple[str, str]) -> None:
    assert split(argv, flags=FLAGS, fields=FIELDS).overrides == (override,)


def test_a_bare_switch_leaves_the_next_word_alone() -> None:
    assert split(["--shuffle", "STEP"], flags=FLAGS, fields=FIELDS).arguments == ("STEP",)


@pytest.mark.parametrize("written", ["--max-concurrent", "--max_concurrent"])
def test_flags_may_be_written_with_underscores(written: str) -> None:
    assert split([written, "3"], flags=FLAGS, fields=FIELDS).arguments == ("--max-concurrent", "3")
    assert split([f"{written}=3"], flags=FLAGS, fields=FIELDS).arguments == ("--max-concurrent=3",)


def test_after_two_dashes_everything_is_for_click() -> None:
    parts = split(["--n", "2", "--", "--n", "3"], flags=FLAGS, fields=FIELDS)
    assert parts.arguments == ("--", "--n", "3")
    assert parts.overrides == (("n", "2"),)


@pytest.mark.parametrize(
    ("argv", "what", "next_"),
    [
        (["--inner.lrr", "1"], "--inner.lrr is neither a flag", "did you mean --inner.lr?"),
        (["--no-wiat"], "--no-wiat is neither a flag", "did you mean --no-wait?"),
        (["--runname", "1"], "--runname is neither", "did you mean --run_name?"),
        (["--zzz"], "--zzz is neither", "see --help"),
        (["--n"], "--n needs a value", "write --n VALUE"),
        (["--n", "--debug"], "--n needs a value", "write --n VALUE"),
        (["--no-shuffle"], "--no-shuffle is neither a flag", "write --shuffle false"),
        (["--no_inner.warm"], "--no_inner.warm is neither a flag", "write --inner.warm false"),
        (["--shares.a", "3"], "--shares.a is neither a flag", "write --shares '{a: 3}'"),
        (["--inner.sizes.0", "3"], "--inner.sizes.0 is neither a flag", "write --inner.sizes '[...]'"),
        (["--run-name.x", "3"], "--run-name.x is neither a flag", "did you mean --run_name?"),
    ],
)
def test_what_is_refused_is_named_with_a_way_out(argv: list[str], what: str, next_: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        split(argv, flags=FLAGS, fields=FIELDS)
    assert caught.value.what.startswith(what)
    assert next_ in caught.value.next


def test_without_a_config_every_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--n is not a flag of this command"):
        split(["--n", "1"], flags=FLAGS, fields=NO_FIELDS)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        ([], None),
        (["plan"], "plan"),
        (["--n", "3", "plan"], "plan"),
        (["--run_name", "plan", "logs"], "logs"),
        (["--shuffle", "plan"], "plan"),
        (["--only", "plan", "logs"], "logs"),
        (["--unknown", "plan"], "plan"),
        (["--unknown", "3", "plan"], "plan"),
        (["--n=3", "--debug"], None),
        (["logs", "plan"], "logs"),
        (["--", "plan"], None),
    ],
)
def test_the_command_is_the_first_word_that_is_no_value(argv: list[str], command: str | None) -> None:
    position = find_command(argv, commands=COMMANDS, flags=FLAGS, fields=FIELDS)
    assert (None if position is None else argv[position]) == command


def test_a_word_that_is_no_command_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no command 'paln'\ndid you mean plan\?"):
        find_command(["--n", "3", "paln"], commands=COMMANDS, flags=FLAGS, fields=FIELDS)


_values = st.text(min_size=1).filter(lambda text: not text.startswith("--") and text not in FLAGS)
_override = st.one_of(
    st.tuples(st.sampled_from(["n", "run_name", "inner.lr", "sizes"]), st.text()).map(
        lambda pair: ((f"--{pair[0]}={pair[1]}",), ("override", *pair))
    ),
    st.tuples(st.sampled_from(["n", "run_name", "inner.lr", "sizes"]), _values).map(
        lambda pair: ((f"--{pair[0]}", pair[1]), ("override", *pair))
    ),
)
_flag = st.one_of(
    st.sampled_from(["--no-wait", "--debug", "-f"]).map(lambda flag: ((flag,), ("flag", flag))),
    st.text(min_size=1).map(lambda value: (("--only", value), ("flag", "--only", value))),
    st.text().map(lambda value: ((f"--only={value}",), ("flag", f"--only={value}"))),
)
_positional = st.text(min_size=1).filter(lambda t: not t.startswith("-")).map(lambda t: ((t,), ("flag", t)))


@given(st.lists(st.one_of(_override, _flag, _positional)))
def test_every_word_reaches_its_parser_unchanged_and_in_order(
    items: list[tuple[tuple[str, ...], tuple[str, ...]]],
) -> None:
    argv = [word for words, _ in items for word in words]
    parts = split(argv, flags=FLAGS, fields=FIELDS)
    assert parts.overrides == tuple(meant[1:] for _, meant in items if meant[0] == "override")
    assert parts.arguments == tuple(word for _, meant in items if meant[0] == "flag" for word in meant[1:])
