"""Resumable state: what a try may go on from, and what it may not."""

from typing import Any

import pytest
from lab import Lab

TRAINING = """
    from marin_pipe import StepContext, step
    from lab_steps import ran

    GRADIENT = 1

    @step
    def data(*, value: int = 10) -> int:
        return value

    @step
    def train(x: int, *, stop_at: "Runtime[int]" = 99, steps: int = 5, ctx: StepContext) -> int:
        start, weight = 0, 0
        for earlier in ctx.earlier_work:
            start, weight = map(int, (earlier / "checkpoint").read_text().split())
            break
        ran(f"from-{start}")
        for i in range(start, steps):
            if i == stop_at:
                raise OSError("the machine went away")
            weight += x * GRADIENT
            (ctx.work / "checkpoint").write_text(f"{i + 1} {weight}")
        return weight
""".replace("StepContext, step", "Runtime, StepContext, step").replace('"Runtime[int]"', "Runtime[int]")


def train(module: Any, **arguments: Any) -> Any:
    value = arguments.pop("value", 10)
    return module.train(module.data(value=value).named("data"), **arguments).named("train")


def result(lab: Lab, step: Any) -> int:
    return int(step.load(root=lab.root))


def test_an_unfinished_try_is_gone_on_from(lab: Lab) -> None:
    exp = lab.module(TRAINING)
    assert lab.statuses(train(exp, stop_at=3))["train"] == "failed"
    assert lab.actions(train(exp))["train"] == "resume"
    assert lab.statuses(train(exp))["train"] == "built"
    assert (lab.ran(), result(lab, train(exp))) == (["from-0", "from-3"], 50)


def test_a_retry_goes_on_from_the_try_before(lab: Lab) -> None:
    exp = lab.module(TRAINING.replace("if i == stop_at:", "if i == stop_at and not ctx.earlier_work:"))
    assert lab.statuses(train(exp, stop_at=2).retry(times=1))["train"] == "built"
    assert lab.ran() == ["from-0", "from-2"]


def test_a_forced_step_starts_from_nothing(lab: Lab) -> None:
    exp = lab.module(TRAINING)
    lab.run(train(exp))
    lab.run(train(exp), selection={"force": "train"})
    assert (lab.ran(), result(lab, train(exp))) == (["from-0", "from-0"], 50)


def test_finished_work_is_not_taken_for_the_next_commit_s(lab: Lab) -> None:
    exp = lab.module(TRAINING)
    lab.run(train(exp))
    exp = lab.edit("GRADIENT = 1", "GRADIENT = 7")
    lab.run(train(exp), source="rerun")
    assert (lab.ran(), result(lab, train(exp))) == (["from-0", "from-0"], 350)


def test_state_made_from_other_input_bytes_is_of_no_use(lab: Lab) -> None:
    exp = lab.module(TRAINING)
    lab.run(train(exp, stop_at=3))
    exp = lab.edit("return value", "return value * 100")
    lab.run(train(exp), selection={"force": "data"})
    assert (lab.ran(), result(lab, train(exp))) == (["from-0", "from-0"], 5000)


@pytest.mark.parametrize(
    ("policy", "starts", "value", "told"),
    [("warn", "from-3", 30 + 2 * 70, True), ("ignore", "from-3", 30 + 2 * 70, False), ("rerun", "from-0", 350, False)],
)
def test_state_that_other_source_made_follows_the_source_policy(
    lab: Lab, policy: Any, starts: str, value: int, told: bool
) -> None:
    exp = lab.module(TRAINING)
    lab.run(train(exp, stop_at=3))
    exp = lab.edit("GRADIENT = 1", "GRADIENT = 7")
    events: list[Any] = []
    lab.run(train(exp), source=policy, on_event=events.append)
    assert (lab.ran(), result(lab, train(exp))) == (["from-0", starts], value)
    notes = [event.text for event in events if event.kind == "note"]
    assert any("other source" in note for note in notes) is told


def test_what_other_source_had_a_part_in_is_not_adopted_elsewhere(lab: Lab) -> None:
    exp = lab.module(TRAINING)
    lab.run(train(exp, stop_at=3))
    exp = lab.edit("GRADIENT = 1", "GRADIENT = 7")
    lab.run(train(exp))
    commit = lab.commit(train(exp))
    assert commit is not None
    assert len(commit.record.resumed_sources) == 1
    renamed = train(exp).named("renamed")
    assert lab.statuses(renamed)["renamed"] == "built"
    assert result(lab, renamed) == 350


def test_the_taint_is_inherited_through_several_tries(lab: Lab) -> None:
    exp = lab.module(TRAINING)
    lab.run(train(exp, stop_at=2))
    exp = lab.edit("GRADIENT = 1", "GRADIENT = 7")
    lab.run(train(exp, stop_at=4))
    lab.run(train(exp))
    commit = lab.commit(train(exp))
    assert commit is not None
    assert commit.record.resumed_sources
    assert lab.ran() == ["from-0", "from-2", "from-4"]
