import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe.execution.errors import ConfigurationError, MissingOutput
from marin_pipe.execution.finding import Found, find_step
from marin_pipe.execution.graph import Graph, build_graph
from marin_pipe.execution.labels import move_label


def found(lab: Lab, text: str, graph: Graph | None = None) -> Found:
    return find_step(open_store(lab.root), text, graph=graph)


def test_an_output_is_found_by_name_path_url_key_and_label(lab: Lab) -> None:
    step = node("a").named("exp/corpus")
    lab.run([step, node("b").named("exp/other")])
    move_label(open_store(lab.root), "good/one", step.directory, 1, user="u")
    url = f"{lab.root}/{step.directory}"
    texts = [
        "exp/corpus",
        step.directory,
        f"{step.directory}/",
        url,
        f"file://{url}",
        f"{url}/attempts/x/output/text.txt",
    ]
    for text in [*texts, step.key[:4], step.key[:16], step.key, "good/one"]:
        assert found(lab, text).directory == step.directory, text
    assert found(lab, "good/one").commit == 1
    assert found(lab, step.key).commit is None
    assert found(lab, step.key).name == "exp/corpus"


def test_a_name_of_several_outputs_lists_them_newest_first(lab: Lab) -> None:
    steps = [node(label).named("corpus") for label in "ab"]
    for step in steps:
        lab.run(step)
    with pytest.raises(ConfigurationError, match="'corpus' stands for 2 outputs") as caught:
        found(lab, "corpus")
    assert caught.value.why.index(steps[1].directory) < caught.value.why.index(steps[0].directory)
    assert "committed 20" in caught.value.why
    assert steps[1].directory in caught.value.next


def test_the_step_of_the_experiment_at_hand_wins_over_other_outputs_of_its_name(lab: Lab) -> None:
    lab.run([node(label).named("corpus") for label in "ab"])
    mine = node("c").named("corpus")
    graph = build_graph({"main": mine})
    for text in ("corpus", "main", mine.directory, mine.key[:10]):
        one = found(lab, text, graph)
        assert one.directory == mine.directory
        assert one.node is not None
        assert one.node.step is mine
    other = node("a").named("corpus")
    assert found(lab, other.key, graph) == Found(directory=other.directory)


def test_steps_of_one_name_in_an_experiment_are_told_apart_by_their_targets(lab: Lab) -> None:
    small, large = node("a").named("corpus"), node("b").named("corpus")
    graph = build_graph({"small": small, "large": large})
    with pytest.raises(ConfigurationError, match="'corpus' stands for 2 outputs") as caught:
        found(lab, "corpus", graph)
    assert f"{small.directory} (target small, no commit)" in caught.value.why
    assert f"{large.directory} (target large, no commit)" in caught.value.why
    assert found(lab, "large", graph).directory == large.directory
    assert found(lab, "corpus", build_graph({"corpus": small, "large": large})).directory == small.directory
    with pytest.raises(MissingOutput) as missing:
        found(lab, "smal", graph)
    assert missing.value.next == "did you mean small?"


@pytest.mark.parametrize("text", ["corpsu", "abcd", "x-0123456789abcdef", "/somewhere/else/corpus", "a b", ""])
def test_what_is_not_there_is_said_with_what_is_near(lab: Lab, text: str) -> None:
    lab.run(node("a").named("corpus"))
    with pytest.raises(MissingOutput, match="there is no") as caught:
        found(lab, text)
    if text == "corpsu":
        assert caught.value.next == "did you mean corpus?"


def test_a_path_of_another_root_is_not_taken_for_one_of_this(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    with pytest.raises(MissingOutput):
        found(lab, f"/elsewhere/{step.directory}")


def test_a_short_hexadecimal_name_is_a_name_first(lab: Lab) -> None:
    named = node("b").named("beef")
    lab.run([named, *(node(str(i)) for i in range(5))])
    assert found(lab, "beef").directory == named.directory
