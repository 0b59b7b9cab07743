from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe.execution.inventory import Inventory
from marin_pipe.execution.labels import move_label
from marin_pipe.execution.outputs import Output, list_outputs
from marin_pipe.execution.run import ExperimentInfo


def listed(lab: Lab) -> dict[str, Output]:
    store = open_store(lab.root)
    return {output.name: output for output in list_outputs(store, Inventory(store=store).everything().values())}


def test_outputs_say_what_they_are_who_made_them_and_who_uses_them(lab: Lab) -> None:
    a = node("abc").named("deep/er/a")
    b, c = node("b", (a,)).named("b"), node("c", (a,)).named("c")
    lab.run([b, c, node("x", fail=True).named("failed")], experiment=ExperimentInfo(name="exp"))
    lab.run(node("abc").named("twin"))
    move_label(open_store(lab.root), "good", a.directory, 1, user="u")
    outputs = listed(lab)
    assert set(outputs) == {"deep/er/a", "b", "c", "twin"}
    first = outputs["deep/er/a"]
    twin = outputs["twin"]
    assert first.users == tuple(sorted([b.directory, c.directory, twin.directory]))
    assert (first.size_bytes, first.num_files, first.labels, first.experiment) == (3, 1, ("good",), "exp")
    assert first.run == lab.reports[0].run
    assert first.function == "lab_steps.node"
    assert (twin.adopted_from, twin.users, twin.size_bytes) == (a.directory, (), 3)


def test_only_current_commits_use_an_output(lab: Lab) -> None:
    a, other = node("a").named("a"), node("o").named("o")
    lab.run([node("b", (a,)).named("b"), other])
    lab.run(node("b", (node("a", salt="!").named("a"),)).named("b"), selection={"force": "a"})
    assert listed(lab)["a"].commit == 2
    assert len(listed(lab)["a"].users) == 1
    assert listed(lab)["o"].users == ()
