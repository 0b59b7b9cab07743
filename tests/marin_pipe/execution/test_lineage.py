from pathlib import Path

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe import Step
from marin_pipe.execution.adoption import adopt, target_of_node
from marin_pipe.execution.errors import MissingOutput
from marin_pipe.execution.graph import build_graph
from marin_pipe.execution.lineage import Lineage, Output, as_json, find_output, trace
from marin_pipe.execution.lineage_tree import tree


def traced(lab: Lab, step: Step, commit: int = 1) -> Lineage:
    return trace(open_store(lab.root), Output(step.directory, commit))


def edges(side: dict) -> set[tuple[str, str]]:
    return {(here.directory, edge.to.directory) for here, found in side.items() for edge in found}


def test_both_directions_are_followed_to_their_ends(lab: Lab) -> None:
    a = node("a").named("a")
    b, c = node("b", (a,)).named("b"), node("c", (a,)).named("c")
    d = node("d", (b, c)).named("d")
    lab.run([d, node("x").named("unrelated")])
    up = traced(lab, d)
    assert edges(dict(up.upstream)) == {
        (d.directory, b.directory),
        (d.directory, c.directory),
        (b.directory, a.directory),
        (c.directory, a.directory),
    }
    assert edges(dict(up.downstream)) == set()
    down = traced(lab, a)
    assert edges(dict(down.upstream)) == set()
    assert edges(dict(down.downstream)) == {(to, here) for here, to in edges(dict(up.upstream))}
    assert tree(up, up.upstream) == [
        f"{b.directory}, commit 1 (parts[0])",
        f"  {a.directory}, commit 1 (parts[0])",
        f"{c.directory}, commit 1 (parts[1])",
        f"  {a.directory}, commit 1 (parts[0])",
    ]


def test_the_exact_commits_that_were_read_are_told(lab: Lab) -> None:
    def both(salt: str) -> tuple[Step, Step]:
        a = node("a", salt=salt).named("a")
        return a, node("b", (a,)).named("b")

    a, b = both("")
    lab.run(b)
    _, again = both("!")
    lab.run(again, selection={"force": "a"})
    assert [edge.to.commit for edge in traced(lab, b, 1).upstream[Output(b.directory, 1)]] == [1]
    assert [edge.to.commit for edge in traced(lab, b, 2).upstream[Output(b.directory, 2)]] == [2]
    assert [edge.to.commit for edge in traced(lab, a, 1).downstream[Output(a.directory, 1)]] == [1]
    assert traced(lab, a, 1).notes[Output(a.directory, 1)] == "superseded by commit 2"


def chain(prefix: str, length: int) -> list[Step]:
    """Each step reads all before it."""
    made: list[Step] = []
    for index in range(length):
        made.append(node(str(index), tuple(reversed(made))).named(f"{prefix}/{index}"))
    return made


def test_every_output_is_spelled_out_once(lab: Lab) -> None:
    steps = chain("a", 8)
    lab.run(steps[-1])
    up, down = traced(lab, steps[-1]), traced(lab, steps[0])
    for lines, others in ((tree(up, up.upstream), steps[:-1]), (tree(down, down.downstream), steps[1:])):
        beginnings = [line.strip().split(",")[0] for line in lines]
        ends = {steps[0].directory, steps[-1].directory}
        assert all(beginnings.count(step.directory) == 1 for step in others if step.directory not in ends)
        assert len(lines) < 8 + 2 * 8  # of 28 edges


def test_an_adopted_graph_is_not_told_twice(lab: Lab) -> None:
    first, second = chain("a", 6), chain("b", 6)
    lab.run(first[-1])
    lab.run(second[-1])
    up = traced(lab, second[-1])
    lines = tree(up, up.upstream)
    assert lines[0] == f"{second[4].directory}, commit 1 (parts[0])  [adopted from {first[4].directory}, commit 1]"
    assert f"adopted from {first[5].directory}, commit 1" in lines
    assert not any(line.strip().startswith("a/") for line in lines)
    down = traced(lab, first[0])
    lines = tree(down, down.downstream)
    assert lines[0] == f"{first[1].directory}, commit 1 (parts[0])  [adopted by {second[1].directory}, commit 1]"
    assert not any(line.strip().startswith("b/") for line in lines)


