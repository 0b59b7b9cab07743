"""Building steps: which calls are one step, which are two, and which are errors."""

import dataclasses
import enum
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from marin_pipe.execution.binding import bind, call_arguments, takes_context
from marin_pipe.execution.context import StepContext
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.handle import Ref, Step
from marin_pipe.execution.inputs import InputFile
from marin_pipe.execution.markers import Artifact, OmitAt, Runtime
from marin_pipe.execution.secret import Secret
from marin_pipe.execution.step import StepFunction, step


class Documents(Artifact):
    count: int


def mistyped() -> Any:
    """A step of the wrong type that a type checker does not see."""
    return train()


def helper() -> None:
    pass


class Mode(enum.Enum):
    FAST = 1


@dataclasses.dataclass(frozen=True)
class Optimizer:
    lr: float = 0.1
    betas: tuple[float, ...] = (0.9,)
    threads: Runtime[int] = 1


@dataclasses.dataclass(frozen=True)
class SameFields:
    lr: float = 0.1
    betas: tuple[float, ...] = (0.9,)


@dataclasses.dataclass(frozen=True)
class Config:
    optimizer: Optimizer = Optimizer()
    sources: tuple[Ref[Documents], ...] = ()
    by_name: dict[str, Ref[Documents]] = dataclasses.field(default_factory=dict)


class Model(BaseModel):
    source: Ref[Documents]
    size: int = 1


@step
def corpus(seed: int = 0) -> Documents:
    return Documents(count=seed)


@step
def train(lr: float = 0.1, sizes: list[int] | None = None, name: str = "a", workers: Runtime[int] = 1) -> int:
    return len((lr, sizes, name, workers))


@step
def loose(value: Any, *, also=None) -> None:
    """`also` is not annotated."""


@step
def uses(docs: Documents, *, config: Config = Config(), ctx: StepContext) -> int:
    return len((docs, config, ctx))


@step
def anything(one, /, two, *rest: float, ctx, three: int = 3, **others: float) -> tuple[Any, ...]:
    return one, two, rest, ctx, three, others


@step
def with_context_elsewhere(context: StepContext, size: int) -> int:
    return len((context, [size]))


# --- one key or two --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (train(lr=1), train(lr=1.0)),
        (train(), train(0.1, None, "a")),
        (train(sizes=(1, 2)), train(sizes=[1, 2])),
        (train(workers=1), train(workers=8)),
        (loose({"a": 1, "b": 2}), loose({"b": 2, "a": 1})),
        (loose({1, 2}), loose(frozenset({2, 1}))),
        (loose(Optimizer(lr=1)), loose(Optimizer(lr=1.0))),
        (loose([Optimizer(threads=1)]), loose([Optimizer(threads=2)])),
        (loose(Optimizer(betas=[0, 1])), loose(Optimizer(betas=(0.0, 1.0)))),  # type: ignore[arg-type]
        (loose(corpus() / "a/./b"), loose(corpus() / "a" / "b")),
        (loose(corpus()), loose(corpus(0))),
        (loose(corpus()), loose(corpus().named("elsewhere"))),
        (loose(Secret("A_TOKEN")), loose(Secret("B_TOKEN"))),
        (anything(1, 2, 3.0), anything(1, 2, 3)),
    ],
)
def test_these_are_one_step(left, right):
    assert left.key == right.key


@pytest.mark.parametrize(
    "different",
    [
        [1, 1.0, True, "1"],
        [0.0, -0.0, float("nan"), float("inf"), None],
        [[1, 2], (1, 2), {1, 2}],
        [Optimizer(), SameFields()],
        [Mode.FAST, "Mode.FAST", 1],
        [{1: "a"}, {"1": "a"}, {Mode.FAST: "a"}],
        [Path("a"), "a"],
        [corpus(), corpus(1), corpus() / "a", corpus() / "b", corpus().versioned("2"), None],
        [[corpus()], [corpus(1)], {"a": corpus()}, (corpus(),)],
        [Config(sources=(corpus(),)), Config(sources=(corpus(1),)), Config(by_name={"a": corpus()})],
        [helper, Documents, "helper"],
    ],
)
def test_these_are_different_steps(different):
    keys = {loose(value).key for value in different} | {loose(None, also=value).key for value in different}
    assert len(keys) == 2 * len(different) - (None in different)


def test_an_argument_added_at_its_old_value_keeps_the_key():
    def before(size: int) -> None:
        pass

    def after(size: int, rope: Annotated[float, OmitAt(1)] = 1.0) -> None:
        pass

    old, new = (StepFunction(f, name="same", version="1") for f in (before, after))
    assert bind(old, (1,), {}).canonical == bind(new, (1,), {}).canonical
    assert bind(new, (1,), {"rope": 2}).canonical == {"size": 1, "rope": 2.0}
    assert bind(new, (1,), {}).arguments == {"size": 1, "rope": 1.0}


def test_the_key_survives_the_chain():
    def chain(first):
        handle: Step[Any] = corpus(first)
        for _ in range(3):
            handle = loose(handle)
        return handle

    assert chain(0).key == chain(0).key != chain(1).key


# --- what a step is made of ------------------------------------------------------------------------------------------


def test_inputs_are_found_wherever_they_stand():
    a, b = corpus(1), corpus(2)
    bound = uses(a, config=Config(sources=(a, b), by_name={"x": b})).bound
    expected = [("docs", a), ("config.sources[0]", a), ("config.sources[1]", b), ("config.by_name['x']", b)]
    assert list(bound.inputs) == expected
    nested = loose([Model(source=a), {"k": (b / "sub",)}]).bound
    assert [where for where, _ in nested.inputs] == ["value[0].source", "value[1]['k'][0]"]


