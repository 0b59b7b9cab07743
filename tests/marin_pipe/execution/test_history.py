"""The nearest earlier output of a step: what a plan compares with."""

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe import Step
from marin_pipe.execution.history import History, step_directories

MANY = """
from marin_pipe import step

@step
def work(a: int = 0, b: int = 0, c: int = 0, d: dict[str, int] = {}) -> int:
    return a
"""


def nearest(lab: Lab, step: Step[int]) -> tuple[str, list[str]] | None:
    found = History(store=open_store(lab.root)).nearest(step)
    return None if found is None else (found.directory, [str(change) for change in found.changes])


def test_the_output_with_the_fewest_differences_is_nearest(lab: Lab) -> None:
    work = lab.module(MANY).work
    far, near = work(a=1, b=1), work(a=1, c=3)
    lab.run([near])
    lab.run([far])
    assert nearest(lab, work(a=1, c=2)) == (near.directory, ["c: 3 -> 2"])
    assert nearest(lab, work(a=1, b=1, d={"x": 1})) == (far.directory, ["d['x']: (absent) -> 1"])


def test_the_later_of_two_equally_near_is_taken(lab: Lab) -> None:
    work = lab.module(MANY).work
    lab.run(work(a=1))
    lab.run(work(a=2))
    assert nearest(lab, work(a=3)) == (work(a=2).directory, ["a: 2 -> 3"])
    lab.run(work(a=1), selection={"force": "*"})
    assert nearest(lab, work(a=3)) == (work(a=1).directory, ["a: 1 -> 3"])


@pytest.mark.parametrize("other", ["x/work-2", "work", "x/y/work", "x/wor", "y/work", "x/work-aaaaaaaaaaaaaaaa"])
def test_only_outputs_of_the_very_name_are_earlier_ones(lab: Lab, other: str) -> None:
    work = lab.module(MANY).work
    lab.run(work(a=1).named(other))
    assert nearest(lab, work(a=2).named("x/work")) is None


def test_the_step_itself_failures_and_empty_directories_are_not_earlier_outputs(lab: Lab) -> None:
    lab.run(node("a").named("a"))
    lab.run(node("b", fail=True).named("a"))
    assert nearest(lab, node("a").named("a")) is None  # type: ignore[arg-type]


def test_another_function_under_the_name_is_a_difference(lab: Lab) -> None:
    work = lab.module(MANY).work
    lab.run(node("a").named("it"))
    found = nearest(lab, work().named("it"))
    assert found is not None
    assert found[1][0] == 'function: "node" -> "work"'


def test_every_output_below_a_root_is_found_and_nothing_else(lab: Lab) -> None:
    steps = [node("a").named("a"), node("b").named("x/b"), node("c").named("x/y/c")]
    lab.run(steps)
    (lab.folder / "outputs" / "notes").mkdir()
    assert step_directories(open_store(lab.root)) == sorted(step.directory for step in steps)
