"""Graphs: what is refused when they are built, their order, and heights."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import Lab
from lab_steps import Mixture, Text, nested, node, seed

from marin_pipe import CPU, Step, step
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.graph import build_graph

GRAPHS = st.lists(st.sets(st.integers(0, 8), max_size=3), min_size=1, max_size=9)


def make(parents: list[set[int]]) -> list[Step[Text]]:
    made: list[Step[Text]] = []
    for index, wanted in enumerate(parents):
        parts = tuple(made[parent] for parent in sorted(wanted) if parent < index)
        made.append(node(str(index), parts).named(f"n{index}"))
    return made


@given(parents=GRAPHS, order=st.randoms(use_true_random=False))
def test_inputs_come_before_consumers_and_heights_are_longest_paths(
    parents: list[set[int]], order: random.Random
) -> None:
    steps = make(parents)
    shuffled = steps[:]
    order.shuffle(shuffled)
    graph = build_graph({step.name: step for step in shuffled})
    names = [found.name for found in graph.nodes]
    assert sorted(names) == sorted(step.name for step in steps)
    place = {name: index for index, name in enumerate(names)}
    heights: dict[str, int] = {}
    for found in reversed(graph.nodes):
        assert all(place[upstream.name] < place[found.name] for upstream in found.inputs)
        assert all(found in upstream.consumers for upstream in found.inputs)
        heights[found.name] = 1 + max((heights[consumer.name] for consumer in found.consumers), default=0)
    assert {found.name: found.height for found in graph.nodes} == heights


def test_one_computation_asked_for_twice_is_one_node() -> None:
    graph = build_graph([node("b", (node("a"), node("a"))), node("a")])
    assert len(graph.nodes) == 2
    assert len(graph.targets) == 2


def test_a_step_is_called_by_its_directory_where_another_has_its_name() -> None:
    one, two, three = node("a").named("n"), node("b").named("n"), node("c", (node("a").named("n"),)).named("m")
    graph = build_graph({"1": one, "2": two, "3": three})
    assert [found.shown for found in graph.nodes] == [one.directory, two.directory, "m"]
    assert [found.name for found in graph.nodes] == ["n", "n", "m"]


def test_only_what_targets_reach_is_in_the_graph() -> None:
    a = node("a").named("a")
    node("unused", (a,))
    assert [found.name for found in build_graph(a).nodes] == ["a"]


def test_two_functions_of_one_identity_name_are_refused(lab: Lab) -> None:
    text = """
        from marin_pipe import step

        @step
        def count(n: int) -> int:
            return n
        """
    one, two = lab.module(text, "one"), lab.module(text.replace("return n", "return -n"), "two")
    with pytest.raises(GraphError) as caught:
        build_graph({"one": one.count(1), "two": two.count(2)})
    assert "identity name 'count'" in caught.value.what
    assert "one.count" in caught.value.what
    assert "two.count" in caught.value.what
    assert "@step(name=" in caught.value.next


def test_two_functions_of_one_name_go_together_under_names_of_their_own(lab: Lab) -> None:
    one = lab.module("from marin_pipe import step\n@step\ndef count() -> int:\n    return 1\n", "one")
    two = lab.module("from marin_pipe import step\n@step(name='other')\ndef count() -> int:\n    return 2\n", "two")
    steps = {"one": one.count(), "two": two.count()}
    lab.run(steps)
    assert [made.load(root=lab.root) for made in steps.values()] == [1, 2]


def test_one_step_with_two_set_ups_is_refused() -> None:
    with pytest.raises(GraphError, match="asked for twice with different options"):
        build_graph([node("a").on(CPU(2)), node("b", (node("a"),)).named("b")])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "nothing to run"),
        ({}, "nothing to run"),
        ({"it": "text"}, "target 'it' is str, not a step"),
        ({"it": node}, r"call it: node\(...\) is the step"),
        (node, r"call it: node\(...\) is the step"),
        ([node("a") / "text.txt"], "StepPath, not a step"),
        ({"all": [node("a")]}, "target 'all' is list, not a step"),
        (3, "int"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_step_is_refused(steps: object, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        build_graph(steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: node(), ["step node", "label is missing"]),
        (lambda: node("a", suffix="x"), ["step node", "no argument suffix"]),
        (lambda: node("a", lable="x"), ["step node", "no argument lable", "did you mean label?"]),
        (lambda: node(3), ["step node", "argument label: expected str, got 3 (int)"]),
        (lambda: node("a", ("b",)), ["step node", "argument parts[0]"]),
        (lambda: node("a", (seed("s"),)), ["step node", "argument parts[0]"]),
        (lambda: node("a", (), ()), ["step node", "3 positional arguments"]),
        (lambda: node("a", label="b"), ["step node", "argument label was given twice"]),
        (lambda: node("a", ctx=None), ["step node", "argument ctx was given"]),
        (lambda: node("a", parts=(node,)), ["step node", "argument parts[0]"]),
        (lambda: nested(Mixture(main=object()), None, [], (), {}), ["step nested", "argument mixture.main"]),  # type: ignore[arg-type]
    ],
)
def test_argument_errors_are_raised_at_the_call_with_step_and_argument(call, parts: list[str]) -> None:
    with pytest.raises(GraphError) as caught:
        call()
    text = str(caught.value)
    for part in parts:
        assert part in text
    assert caught.value.exit_code == 2


class Opaque:
    pass


@step
def anything(value: object) -> None:
    del value


@pytest.mark.parametrize(
    "value", [Opaque(), lambda: 1, (n for n in "ab"), [Opaque()], {"x": {"y": Opaque()}}, {1.5: 1}]
)
def test_what_has_no_canonical_form_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(GraphError, match="step anything: argument value"):
        anything(value)


def test_an_open_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with path.open() as file, pytest.raises(GraphError, match="InputFile"):
        anything(file)
    with pytest.raises(GraphError, match="InputFile"):
        anything(path)


def test_lambdas_and_closures_are_refused_with_the_fix() -> None:
    @step
    def inner() -> int:
        return 1

    for made in (inner, step(lambda: 1)):
        with pytest.raises(GraphError, match="top level"):
            made()


def test_a_function_of_a_notebook_is_refused_with_the_fix() -> None:
    code = (
        "from marin_pipe import step\nfrom marin_pipe.execution.errors import GraphError\n"
        "@step\ndef cell() -> int:\n    return 1\n"
        "try:\n    cell()\nexcept GraphError as error:\n    print(error)\n"
    )
    env_path = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {env_path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "notebook cell" in done.stdout
    assert "move it to a .py file and import it" in done.stdout


@pytest.mark.parametrize("path", ["../other", "a/../../b", "/etc/passwd", "a/.."])
def test_sub_paths_that_leave_the_output_are_refused(path: str) -> None:
    with pytest.raises(GraphError, match="must stay inside"):
        node("a") / path


def test_sub_paths_are_normalised() -> None:
    assert (node("a") / "x" / "y").path == (node("a") / "./x//y").path == "x/y"


@pytest.mark.parametrize("name", ["", "a b", "../x", "/x", "a//b", "é", "a\nb", ".hidden", "x" * 201, "con#1", "a?b"])
def test_names_that_cannot_be_paths_everywhere_are_refused(name: str) -> None:
    with pytest.raises(GraphError, match="cannot be named"):
        node("a").named(name)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.retry(times=-1),
        lambda s: s.retry(times=1, on=("OSError",)),
        lambda s: s.timeout(),
        lambda s: s.timeout(seconds=-1),
        lambda s: s.on(),
        lambda s: s.on("GPU"),
        lambda s: s.source_policy("never"),
        lambda s: s.versioned(""),
        lambda s: s.versioned(2),
        lambda s: s.environment({"A": 1}),
        lambda s: s.pinned_to("x", reason=" "),
    ],
)
def test_impossible_options_are_refused_with_the_steps_name(change) -> None:
    with pytest.raises(GraphError, match="step exp/a:"):
        change(node("a").named("exp/a"))


def test_handles_are_immutable_and_options_bear_no_identity() -> None:
    plain = node("a")
    with pytest.raises(AttributeError):
        plain.name = "b"  # type: ignore[misc]
    variants = [
        plain.named("b"),
        plain.on(CPU(2)),
        plain.environment({"A": "1"}),
        plain.retry(times=2),
        plain.timeout(hours=1),
        plain.source_policy("rerun"),
        plain.pinned_to("x", reason="because"),
        node("a", salt="x"),
    ]
    assert {variant.key for variant in variants} == {plain.key}
    assert plain.name == "node"
    assert plain.versioned("2").key != plain.key
    assert plain.versioned("1").key == plain.key


def test_a_chain_of_ten_thousand_steps_needs_no_recursion(lab: Lab) -> None:
    module = lab.module("from marin_pipe import step\n@step\ndef link(n: int, before: int = 0) -> int:\n    return n\n")
    last = module.link(0)
    for number in range(1, 10_000):
        last = module.link(number, last)
    graph = build_graph(last)
    assert len(graph.nodes) == 10_000
    assert [graph.nodes[0].height, graph.nodes[-1].height] == [10_000, 1]
