"""Early cut-off: equal work under another name, in another experiment or after a rebuild is not done twice."""

import json
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest
from faults import Killed
from lab import Lab
from lab_steps import Text, node

from marin_pipe import Step
from marin_pipe.execution import gc
from marin_pipe.execution.commit import Commits
from marin_pipe.execution.report import StepEvent


def test_a_renamed_step_is_adopted_and_says_so(lab: Lab) -> None:
    old = node("a").named("old")
    lab.run(old)
    lab.ran()
    new = node("a").named("exp002/new")
    events: list[StepEvent] = []
    ends = lab.run(new, on_event=events.append)
    assert lab.ran() == []
    assert ends["exp002/new"].status == "adopted"
    assert ends["exp002/new"].why.startswith(f"adopted from {old.directory}: ")
    assert ("adopted", old.directory) in [(event.kind, event.text) for event in events]
    commit = lab.commit(new)
    assert commit is not None
    assert commit.kind == "adopted"
    assert (commit.source_directory, commit.source_commit) == (old.directory, 1)
    assert lab.statuses(new) == {"exp002/new": "cached"}


def test_an_adopted_output_loads_with_its_path_and_feeds_consumers(lab: Lab) -> None:
    lab.run(node("a").named("old"))
    new = node("a").named("new")
    consumer = node("b", (new,)).named("b")
    lab.run(consumer)
    loaded = new.load(root=lab.root)
    assert type(loaded) is Text
    assert loaded.length == 1
    assert loaded.read() == "a"
    assert "/old-" in str(loaded.path)
    assert consumer.load(root=lab.root).read() == "b(a)"
    assert not (Path(lab.root) / new.directory / "attempts").exists(), "nothing was copied"


def test_a_renamed_chain_is_adopted_step_by_step(lab: Lab) -> None:
    def chain(prefix: str):
        a = node("a").named(f"{prefix}/a")
        b = node("b", (a,)).named(f"{prefix}/b")
        return node("c", (b,)).named(f"{prefix}/c")

    lab.run(chain("exp001"))
    lab.ran()
    assert set(lab.statuses(chain("exp002")).values()) == {"adopted"}
    assert lab.ran() == []
    assert chain("exp002").load(root=lab.root).read() == "c(b(a))"


def test_an_upstream_with_another_argument_but_equal_bytes_saves_its_consumers(lab: Lab) -> None:
    module = lab.module(
        """
        from lab_steps import Text, ran, write
        from marin_pipe import StepContext, step

        @step
        def fetch(mirror: str, *, ctx: StepContext) -> Text:
            ran("fetch")
            return write(ctx, "the text")

        @step
        def count(text: Text) -> int:
            ran("count")
            return len(text.read())
        """
    )
    lab.run(module.count(module.fetch("eu")))
    lab.ran()
    assert lab.statuses(module.count(module.fetch("us"))) == {"fetch": "built", "count": "adopted"}
    assert lab.ran() == ["fetch"]


def test_one_computation_under_two_names_runs_once_in_a_launch(lab: Lab) -> None:
    x, y = node("a").named("x"), node("a").named("y")
    assert sorted(lab.statuses(node("b", (x, y)).named("b")).values()) == ["adopted", "built", "built"]
    assert sorted(lab.ran()) in (["b", "x"], ["b", "y"])
    assert node("b", (x, y)).named("b").load(root=lab.root).read() == "b(a,a)"


def test_it_runs_once_too_if_both_names_are_forced(lab: Lab) -> None:
    both = [node("a").named("x"), node("a").named("y")]
    lab.run(both)
    lab.ran()
    assert sorted(lab.statuses(both, selection={"force": "*"}).values()) == ["adopted", "built"]
    assert len(lab.ran()) == 1
    assert [lab.commit(step).number for step in both] == [2, 2]  # type: ignore[union-attr]


def test_a_forced_name_runs_although_its_twin_is_there(lab: Lab) -> None:
    x, y = node("a").named("x"), node("a").named("y")
    lab.run([x, y])
    lab.ran()
    assert lab.statuses([x, y], selection={"force": "y"}) == {"x": "cached", "y": "built"}
    assert lab.ran() == ["y"]


def test_a_twin_that_fails_blocks_the_other_and_is_named(lab: Lab) -> None:
    ends = lab.run([node("a", fail=True).named("x"), node("a", fail=True).named("y")])
    assert sorted(end.status for end in ends.values()) == ["blocked", "failed"]
    blocked = next(end for end in ends.values() if end.status == "blocked")
    assert "the same computation: RuntimeError: a was told to fail" in blocked.why
    assert len(lab.ran()) == 1


