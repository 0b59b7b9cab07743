from typing import Any

import pytest
from faults import FaultyBackend
from lab import Lab
from lab_steps import node, seed
from marin_storage import Store, open_store

from marin_pipe import Step
from marin_pipe.execution.adoption import Target, adopt, target_of_node, target_of_output, undo_adoption
from marin_pipe.execution.errors import Busy, ConfigurationError, CorruptOutput, MissingOutput
from marin_pipe.execution.gc import GcPolicy, collect
from marin_pipe.execution.graph import build_graph
from marin_pipe.execution.lease import LeaseTimes, acquire
from marin_pipe.execution.observe import observe, read_commit, read_lease
from marin_pipe.execution.records import Adopted, Provenance, Withdrawn

FACTS = Provenance(
    run="adopt",
    experiment=None,
    host="h",
    user="ada",
    argv=(),
    python="",
    git_commit=None,
    git_dirty_digest=None,
    packages="",
)


def target(lab: Lab, step: Step[Any]) -> Target:
    return target_of_node(open_store(lab.root), build_graph(step).targets[step.directory], provenance=FACTS)


def adopted(lab: Lab, step: Step[Any], source: Step[Any], reason: str = "equal by construction") -> Adopted:
    return adopt(open_store(lab.root), target(lab, step), source.directory, reason=reason)[0]


def test_a_step_that_adopts_serves_the_others_output_and_records_both_input_lists(lab: Lab) -> None:
    old_base, base = node("old").named("old-base"), node("new").named("base")
    source, step = node("s", (old_base,)).named("source"), node("t", (base,)).named("target")
    lab.run([source, base])
    commit = adopted(lab, step, source)
    assert [use.directory for use in commit.record.inputs] == [base.directory]
    assert [use.directory for use in commit.source_inputs] == [old_base.directory]
    assert (commit.reason, commit.record.key, commit.record.usage) == ("equal by construction", step.key, None)
    lab.ran()
    consumer = node("c", (step,)).named("consumer")
    assert lab.statuses(consumer) == {"base": "cached", "target": "cached", "consumer": "built"}
    assert consumer.load(root=lab.root).read() == "c(s(old))"
    present = read_lease(open_store(lab.root), step.directory)
    assert present is not None
    assert present[0].owner is None


def test_inputs_that_were_never_built_do_not_stand_in_the_way(lab: Lab) -> None:
    source, step = node("s").named("source"), node("t", (node("never").named("never"),)).named("target")
    lab.run(source)
    assert adopted(lab, step, source).record.inputs == ()
    assert lab.statuses(step) == {"target": "cached"}


def test_undo_leaves_nothing_current_also_over_an_output_of_its_own(lab: Lab) -> None:
    source, step = node("s").named("source"), node("t").named("target")
    lab.run([source, step])
    adopted(lab, step, source)
    assert step.load(root=lab.root).read() == "s"
    withdrawn = undo_adoption(open_store(lab.root), step.directory, reason="they differ")
    assert withdrawn.number == 3
    assert lab.commit(step) is None
    assert lab.plan(step)["target"].why == "its output was withdrawn: they differ"
    with pytest.raises(MissingOutput):
        step.load(root=lab.root)
    lab.ran()
    lab.run(step)
    assert step.load(root=lab.root).read() == "t"
    with pytest.raises(ConfigurationError, match="serves an output of its own"):
        undo_adoption(open_store(lab.root), step.directory, reason="again")


def test_what_was_adopted_is_adopted_again_without_a_write(lab: Lab) -> None:
    source, step = node("s").named("source"), node("t").named("target")
    lab.run(source)
    first = adopted(lab, step, source)
    backend = FaultyBackend(open_store(lab.root).backend)
    again, is_new = adopt(Store(backend), target(lab, step), source.directory, reason="equal by construction")
    assert (again, is_new, backend.mutations) == (first, False, 0)


def test_adopting_what_was_adopted_names_the_owner_of_the_data(lab: Lab) -> None:
    a, b, c = (node(name).named(name) for name in "abc")
    lab.run(a)
    adopted(lab, b, a)
    commit = adopted(lab, c, b)
    assert (commit.source_directory, commit.source_commit) == (a.directory, 1)
    assert c.load(root=lab.root).read() == "a"


def test_a_stored_step_can_adopt_without_its_experiment(lab: Lab) -> None:
    source, step = node("s").named("source"), node("t").named("target")
    lab.run([source, step])
    store = open_store(lab.root)
    adopt(store, target_of_output(store, step.directory, provenance=FACTS), source.directory, reason="alike")
    assert step.load(root=lab.root).read() == "s"
    with pytest.raises(MissingOutput, match="no record that says what it is"):
        target_of_output(store, node("never").directory, provenance=FACTS)


def test_what_is_not_whole_is_not_adopted(lab: Lab) -> None:
    source, step = node("source").named("source"), node("t").named("target")
    lab.run(source)
    (lab.output(source) / "text.txt").write_text("s")
    with pytest.raises(CorruptOutput, match=r"text\.txt is short"):
        adopted(lab, step, source)
    assert lab.commit(step) is None


@pytest.mark.parametrize("stored", [False, True])
def test_a_result_of_another_type_is_refused(lab: Lab, stored: bool) -> None:
    source, step = node("s").named("source"), seed("t").named("target")
    lab.run([source, step] if stored else source)
    store = open_store(lab.root)
    made = target_of_output(store, step.directory, provenance=FACTS) if stored else target(lab, step)
    with pytest.raises(ConfigurationError, match="its result does not fit"):
        adopt(store, made, source.directory, reason="alike")


def test_no_reason_no_output_and_itself_are_refused(lab: Lab) -> None:
    source, step = node("s").named("source"), node("t").named("target")
    lab.run(source)
    with pytest.raises(ConfigurationError, match="needs a reason"):
        adopted(lab, step, source, reason=" ")
    with pytest.raises(MissingOutput, match="has no output to adopt"):
        adopted(lab, source, step)
    with pytest.raises(ConfigurationError, match="its own output"):
        adopted(lab, source, source)


def test_a_step_that_somebody_works_on_is_left_alone(lab: Lab) -> None:
    source, step = node("s").named("source"), node("t").named("target")
    lab.run(source)
    store = open_store(lab.root)
    acquire(store, step.directory, seen=observe(store, step.directory), times=LeaseTimes())
    with pytest.raises(Busy, match="works on it"):
        adopted(lab, step, source)


def test_an_adoption_whose_source_is_collected_at_that_moment_takes_itself_back(lab: Lab) -> None:
    source, step = node("s").named("source"), node("t").named("target")
    lab.run(source)
    collections = [lambda: collect(open_store(lab.root), GcPolicy(older_than_s=0.0), delete=True, user="u")]

    def before(_: str, key: str) -> None:
        if key == f"{step.directory}/commit.json" and collections:
            collections.pop()()

    store = Store(FaultyBackend(open_store(lab.root).backend, before=before))
    with pytest.raises(Busy, match="was collected meanwhile"):
        adopt(store, target(lab, step), source.directory, reason="alike")
    assert isinstance(read_commit(store, step.directory, 2), Withdrawn)
    assert lab.commit(step) is None
