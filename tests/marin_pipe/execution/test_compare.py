from typing import Any

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe import Step
from marin_pipe.execution import provenance
from marin_pipe.execution.compare import Difference, compare_steps
from marin_pipe.execution.errors import MissingOutput
from marin_pipe.execution.finding import Found
from marin_pipe.execution.graph import build_graph


def stored(step: Step[Any], commit: int | None = None) -> Found:
    return Found(directory=step.directory, commit=commit)


def differences(lab: Lab, old: Found, new: Found, *sections: str) -> list[str]:
    found = compare_steps(open_store(lab.root), old, new)
    return [str(one) for one in found if one.section in sections]


def test_an_output_does_not_differ_from_itself(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    assert compare_steps(open_store(lab.root), stored(step), stored(step)) == []


def test_identity_inputs_files_and_result_are_compared(lab: Lab) -> None:
    a, b = node("a").named("a"), node("bb").named("b")
    one, two = node("x", (a,)).named("one"), node("x", (b,)).named("two")
    lab.run([one, two])
    assert differences(lab, stored(one), stored(two), "identity") == [
        "name: one -> two",
        f"key: {one.key} -> {two.key}",
    ]
    assert differences(lab, stored(one), stored(two), "arguments") == ['parts[0] -> b -> label: "a" -> "bb"']
    (inputs,) = differences(lab, stored(one), stored(two), "inputs")
    assert f"parts[0]: {a.directory}, commit 1" in inputs
    (files,) = differences(lab, stored(one), stored(two), "files")
    assert files.startswith("text.txt: 4 bytes, ")
    assert differences(lab, stored(one), stored(two), "result") == ['result: {"length": 4} -> {"length": 5}']


def test_two_commits_of_one_step_differ_in_bytes_and_runtime_arguments(lab: Lab) -> None:
    lab.run(node("a"))
    lab.run(node("a", salt="!!"), selection={"force": "node"})
    step = node("a")
    assert differences(lab, stored(step, 1), stored(step, 2), "identity", "arguments", "source", "inputs") == []
    assert len(differences(lab, stored(step, 1), stored(step, 2), "files")) == 1
    (salt,) = differences(lab, stored(step, 1), stored(step, 2), "environment")
    assert salt.startswith("runtime argument salt: ")
    assert salt.count("!!") == 1


def test_environment_and_packages_are_compared(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "installed_packages", lambda: {"numpy": "1", "same": "1", "gone": "3"})
    monkeypatch.setattr(provenance, "git_state", lambda _: ("abc", None))
    lab.run(node("a"))
    monkeypatch.setattr(provenance, "installed_packages", lambda: {"numpy": "2", "same": "1"})
    monkeypatch.setattr(provenance, "git_state", lambda _: ("def", "0123456789abcdef"))
    lab.run(node("b"))
    old, new = stored(node("a")), stored(node("b"))
    assert differences(lab, old, new, "packages") == ["gone: 3 -> (none)", "numpy: 1 -> 2"]
    assert differences(lab, old, new, "environment") == [
        "git commit: abc -> def",
        "uncommitted changes: (none) -> 0123456789ab",
    ]


def test_a_step_without_output_is_compared_by_identity_and_code(lab: Lab) -> None:
    lab.run(node("a"))
    step = node("b")
    graph = build_graph(step)
    new = Found(directory=step.directory, node=graph.targets[step.directory])
    found = compare_steps(open_store(lab.root), stored(node("a")), new)
    assert Difference(section="arguments", what='label: "a" -> "b"') in found
    assert found[-1].what == f"{step.directory} has no output yet"
    with pytest.raises(MissingOutput, match="no record to compare"):
        compare_steps(open_store(lab.root), stored(node("a")), stored(step))