def test_other_source_is_other_work(lab: Lab) -> None:
    text = """
        from lab_steps import Text, ran, write
        from marin_pipe import StepContext, step

        @step
        def make(*, ctx: StepContext) -> Text:
            ran("make")
            return write(ctx, "one")
        """
    lab.run(lab.module(text).make().named("x"))
    lab.ran()
    changed = lab.edit('"one"', '"two"').make().named("y")
    assert lab.statuses(changed) == {"y": "built"}
    assert changed.load(root=lab.root).read() == "two"


def test_an_output_that_is_gone_is_not_adopted(lab: Lab) -> None:
    old, new = node("a").named("old"), node("a").named("new")
    lab.run(old)
    lab.delete(old)
    assert lab.actions(new) == {"new": "run"}
    assert lab.statuses(new) == {"new": "built"}


def test_an_output_that_lost_a_file_is_not_adopted(lab: Lab) -> None:
    old, new = node("a").named("old"), node("a").named("new")
    lab.run(old)
    (lab.output(old) / "text.txt").unlink()
    assert lab.actions(new) == {"new": "run"}
    assert lab.statuses(new) == {"new": "built"}
    assert new.load(root=lab.root).read() == "a"


def test_an_adopted_output_is_adopted_again_from_where_it_was_built(lab: Lab) -> None:
    first = node("a").named("first")
    lab.run(first)
    lab.run(node("a").named("second"))
    third = node("a").named("third")
    lab.run(third)
    commit = lab.commit(third)
    assert commit is not None
    assert commit.kind == "adopted"
    assert commit.source_directory == first.directory


def test_without_the_index_of_builds_the_work_is_only_done_again(lab: Lab) -> None:
    lab.run(node("a").named("old"))
    shutil.rmtree(Path(lab.root) / ".marin_pipe" / "builds")
    assert lab.statuses(node("a").named("new")) == {"new": "built"}


def test_two_builds_of_one_build_key_are_equal_byte_by_byte(lab: Lab) -> None:
    step = node("b", (node("a").named("a"),)).named("b")
    lab.run(step)
    lab.run(step, selection={"force": "b"})
    directory = Path(lab.root) / step.directory
    first, second = (json.loads((directory / name).read_text()) for name in ("commit.json", "commit.2.json"))
    assert first["record"]["build_key"] == second["record"]["build_key"]
    assert first["output_digest"] == second["output_digest"]
    assert first["manifest"] == second["manifest"]
    assert first["attempt"] != second["attempt"]


def test_a_plan_foresees_adoption_down_a_chain(lab: Lab) -> None:
    def chain(prefix: str) -> Step[Any]:
        first = node("a").named(f"{prefix}/a")
        second = node("b", (first,)).named(f"{prefix}/b")
        return node("c", (second,)).named(f"{prefix}/c")

    lab.run(chain("old"))
    assert set(lab.actions(chain("new")).values()) == {"adopt"}
    assert set(lab.statuses(chain("new")).values()) == {"adopted"}


def test_an_adopter_that_is_killed_before_its_second_look_leaves_what_is_told_and_can_be_rebuilt(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection looks for adoptions, the adoption is published, the data goes, and nobody withdraws the adoption."""
    source, adopter = node("a").named("source"), node("a").named("adopter")
    lab.run(source)
    publish, look_again = Commits._publish, gc._Collection._reached_meanwhile

    def publish_while_collecting(self: Commits, *arguments: Any) -> NoReturn:
        def published_too_late(collection: gc._Collection, *seen: Any) -> dict[str, str]:
            reached = look_again(collection, *seen)
            publish(self, *arguments)
            return reached

        patch.setattr(gc._Collection, "_reached_meanwhile", published_too_late)
        gc.collect(self.store, gc.GcPolicy(older_than_s=0.0), delete=True, user="somebody")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Commits, "_publish", publish_while_collecting)
        with pytest.raises(Killed):
            lab.run(adopter)
    commit = lab.commit(adopter)
    assert commit is not None
    assert commit.kind == "adopted"
    consumer = node("b", (adopter,)).named("consumer")
    assert lab.statuses(consumer) == {"adopter": "cached", "consumer": "failed"}
    assert lab.exit_code == 5
    failure = lab.reports[-1].steps[-1].failure
    assert failure is not None
    assert "run --force adopter" in failure.message
    assert lab.actions(adopter) == {"adopter": "blocked"}
    assert lab.statuses(consumer, selection={"force": "adopter"}) == {"adopter": "built", "consumer": "built"}
    assert consumer.load(root=lab.root).read() == "b(a)"
