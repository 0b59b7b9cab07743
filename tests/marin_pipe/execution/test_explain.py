from types import ModuleType
from typing import Any

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe import Step
from marin_pipe.execution.errors import MissingOutput
from marin_pipe.execution.explain import Explanation, explain_step
from marin_pipe.execution.finding import Found
from marin_pipe.execution.graph import build_graph

CHAIN = """
from dataclasses import dataclass
from lab_steps import Text, ran, write
from marin_pipe import InputFile, StepContext, step

@dataclass(frozen=True)
class Filter:
    min_length: int = 10
    language: str = "en"

@step
def fetch(file: InputFile, *, ctx: StepContext) -> Text:
    return write(ctx, file.path.read_text())

@step
def clean(raw: Text, *, config: Filter = Filter(), ctx: StepContext) -> Text:
    return write(ctx, tidy(raw.read()))

def tidy(text: str) -> str:
    return text.strip()

@step
def split(parts: list[Text], *, ctx: StepContext) -> Text:
    return write(ctx, parts[0].read())

@step
def count(corpus: Text, *, scale: int = 1, ctx: StepContext) -> int:
    return corpus.length * scale
"""


@pytest.fixture
def exp(lab: Lab) -> ModuleType:
    (lab.folder / "words.txt").write_text("one two")
    return lab.module(CHAIN)


def build(lab: Lab, exp: ModuleType, *, scale: int = 1, **config: Any) -> Step[int]:
    raw = exp.fetch(exp.InputFile(str(lab.folder / "words.txt")))
    step: Step[int] = exp.count(exp.split([exp.clean(raw, config=exp.Filter(**config))]), scale=scale)
    return step


def explained(lab: Lab, step: Step[Any], **options: Any) -> Explanation:
    graph = build_graph(step)
    found = Found(directory=step.directory, node=graph.targets[step.directory])
    return explain_step(open_store(lab.root), found, graph=graph, **options)


def causes(explanation: Explanation) -> list[str]:
    return [str(cause) for cause in explanation.causes]


def test_a_changed_argument_is_named_with_old_and_new_value_and_nothing_else_is(lab: Lab, exp: ModuleType) -> None:
    lab.run(build(lab, exp))
    told = explained(lab, build(lab, exp, scale=3))
    assert causes(told) == ["scale: 1 -> 3"]
    assert told.against == build(lab, exp).directory
    assert (told.action, told.source_changes) == ("run", ())


def test_a_change_three_levels_upstream_is_followed_to_where_it_lies(lab: Lab, exp: ModuleType) -> None:
    lab.run(build(lab, exp))
    told = explained(lab, build(lab, exp, min_length=20))
    assert causes(told) == ["corpus -> split -> parts[0] -> clean -> config.min_length: 10 -> 20"]
    assert told.as_json()["changes"] == [
        {
            "trail": ["corpus", "split", "parts[0]", "clean"],
            "path": "config.min_length",
            "old": "10",
            "new": "20",
            "note": "",
        }
    ]


def test_changes_at_several_levels_are_all_told_nearest_first(lab: Lab, exp: ModuleType) -> None:
    lab.run(build(lab, exp))
    told = explained(lab, build(lab, exp, scale=2, language="fr"))
    assert causes(told) == ["scale: 1 -> 2", 'corpus -> split -> parts[0] -> clean -> config.language: "en" -> "fr"']


def test_an_edited_input_file_is_named(lab: Lab, exp: ModuleType) -> None:
    lab.run(build(lab, exp))
    (lab.folder / "words.txt").write_text("one two three")
    (cause,) = causes(explained(lab, build(lab, exp)))
    assert cause.startswith("corpus -> split -> parts[0] -> clean -> raw -> fetch -> file['words.txt']: 7 bytes, ")
    assert " -> 13 bytes, " in cause


def test_a_change_of_version_upstream_is_told(lab: Lab) -> None:
    a = node("a").named("a")
    lab.run(node("b", (a,)).named("b"))
    told = explained(lab, node("b", (a.versioned("2"),)).named("b"))
    assert causes(told) == ['parts[0] -> a -> version: "1" -> "2"']


def test_what_was_changed_and_is_stored_is_followed_by_records_alone(lab: Lab, exp: ModuleType) -> None:
    lab.run(build(lab, exp))
    lab.run(build(lab, exp, min_length=20))
    told = explain_step(open_store(lab.root), Found(directory=build(lab, exp, min_length=20).directory))
    assert causes(told) == ["corpus -> split -> parts[0] -> clean -> config.min_length: 10 -> 20"]
    assert told.action == "stored"
    first = explain_step(open_store(lab.root), Found(directory=build(lab, exp).directory))
    assert (first.against, first.causes) == (None, ())


def test_a_cached_step_says_what_serves_it_and_why(lab: Lab, exp: ModuleType) -> None:
    lab.run(build(lab, exp))
    told = explained(lab, build(lab, exp))
    assert told.action == "cached"
    assert told.why.startswith("commit 1, built by ")
    assert told.why.endswith("it has this key, and its input still holds what it read")
    assert told.arguments["scale"] == "1"
    assert told.function == "exp.count, version 1"
    assert told.inputs == (f"corpus: split ({build(lab, exp).bound.inputs[0][1].directory})",)  # type: ignore[union-attr]


def test_changed_source_is_named_for_a_cached_step_and_for_one_that_would_run(lab: Lab, exp: ModuleType) -> None:
    def clean(module: ModuleType, **config: Any) -> Step[Any]:
        raw = module.fetch(module.InputFile(str(lab.folder / "words.txt")))
        step: Step[Any] = module.clean(raw, config=module.Filter(**config))
        return step

    lab.run(clean(exp))
    changed = lab.edit("text.strip()", "text.lower()")
    told = explained(lab, clean(changed))
    assert (told.action, told.source_changes) == ("cached", ("changed exp.tidy",))
    assert told.source_against == clean(changed).directory
    assert explained(lab, clean(changed), source_policy="rerun").action == "run"
    other = explained(lab, clean(changed, min_length=3))
    assert (causes(other), other.source_changes) == (["config.min_length: 10 -> 3"], ("changed exp.tidy",))


def test_a_first_output_has_nothing_to_be_compared_with(lab: Lab) -> None:
    told = explained(lab, node("a"))
    assert (told.action, told.why, told.against, told.causes) == ("run", "no output yet", None, ())


def test_a_stored_step_without_a_record_refers_to_its_experiment(lab: Lab) -> None:
    step = node("a", fail=True)
    lab.run(step)
    with pytest.raises(MissingOutput, match="has no record to explain"):
        explain_step(open_store(lab.root), Found(directory=step.directory))