def test_what_an_adopted_output_alone_leads_to_is_told(lab: Lab) -> None:
    first, second = chain("a", 3), chain("b", 3)
    lab.run(first[-1])
    extra = node("extra", (second[1],)).named("extra")
    lab.run([second[-1], extra])
    down = traced(lab, first[0])
    lines = [line.strip() for line in tree(down, down.downstream)]
    assert f"{extra.directory}, commit 1 (parts[0])" in lines
    assert lines.index(f"adopted by {second[1].directory}, commit 1") < lines.index(
        f"{extra.directory}, commit 1 (parts[0])"
    )
    up = traced(lab, extra)
    assert {step.directory for step in first[:2]} <= {
        edge.to.directory for found in up.upstream.values() for edge in found
    }


def test_an_output_that_was_adopted_by_hand_leads_on_to_what_its_source_was_made_from(lab: Lab) -> None:
    raw = node("raw").named("raw")
    source = node("source", (raw,)).named("source")
    lab.run(source)
    other = node("other").named("other")
    store = open_store(lab.root)
    commit = lab.commit(source)
    assert commit is not None
    target = target_of_node(store, build_graph(other).nodes[0], provenance=commit.record.provenance)
    adopt(store, target, source.directory, reason="equal by construction")
    up = traced(lab, other)
    assert tree(up, up.upstream) == [
        f"adopted from {source.directory}, commit 1",
        f"  {raw.directory}, commit 1 (parts[0])",
    ]


def test_adoptions_are_part_of_it(lab: Lab) -> None:
    first, second = node("a").named("one"), node("a").named("two")
    lab.run(first)
    lab.run(second)
    assert tree(traced(lab, second), traced(lab, second).upstream) == [f"adopted from {first.directory}, commit 1"]
    assert tree(traced(lab, first), traced(lab, first).downstream) == [f"adopted by {second.directory}, commit 1"]


def test_a_pin_into_this_root_leads_on_and_one_to_elsewhere_ends(lab: Lab, tmp_path: Path) -> None:
    a, base = node("a").named("a"), node("base").named("base")
    a = node("a", (base,)).named("a")
    lab.run(a)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "text.txt").write_text("plain")
    here = node("p").named("p").pinned_to(f"{lab.root}/{a.directory}", reason="published")
    b = node("b", (here,)).named("b")
    lab.run(b)
    assert edges(dict(traced(lab, b).upstream)) == {(b.directory, a.directory), (a.directory, base.directory)}


def test_a_file_stands_for_the_commit_whose_data_holds_it(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    first = lab.output(step) / "text.txt"
    lab.run(node("a", salt="!"), selection={"force": "node"})
    second = lab.output(step) / "text.txt"
    store = open_store(lab.root)
    assert find_output(store, step.directory, path=str(first)) == Output(step.directory, 1)
    assert find_output(store, step.directory, path=str(second)) == Output(step.directory, 2)
    assert find_output(store, step.directory) == Output(step.directory, 2)
    with pytest.raises(MissingOutput, match="is no file of a committed output"):
        find_output(store, step.directory, path=f"{step.directory}/attempts/000009-abcdef/output/x")
    with pytest.raises(MissingOutput, match="has no current output"):
        find_output(store, "nothing-0123456789abcdef")


def test_json_names_every_edge_with_its_arguments(lab: Lab) -> None:
    a = node("a").named("a")
    b = node("b", (a,)).named("b")
    lab.run(b)
    told = as_json(traced(lab, b))
    assert told["output"] == {"directory": b.directory, "commit": 1, "name": "b"}
    assert told["upstream"] == [
        {
            "directory": b.directory,
            "commit": 1,
            "relation": "input",
            "arguments": ["parts[0]"],
            "to": {"directory": a.directory, "commit": 1},
        }
    ]
    assert told["downstream"] == []
