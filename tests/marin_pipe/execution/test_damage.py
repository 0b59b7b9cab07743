"""Records that cannot be read, and foreign things below a root: what needs them is told, everything else goes on."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import PermissionDenied, Store, open_store

from marin_pipe import Step
from marin_pipe.execution import observe as observing
from marin_pipe.execution.adoption import adopt, target_of_output
from marin_pipe.execution.errors import ConfigurationError, RecordError
from marin_pipe.execution.gc import GcPolicy, collect
from marin_pipe.execution.history import step_directories
from marin_pipe.execution.inventory import Inventory
from marin_pipe.execution.labels import list_labels, move_label, read_label
from marin_pipe.execution.layout import build_key_file, label_file
from marin_pipe.execution.observe import UNREADABLE, observe, read_lease
from marin_pipe.execution.outputs import list_outputs
from marin_pipe.execution.owners import unlock
from marin_pipe.execution.records import Provenance
from marin_pipe.execution.run import ExperimentInfo
from marin_pipe.execution.status import step_status
from marin_pipe.execution.verify import verify_outputs

EXPERIMENT = ExperimentInfo(name="exp")
DAMAGES = {
    "empty": b"",
    "torn": b"{",
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "not utf-8": b'{"kind": "built\xff"}',
    "deep": b"[" * 10_000,
}
damages = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
SOMEBODY = Provenance(
    run="r",
    experiment=None,
    host="h",
    user="u",
    argv=(),
    python="",
    git_commit=None,
    git_dirty_digest=None,
    packages="",
)


def record(lab: Lab, step: Step[Any], name: str = "commit.json") -> Path:
    return Path(lab.root, step.directory, name)


def damage_commit(lab: Lab, step: Step[Any], data: bytes = b"{") -> Path:
    path = record(lab, step)
    path.write_bytes(data)
    return path


def pair() -> tuple[Step[Any], Step[Any]]:
    base = node("a").named("base")
    return base, node("top", (base,)).named("top")


# --- commits ----------------------------------------------------------------------------------------------------------


@damages
def test_a_damaged_commit_is_told_and_a_forced_run_makes_the_next_one(lab: Lab, damage: bytes) -> None:
    step = node("a")
    lab.run(step)
    damage_commit(lab, step, damage)
    with pytest.raises(RecordError, match="run --force node"):
        step.load(root=lab.root)
    failure = lab.run(step)["node"].failure
    assert failure is not None
    assert lab.exit_code == 5
    assert "node-" in failure.message
    assert "commit.json" in failure.message
    assert "run --force node" in failure.message
    assert lab.statuses(step, selection={"force": "node"}) == {"node": "built"}
    assert record(lab, step, "commit.2.json").exists()
    assert step.load(root=lab.root).read() == "a"
    assert lab.statuses(step) == {"node": "cached"}


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere"), os.mkfifo])
def test_what_is_no_file_in_a_commits_place_takes_its_number(lab: Lab, make: Callable[[Path], None]) -> None:
    step = node("a")
    path = record(lab, step)
    path.parent.mkdir(parents=True)
    make(path)
    assert lab.statuses(step) == {"node": "failed"}
    assert lab.exit_code == 5
    assert lab.statuses(step, selection={"force": "node"}) == {"node": "built"}
    assert record(lab, step, "commit.2.json").exists()


def test_a_plan_says_blocked_until_it_is_forced(lab: Lab) -> None:
    _, top = pair()
    lab.run(top)
    damage_commit(lab, top)
    row = lab.plan(top)["top"]
    assert row.action == "blocked"
    assert row.why.startswith("damaged record: top-")
    assert "run --force top" in row.why
    assert lab.actions(top, selection={"force": "top"}) == {"base": "cached", "top": "run"}


def test_of_a_damaged_step_no_input_is_rebuilt(lab: Lab) -> None:
    base, top = pair()
    lab.run(top)
    lab.delete(base)
    damage_commit(lab, top)
    assert lab.actions(top) == {"top": "blocked"}
    lab.ran()
    assert lab.statuses(top) == {"top": "failed"}
    assert lab.ran() == []


def test_a_consumer_with_an_output_is_served_and_told_of_its_input(lab: Lab) -> None:
    base, top = pair()
    lab.run(top)
    damage_commit(lab, base)
    ends = lab.run(top)
    assert {name: end.status for name, end in ends.items()} == {"top": "cached"}
    assert ends["top"].notes == ("the record of its input base is damaged",)
    assert lab.actions(top) == {"top": "cached"}


def test_a_consumer_that_runs_is_blocked_by_its_damaged_input(lab: Lab) -> None:
    base, top = pair()
    lab.run(base)
    damage_commit(lab, base)
    assert lab.actions(top) == {"base": "blocked", "top": "blocked"}
    assert lab.statuses(top) == {"base": "failed", "top": "blocked"}
    assert lab.exit_code == 5
    assert lab.statuses(top, selection={"force": "base"}) == {"base": "built", "top": "built"}


def test_a_superseded_commit_may_be_damaged(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    lab.run(step, selection={"force": "node"})
    damage_commit(lab, step)
    assert lab.statuses(step) == {"node": "cached"}


def test_a_copy_under_another_number_is_refused(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    record(lab, step, "commit.7.json").write_bytes(record(lab, step).read_bytes())
    failure = lab.run(step)["node"].failure
    assert failure is not None
    assert "commit.7.json: the record is that of commit 1" in failure.message
    assert lab.statuses(step, selection={"force": "node"}) == {"node": "built"}
    assert record(lab, step, "commit.8.json").exists()


def test_a_copy_in_another_steps_directory_is_refused(lab: Lab) -> None:
    one, other = node("a"), node("b")
    lab.run([one, other])
    record(lab, other).write_bytes(record(lab, one).read_bytes())
    with pytest.raises(RecordError, match=f"the record belongs to node, key {one.key[:16]}"):
        other.load(root=lab.root)
    assert one.load(root=lab.root).read() == "a"


def test_a_damaged_output_is_not_adopted_by_build_key(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    one = node("a").named("one")
    lab.run(one)
    damage_commit(lab, one)
    assert lab.statuses(node("a").named("other")) == {"other": "built"}
    commit = lab.commit(node("a").named("other"))
    assert commit is not None
    pointer = Path(lab.root, build_key_file(commit.record.build_key))
    pointer.write_text("{")
    assert lab.statuses(node("a").named("third")) == {"third": "built"}
    assert pointer.name in caplog.text


def test_a_damaged_output_is_not_adopted_by_hand_but_replaced_by_an_adoption(lab: Lab) -> None:
    one, other = node("a"), node("b")
    lab.run([one, other])
    store = open_store(lab.root)
    target = target_of_output(store, one.directory, provenance=SOMEBODY)
    damage_commit(lab, one)
    with pytest.raises(RecordError, match="run --force node"):
        adopt(store, target_of_output(store, other.directory, provenance=SOMEBODY), one.directory, reason="equal")
    commit, is_new = adopt(store, target, other.directory, reason="equal")
    assert is_new
    assert commit.number == 2
    assert one.load(root=lab.root).read() == "b"


def test_status_verify_and_list_name_it_and_go_on(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    one, other = node("a"), node("b")
    lab.run([one, other])
    path = damage_commit(lab, one)
    store = open_store(lab.root)
    status = step_status(store, one.directory)
    assert status.state == "DAMAGED"
    assert "run --force node" in status.note
    everything = Inventory(store=store).everything()
    assert [output.directory for output in list_outputs(store, everything.values())] == [other.directory]
    assert f"{one.directory}/{path.name}" in caplog.text
    verified = {result.directory: result.mismatches for result in verify_outputs(store, everything.values())}
    assert verified[other.directory] == ()
    assert [(m.problem, m.key) for m in verified[one.directory]] == [("damaged", f"{one.directory}/commit.json")]


# --- leases -----------------------------------------------------------------------------------------------------------


@damages
def test_a_damaged_lease_is_waited_for_and_then_taken_over(
    lab: Lab, damage: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(observing, "UNREADABLE_TTL_S", 0.1)
    step = node("a")
    lab.run(step)
    record(lab, step, "lease.json").write_bytes(damage)
    assert lab.statuses(step) == {"node": "cached"}
    events: list[Any] = []
    assert lab.statuses(step, selection={"force": "node"}, on_event=events.append) == {"node": "built"}
    lease = json.loads(record(lab, step, "lease.json").read_bytes())
    assert (lease["owner"], lease["commit"], lease["epoch"]) == (None, 2, 2)
    if damage:  # nothing but a power failure leaves an empty one: its owner is gone
        assert "an unknown owner (lease.json is damaged)" in next(e.text for e in events if e.kind == "waiting")
        assert f"{step.directory}/lease.json was damaged" in caplog.text


def test_a_damaged_lease_can_be_unlocked(lab: Lab) -> None:
    step = node("a")
    record(lab, step).parent.mkdir(parents=True)
    record(lab, step, "lease.json").write_bytes(b"[]")
    assert lab.statuses(step, no_wait=True) == {"node": "blocked"}
    assert lab.actions(step) == {"node": "wait"}
    store = open_store(lab.root)
    assert step_status(store, step.directory).state == "LOST"
    pauses: list[float] = []
    freed = unlock(store, step.directory, owner=UNREADABLE, pause=pauses.append)
    assert freed.holder == "an unknown owner (lease.json is damaged)"
    assert sum(pauses) == pytest.approx(30, abs=1)
    present = read_lease(store, step.directory)
    assert present is not None
    assert present[0].owner is None
    assert lab.statuses(step, no_wait=True) == {"node": "built"}


def test_what_else_is_said_about_a_try_may_be_damaged(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.run(node("a", fail=True))
    (ended,) = Path(lab.root).glob("node-*/attempts/*/ended.json")
    ended.write_bytes(b"{")
    assert lab.statuses(node("a")) == {"node": "built"}
    assert "ended.json" in caplog.text


# --- labels and launches ----------------------------------------------------------------------------------------------


@damages
def test_a_damaged_label_stops_nobody_and_is_made_anew_by_a_move(
    lab: Lab, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    step = node("a")
    lab.run(step)
    store = open_store(lab.root)
    for name in ("good", "bad"):
        move_label(store, name, step.directory, 1, user="me")
    path = Path(lab.root, label_file("bad"))
    path.write_bytes(damage)
    assert [label.label for label in list_labels(store)] == ["good"]
    assert "labels/bad.json" in caplog.text
    with pytest.raises(RecordError, match="label bad STEP --move"):
        read_label(store, "bad")
    with pytest.raises(RecordError, match="label bad STEP --move"):
        move_label(store, "bad", step.directory, 1, user="me", move=False)
    move_label(store, "bad", step.directory, 1, user="me")
    assert [label.label for label in list_labels(store)] == ["bad", "good"]


def damage_a_label(lab: Lab, step: Step[Any]) -> Path:
    move_label(open_store(lab.root), "mine", step.directory, 1, user="me")
    path = Path(lab.root, label_file("mine"))
    path.write_bytes(b"{")
    return path


def damage_a_launch(lab: Lab, step: Step[Any]) -> Path:
    del step
    (path,) = Path(lab.root, ".marin_pipe/experiments/exp").iterdir()
    path.write_bytes(b"{")
    return path


@pytest.mark.parametrize("damage", [damage_commit, damage_a_label, damage_a_launch])
@pytest.mark.parametrize("delete", [False, True])
def test_nothing_is_collected_while_a_record_cannot_be_read(
    lab: Lab, damage: Callable[[Lab, Step[Any]], Path], delete: bool
) -> None:
    kept, old = node("a"), node("b")
    lab.run(kept, experiment=EXPERIMENT)
    lab.run(old)
    path = damage(lab, kept)
    before = lab.snapshot()
    policy = GcPolicy(older_than_s=0.0)
    with pytest.raises(RecordError, match="nothing is collected") as caught:
        collect(open_store(lab.root), policy, delete=delete, user="me")
    assert path.name in caught.value.what
    assert "out of the root" in caught.value.next
    after = {name: seen for name, seen in lab.snapshot().items() if "gc.json" not in name and before.get(name) != seen}
    assert {name for name in after if Path(name).is_file() and ".marin_storage" not in name} == set()
    path.rename(Path(lab.folder, "moved away"))
    report = collect(open_store(lab.root), policy, delete=delete, user="me")
    assert old.directory in {removal.directory for removal in report.removals}


def test_a_record_that_breaks_while_collecting_restores_everything(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, old = node("a"), node("b")
    lab.run(kept, experiment=EXPERIMENT)
    lab.run(old)
    everything = Inventory.everything
    calls: list[None] = []

    def break_before_the_second(self: Inventory, **options: str) -> Any:
        calls.append(None)
        if len(calls) == 2:
            damage_a_label(lab, kept)
        return everything(self, **options)

    monkeypatch.setattr(Inventory, "everything", break_before_the_second)
    report = collect(open_store(lab.root), GcPolicy(older_than_s=0.0), delete=True, user="me")
    assert report.removals == ()
    assert old.load(root=lab.root).read() == "b"


# --- foreign things ---------------------------------------------------------------------------------------------------


def litter(root: Path, *, inside: Path) -> None:
    """What people and systems leave below a root, and inside a step's directory."""
    ours = (".marin_pipe", ".marin_pipe/labels", ".marin_pipe/experiments", ".marin_pipe/experiments/exp")
    for place in (root, inside, inside / "attempts", *(root / name for name in ours)):
        place.mkdir(exist_ok=True, parents=True)
        (place / "dangling").symlink_to("nowhere")
        (place / "itself").symlink_to("itself")
        (place / "here").symlink_to(".")
        (place / "note.txt").write_text("hello")
        os.mkfifo(place / "pipe")
    (root / "above").symlink_to("..")
    for name in (b"new\nline", b"not utf-8 \xff", b"a b-0123456789abcdef", b".git", b"lost+found"):
        os.mkdir(os.fsencode(root) + b"/" + name)