def test_runtime_secrets_and_functions_are_recorded_apart(tmp_path):
    bound = loose([Optimizer(threads=7), Secret("A_TOKEN"), Secret("A_TOKEN"), len]).bound
    assert bound.runtime == {"value[0].threads": "7"}
    assert bound.secrets == ("A_TOKEN",)
    assert bound.functions == (Optimizer, len)
    file = tmp_path / "a.txt"
    file.write_text("hello")
    ((where, found),) = loose({"f": InputFile(file)}).bound.files
    assert (where, [entry.path for entry in found.entries]) == ("value['f']", ["a.txt"])
    assert train(workers=3).bound.runtime == {"workers": "3"}


def test_an_edited_input_file_is_another_step(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("hello")
    before = loose(InputFile(file))
    file.write_text("jello")
    assert loose(InputFile(file)).key != before.key
    file.write_text("hello")
    assert loose(InputFile(file)).key == before.key


def test_mutating_an_argument_or_a_default_afterwards_changes_nothing():
    sizes = [1]
    handle = train(sizes=sizes)
    sizes.append(2)
    assert handle.bound.arguments["sizes"] == [1]

    def mutable(sizes: list[int] = [1]) -> None:  # noqa: B006
        pass

    function = StepFunction(mutable, name=None, version="1")
    bind(function, (), {}).arguments["sizes"].append(5)
    assert bind(function, (), {}).arguments["sizes"] == [1]


# --- calling ---------------------------------------------------------------------------------------------------------


def test_the_body_is_called_as_python_would_call_it():
    context = object()
    bound = bind(anything, (1, 2, 3), {"three": 4, "more": 5})
    positional, keywords = call_arguments(anything, bound.arguments, context)
    assert anything.fn(*positional, **keywords) == (1, 2, (3.0,), context, 4, {"more": 5.0})


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (train, {"lr": 1}, {"lr": 1.0, "sizes": None, "name": "a", "workers": 1}),
        (with_context_elsewhere, {"size": 2}, {"context": "CTX", "size": 2}),
    ],
)
def test_the_context_is_passed_only_if_asked_for(function, arguments, expected):
    positional, keywords = call_arguments(function, bind(function, (), arguments).arguments, "CTX")
    assert (positional, keywords) == ([], expected)
    assert takes_context(function) == ("CTX" in expected.values())


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: train(wokers=2), "step train: there is no argument wokers"),
        (lambda: train(wokers=2), "did you mean workers?"),
        (lambda: train(0.1, None, "a", 1, 2), "step train: 5 positional arguments were given, at most 4"),
        (lambda: train(0.1, lr=0.2), "step train: argument lr was given twice"),
        (lambda: uses(), "step uses: argument docs is missing"),
        (lambda: uses(corpus(), ctx=1), "step uses: argument ctx was given"),
        (lambda: with_context_elsewhere(context=1, size=1), "step with_context_elsewhere: argument context was given"),
        (lambda: train(lr="a"), "step train: argument lr: expected float, got 'a' (str)"),
        (lambda: train(workers="a"), "step train: argument workers: expected int, got 'a' (str)"),
        (lambda: uses(train()), "step uses: argument docs: expected Documents, got Step(train-"),
        (lambda: uses(train()), "step train returns int"),
        (lambda: loose(Config(sources=(mistyped(),))), "step loose: argument value.sources[0]: expected"),
        (lambda: loose({"f": lambda: 1}), "step loose: argument value['f']: "),
        (lambda: loose([loose]), "step loose: argument value[0]: loose is a step function, not a step"),
        (lambda: loose(also=object(), value=1), "step loose: argument also: a object has no canonical form"),
        (lambda: anything(1, 2, "a"), "step anything: argument rest[0]: expected float"),
        (lambda: anything(1, 2, more="a"), "step anything: argument others['more']: expected float"),
        (lambda: loose(InputFile("/no/such/file")), "there is no such file"),
        (lambda: loose("x" + "hf_" + "a1" * 17), None),
        (lambda: loose(["x hf_" + "a1" * 17]), "step loose: argument value[0] contains a token of a known kind"),
    ],
)
def test_wrong_arguments_are_errors_when_the_step_is_built(build, message):
    if message is None:
        assert build().name == "loose"
        return
    with pytest.raises(GraphError, match=re.escape(message)):
        build()


def test_a_value_that_contains_itself_is_an_error():
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(GraphError, match="step loose: an argument contains itself"):
        loose(endless)


def test_what_a_step_reads_may_not_hide_in_a_runtime_argument():
    def hides(source: Runtime[Any]) -> None:
        pass

    function = StepFunction(hides, name=None, version="1")
    with pytest.raises(GraphError, match=r"argument source: .* is in a Runtime argument"):
        bind(function, ([corpus()],), {})
    with pytest.raises(GraphError, match="Runtime"):
        bind(function, (InputFile(__file__),), {})
    assert bind(function, ([Secret("A_TOKEN")],), {}).secrets == ("A_TOKEN",)


def test_errors_do_not_show_secrets(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "correct-horse-battery")
    with pytest.raises(GraphError) as caught:
        train(lr="correct-horse-battery")
    assert "correct-horse" not in str(caught.value)
    with pytest.raises(GraphError, match="MY_TOKEN"):
        train(name="correct-horse-battery")
