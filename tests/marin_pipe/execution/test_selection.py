"""--only, --upto, --after, --force and --downstream: which steps may run, which must, and what makes no sense."""

from typing import Any

import pytest
from lab import Lab
from lab_steps import Text, node

from marin_pipe import Step
from marin_pipe.execution.errors import ConfigurationError


def diamond(salt: str = "") -> dict[str, Step[Text]]:
    """a -> b, a -> c, (b, c) -> d; e stands alone."""
    a = node("a", salt=salt).named("x/a")
    b, c = node("b", (a,)).named("x/b"), node("c", (a,)).named("x/c")
    return {"end": node("d", (b, c)).named("x/d"), "alone": node("e").named("x/e")}


def select(lab: Lab, **selection: Any) -> dict[str, str]:
    """What a run with this selection does, by the last letter of each step; the plan must agree."""
    actions = lab.actions(diamond(), selection=selection)
    statuses = lab.statuses(diamond(), selection=selection)
    same = {"run": "built", "adopt": "adopted"}
    assert {name: same.get(action, action) for name, action in actions.items()} == statuses
    return {name[-1]: status for name, status in statuses.items()}


def test_without_flags_everything_runs(lab: Lab) -> None:
    assert select(lab) == dict.fromkeys("abcde", "built")


def test_upto_runs_the_steps_and_what_they_need(lab: Lab) -> None:
    assert select(lab, upto="x/b") == {"a": "built", "b": "built"}


def test_upto_takes_globs_and_target_names(lab: Lab) -> None:
    assert select(lab, upto=("x/[bc]",)) == dict.fromkeys("abc", "built")
    assert select(lab, upto="alone") == {"e": "built"}


def test_only_runs_nothing_else(lab: Lab) -> None:
    lab.run(diamond(), selection={"upto": "x/a"})
    assert select(lab, only="x/b") == {"a": "cached", "b": "built"}


def test_steps_of_one_name_are_selected_and_told_by_their_directories(lab: Lab) -> None:
    one, two = node("1", fail=True).named("n"), node("2").named("n")
    lab.run([one, two], selection={"only": two.directory})
    assert [(end.directory, end.status) for end in lab.reports[-1].steps] == [(two.directory, "built")]
    lab.run([one, two, node("m", (one,)).named("m")])
    assert lab.reports[-1].steps[-1].why == f"because of {one.directory}: RuntimeError: 1 was told to fail"


def test_only_with_a_missing_input_is_blocked_and_names_it(lab: Lab) -> None:
    ends = lab.run(diamond(), selection={"only": "x/b"})
    assert lab.exit_code == 1
    assert ends["x/a"].why == "not selected to run (no output yet)"
    assert ends["x/b"].why == "because of x/a: not selected to run (no output yet)"
    assert lab.ran() == []


def test_after_runs_the_steps_and_what_depends_on_them(lab: Lab) -> None:
    lab.run(diamond(), selection={"upto": "x/[bc]"})
    lab.delete(diamond()["alone"]) if lab.commit(diamond()["alone"]) else None
    assert select(lab, after="x/b") == {"a": "cached", "b": "cached", "c": "cached", "d": "built"}
    assert lab.exit_code == 0, "what does not depend on it is not asked for"


def test_force_runs_what_is_there_and_stops_at_equal_bytes(lab: Lab) -> None:
    lab.run(diamond())
    assert lab.statuses(diamond(), selection={"force": "x/a"}) == {
        "x/a": "built",
        "x/b": "cached",
        "x/c": "cached",
        "x/d": "cached",
        "x/e": "cached",
    }


def test_force_with_other_bytes_reruns_downstream(lab: Lab) -> None:
    lab.run(diamond())
    lab.ran()
    lab.run(diamond("!"), selection={"force": "x/a"})
    assert sorted(lab.ran()) == ["x/a", "x/b", "x/c", "x/d"]


def test_downstream_reruns_what_depends_on_it_regardless(lab: Lab) -> None:
    lab.run(diamond())
    assert select(lab, force="x/b", downstream=True) == {
        "a": "cached",
        "b": "built",
        "c": "cached",
        "d": "built",
        "e": "cached",
    }


def test_force_runs_a_step_although_only_a_missing_one_needs_it(lab: Lab) -> None:
    """d is there, b and c are gone: nothing asks for a but the user."""
    lab.run(diamond())
    for name in "bc":
        a = node("a").named("x/a")
        lab.delete(node(name, (a,)).named(f"x/{name}"))
    lab.ran()
    assert select(lab, force="x/a") == {"a": "built", "d": "cached", "e": "cached"}
    assert lab.ran() == ["x/a"]


def test_only_and_force_together_rerun_one_step(lab: Lab) -> None:
    lab.run(diamond())
    assert select(lab, only="x/b", force="x/b") == {"a": "cached", "b": "built"}


def test_force_is_within_what_the_other_flags_select(lab: Lab) -> None:
    lab.run(diamond())
    lab.ran()
    assert select(lab, upto="x/b", force="*") == {"a": "built", "b": "built"}
    assert lab.ran() == ["x/a", "x/b"]


def test_a_forced_step_that_fails_keeps_its_old_output_but_blocks_this_launch(lab: Lab) -> None:
    b = node("b", (node("a").named("a"),)).named("b")
    lab.run(b)
    broken = node("b", (node("a", fail=True).named("a"),)).named("b")
    assert lab.statuses(broken, selection={"force": "a"}) == {"a": "failed", "b": "blocked"}
    assert lab.statuses(b) == {"a": "cached", "b": "cached"}


@pytest.mark.parametrize("flag", ["only", "upto", "after", "force"])
@pytest.mark.parametrize("act", ["run", "plan"])
def test_a_pattern_that_matches_nothing_is_refused_with_the_names_there_are(lab: Lab, flag: str, act: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        getattr(lab, act)(diamond(), selection={flag: "x/nope"})
    assert f"--{flag} 'x/nope' matches no step" in str(caught.value)
    assert "x/a, x/b, x/c, x/d, x/e" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"downstream": True}, "--downstream was given without --force"),
        ({"only": "x/b", "force": "x/c"}, "--force"),
        ({"upto": "x/b", "force": "x/d"}, "--force"),
        ({"only": "x/e", "after": "x/a"}, "--after"),
        ({"upto": "x/b", "only": "x/d"}, "--only"),
    ],
)
def test_flags_that_leave_nothing_are_refused(lab: Lab, selection: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        lab.run(diamond(), selection=selection)
    assert lab.ran() == []


def test_a_pinned_step_cannot_be_forced(lab: Lab) -> None:
    lab.run(node("a").named("a"))
    pinned = node("z").named("z").pinned_to(f"{lab.root}/{node('a').named('a').directory}", reason="as published")
    with pytest.raises(ConfigurationError, match="pinned"):
        lab.run(pinned, selection={"force": "z"})
    b = node("b", (pinned,)).named("b")
    assert lab.statuses(b, selection={"force": "*"}) == {"z": "cached", "b": "built"}