def test_foreign_things_do_not_matter(lab: Lab) -> None:
    base, top = pair()
    lab.run(top, experiment=EXPERIMENT)
    litter(Path(lab.root), inside=Path(lab.root, base.directory))
    store = open_store(lab.root)
    assert lab.statuses(top) == {"base": "cached", "top": "cached"}
    assert lab.actions(top) == {"base": "cached", "top": "cached"}
    assert step_directories(store) == sorted([base.directory, top.directory])
    everything = Inventory(store=store).everything()
    assert len(list_outputs(store, everything.values())) == 2
    assert all(not result.mismatches for result in verify_outputs(store, everything.values()))
    assert {step_status(store, directory).state for directory in everything} == {"SUCCEEDED"}
    assert list_labels(store) == []
    assert lab.statuses(top, selection={"force": "*"}) == {"base": "built", "top": "built"}
    collect(store, GcPolicy(older_than_s=0.0, leftovers_older_than_s=0.0), delete=True, user="me")
    assert top.load(root=lab.root).read() == "top(a)"


def test_a_dangling_link_in_data_is_an_unexpected_entry(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    data = lab.output(step)
    data.chmod(0o755)
    (data / "link").symlink_to("nowhere")
    store = open_store(lab.root)
    (result,) = verify_outputs(store, Inventory(store=store).everything().values())
    assert [(m.problem, m.key.rpartition("/")[2]) for m in result.mismatches] == [("extra", "link")]
    consumer = node("b", (step,)).named("consumer")
    assert lab.statuses(consumer) == {"node": "cached", "consumer": "built"}
    assert consumer.load(root=lab.root).read() == "b(a)"


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Directories that may not be listed; also for the superuser, whom no mode keeps out."""
    names: set[str] = set()
    list_directory = Store.list_directory

    def guarded(self: Store, prefix: str) -> Any:
        if any(prefix == name or prefix.startswith(f"{name}/") for name in names):
            raise PermissionDenied(13, "Permission denied", prefix)
        return list_directory(self, prefix)

    monkeypatch.setattr(Store, "list_directory", guarded)
    return names


def test_a_directory_that_may_not_be_looked_into_is_left_out(
    lab: Lab, forbidden: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    step, old = node("a"), node("b")
    lab.run(step, experiment=EXPERIMENT)
    lab.run(old)
    Path(lab.root, "lost+found").mkdir()
    forbidden.add("lost+found")
    store = open_store(lab.root)
    with caplog.at_level(logging.WARNING):
        assert step_directories(store) == sorted([step.directory, old.directory])
    assert "lost+found" in caplog.text
    assert lab.statuses(step) == {"node": "cached"}
    report = collect(store, GcPolicy(older_than_s=0.0), delete=True, user="me")
    assert {removal.directory for removal in report.removals} == {old.directory}


def test_nothing_is_collected_while_something_kept_may_not_be_looked_into(lab: Lab, forbidden: set[str]) -> None:
    lab.run([node("a").named("theirs/a")], experiment=EXPERIMENT)
    lab.run(node("b"))
    forbidden.add("theirs")
    with pytest.raises(RecordError, match="theirs may not be read"):
        collect(open_store(lab.root), GcPolicy(older_than_s=0.0), delete=True, user="me")


def test_an_earlier_output_of_somebody_else_is_not_compared_with(lab: Lab, forbidden: set[str]) -> None:
    earlier = node("a")
    lab.run(earlier)
    forbidden.add(earlier.directory)
    assert lab.statuses(node("b")) == {"node": "built"}


def test_what_a_link_leads_to_is_kept_under_its_own_name(lab: Lab) -> None:
    step = node("a")
    lab.run(step, experiment=EXPERIMENT)
    place = Path(lab.root, step.directory)
    moved = Path(lab.root, "archive", step.directory)
    moved.parent.mkdir()
    place.rename(moved)
    place.symlink_to(moved)
    report = collect(open_store(lab.root), GcPolicy(older_than_s=0.0), delete=True, user="me")
    assert report.removals == ()
    assert step.load(root=lab.root).read() == "a"


def test_a_root_that_is_a_file_is_a_usage_error(lab: Lab) -> None:
    Path(lab.root).write_text("no directory")
    with pytest.raises(Exception, match="is no directory") as caught:
        lab.run(node("a"))
    assert repr(lab.root) in str(caught.value)
    assert not isinstance(caught.value, ConfigurationError | FileExistsError)


def test_observing_costs_the_same_as_ever(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    step = node("a")
    lab.run(step)
    calls: list[str] = []
    for name in ("list_directory", "read", "stat"):
        original = getattr(Store, name)

        def counted(self: Store, key: str, *, _name: str = name, _original: Any = original, **options: Any) -> Any:
            calls.append(_name)
            return _original(self, key, **options)

        monkeypatch.setattr(Store, name, counted)
    observe(open_store(lab.root), step.directory, key=step.key)
    assert calls == ["list_directory", "read"]
