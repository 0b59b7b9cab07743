"""Collection: what is kept, what goes, and what happens when others run at the same time."""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import Fault, FaultyBackend, Killed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab import Lab
from lab_steps import node
from marin_storage import NotFound, Store, open_store

from marin_pipe import Step, run
from marin_pipe.execution import provenance
from marin_pipe.execution import run as launcher
from marin_pipe.execution.adoption import adopt, target_of_output, undo_adoption
from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.gc import DAY_S, GcPolicy, GcReport, collect
from marin_pipe.execution.graph import build_graph
from marin_pipe.execution.inventory import Inventory
from marin_pipe.execution.labels import list_labels, move_label
from marin_pipe.execution.launch import make_launch, write_launch
from marin_pipe.execution.layout import GC_FILE, build_key_file, commit_key, lease_key
from marin_pipe.execution.lease import LeaseTimes, acquire, force_release
from marin_pipe.execution.observe import data_directory, observe, read_commit, read_lease
from marin_pipe.execution.records import Adopted, Provenance, Withdrawn
from marin_pipe.execution.run import ExperimentInfo

EXPERIMENT = ExperimentInfo(name="exp")
NO_AGES = GcPolicy(older_than_s=0.0)
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


@pytest.fixture(autouse=True)
def no_provenance(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests make hundreds of launches: none looks at git and installed packages."""
    monkeypatch.setattr(provenance, "git_state", lambda _: (None, None))
    monkeypatch.setattr(provenance, "installed_packages", dict)


def chain(label: str) -> Step[Any]:
    """Two steps, the second made from the first."""
    return node("top", (node(label).named(f"base/{label}"),)).named("top")


def collected(lab: Lab, policy: GcPolicy = NO_AGES, *, delete: bool = True) -> GcReport:
    return collect(open_store(lab.root), policy, delete=delete, user="tester")


def outputs(report: GcReport) -> set[str]:
    return {removal.directory for removal in report.removals if removal.kind == "output"}


def make_old(root: str, directory: str, *, days: float) -> None:
    """Set every time below a directory back."""
    then = time.time() - days * DAY_S
    for path in [Path(root, directory), *Path(root, directory).rglob("*")]:
        os.utime(path, (then, then))


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_after_ten_runs_with_changed_arguments_the_first_five_outputs_are_freed(lab: Lab) -> None:
    steps = [chain(str(i)) for i in range(10)]
    for step in steps:
        lab.run({"top": step}, experiment=EXPERIMENT)
    pointers = Path(lab.root, ".marin_pipe/builds")
    assert len(list(pointers.iterdir())) == 20
    report = collected(lab)
    assert outputs(report) == {s.directory for step in steps[:5] for s in (step, node_of(step))}
    assert len(list(pointers.iterdir())) == 10
    for step in steps[:5]:
        assert list(Path(lab.root, step.directory, "attempts").iterdir()) == []
        assert lab.commit(step) is None
    for i, step in enumerate(steps[5:], start=5):
        assert step.load(root=lab.root).read() == f"top({i})"
    assert len(list(Path(lab.root, ".marin_pipe/experiments/exp").iterdir())) == 5
    lab.ran()
    assert lab.statuses(steps[0]) == {"base/0": "built", "top": "built"}
    assert steps[0].load(root=lab.root).read() == "top(0)"


def node_of(step: Step[Any]) -> Step[Any]:
    reference = step.bound.inputs[0][1]
    assert isinstance(reference, Step)
    return reference


def test_without_delete_nothing_is_written_and_the_report_is_the_same(lab: Lab) -> None:
    for i in range(3):
        lab.run(chain(str(i)), experiment=EXPERIMENT)
    policy = GcPolicy(keep_runs=1, older_than_s=0.0)
    before = lab.snapshot()
    dry = collected(lab, policy, delete=False)
    assert lab.snapshot() == before
    wet = collected(lab, policy)
    assert [(r.key, r.size_bytes, r.why) for r in wet.removals] == [(r.key, r.size_bytes, r.why) for r in dry.removals]
    assert dry.size_bytes > 0
    assert all("no kept launch, label or live lease" in removal.why for removal in dry.removals)
    assert collected(lab, policy).removals == ()


def test_young_launches_are_kept_whatever_their_number(lab: Lab) -> None:
    steps = [chain(str(i)) for i in range(3)]
    for step in steps:
        lab.run(step, experiment=EXPERIMENT)
    assert collected(lab, GcPolicy(keep_runs=0, older_than_s=DAY_S)).removals == ()


def test_an_output_that_no_launch_names_is_kept_while_it_is_young(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    assert collected(lab, GcPolicy(older_than_s=DAY_S)).removals == ()
    make_old(lab.root, step.directory, days=2)
    assert outputs(collected(lab, GcPolicy(older_than_s=DAY_S))) == {step.directory}


def test_a_label_keeps_an_output_and_what_it_was_made_from(lab: Lab) -> None:
    step = chain("a")
    lab.run(step)
    move_label(open_store(lab.root), "good", step.directory, 1, user="u")
    assert collected(lab).removals == ()


def test_an_adopted_output_keeps_its_source(lab: Lab) -> None:
    first, second = node("a").named("one"), node("a").named("two")
    lab.run(first)
    lab.run(second, experiment=EXPERIMENT)
    assert collected(lab).removals == ()
    assert second.load(root=lab.root).read() == "a"


def test_an_unreachable_adoption_does_not_keep_its_source(lab: Lab) -> None:
    first, second = node("a").named("one"), node("a").named("two")
    lab.run(first)
    lab.run(second)
    assert outputs(collected(lab)) == {first.directory, second.directory}
    assert lab.commit(second) is None
    lab.ran()
    assert lab.statuses(second) == {"two": "built"}


@pytest.mark.parametrize("committed", [True, False])
def test_what_a_pinned_step_points_to_is_kept(lab: Lab, committed: bool) -> None:
    pinned, other = node("a").named("original"), node("b")
    lab.run(pinned)
    handle = node("unused").named("handle").pinned_to(f"{lab.root}/{pinned.directory}", reason="published")
    lab.run({"t": node("c", (handle,), fail=not committed)}, experiment=EXPERIMENT)
    lab.run(other)
    assert outputs(collected(lab)) == {other.directory}
    assert pinned.load(root=lab.root).read() == "a"


def test_a_live_lease_keeps_a_step_and_an_abandoned_one_does_not(lab: Lab) -> None:
    step = node("a")
    lab.run(step)
    store = open_store(lab.root)
    acquire(store, step.directory, seen=observe(store, step.directory), times=LeaseTimes())
    assert collected(lab).removals == ()
    make_old(lab.root, step.directory, days=8)
    body = store.read(lease_key(step.directory)).data.replace(b'"host":"', b'"host":"elsewhere-')
    Path(lab.root, lease_key(step.directory)).write_bytes(body)
    assert collected(lab).removals == ()
    make_old(lab.root, step.directory, days=8)
    assert outputs(collected(lab)) == {step.directory}


def test_an_unreadable_launch_record_stops_the_collection(lab: Lab) -> None:
    step = node("a")
    lab.run(step, experiment=EXPERIMENT)
    record = next(Path(lab.root, ".marin_pipe/experiments/exp").iterdir())
    record.write_text('{"run": 1}')
    with pytest.raises(RecordError, match="does not validate"):
        collected(lab)
    assert step.load(root=lab.root).read() == "a"


# --- what attempts left behind ----------------------------------------------------------------------------------------


def test_old_attempts_without_a_commit_and_old_work_of_committed_steps_go(lab: Lab) -> None:
    step = node("a")
    lab.run(node("a", fail=True), experiment=EXPERIMENT)
    lab.run(step, experiment=EXPERIMENT)
    work = Path(lab.root, step.directory, "work/000002-abcdef")
    work.mkdir(parents=True)
    (work / "checkpoint").write_text("x" * 10)
    attempts = Path(lab.root, step.directory, "attempts")
    failed, built = sorted(attempts.iterdir())
    assert collected(lab).removals == ()
    make_old(lab.root, step.directory, days=8)
    assert {(r.kind, r.key.rpartition("/")[2]) for r in collected(lab).removals} == {
        ("attempt", failed.name),
        ("work", work.name),
    }
    assert sorted(attempts.iterdir()) == [built]
    assert not work.exists()
    assert step.load(root=lab.root).read() == "a"


def test_work_of_a_step_without_an_output_stays_for_its_next_attempt(lab: Lab) -> None:
    step = node("a", fail=True)
    lab.run(step, experiment=EXPERIMENT)
    work = Path(lab.root, step.directory, "work/000001-abcdef")
    work.mkdir(parents=True)
    (work / "checkpoint").write_text("x")
    make_old(lab.root, step.directory, days=8)
    assert [removal.kind for removal in collected(lab).removals] == ["attempt"]
    assert (work / "checkpoint").exists()


def test_an_attempt_that_could_still_wake_up_and_commit_stays(lab: Lab) -> None:
    """A later try at a committed step that never said how it ended: its process may only be asleep."""
    step = node("a")
    lab.run(step, experiment=EXPERIMENT)
    asleep = Path(lab.root, step.directory, "attempts/000002-abcdef/output")
    asleep.mkdir(parents=True)
    (asleep / "text.txt").write_text("half")
    make_old(lab.root, step.directory, days=8)
    report = collected(lab)
    assert report.removals == ()
    assert "could still commit" in report.left[0].why
    assert (asleep / "text.txt").exists()


def test_a_lost_attempt_of_a_step_without_output_goes_behind_a_tombstone_that_takes_its_number(lab: Lab) -> None:
    step = node("a", fail=True)
    lab.run(step, experiment=EXPERIMENT)
    attempts = Path(lab.root, step.directory, "attempts")
    for ended in attempts.glob("*/ended.json"):
        ended.rename(ended.with_name("half-written"))
    make_old(lab.root, step.directory, days=8)
    collected(lab)
    assert list(attempts.iterdir()) == []
    assert isinstance(read_commit(open_store(lab.root), step.directory, 1), Withdrawn)
    assert lab.statuses(node("a")) == {"node": "built"}


# --- others at the same time ------------------------------------------------------------------------------------------


def hooked(root: str, hook: Callable[[str, str], None]) -> Store:
    """The store at `root` that tells `hook` about each mutation before it happens."""
    return Store(FaultyBackend(open_store(root).backend, before=hook))


def once(wanted: Callable[[str, str], bool], action: Callable[[], object]) -> Callable[[str, str], None]:
    """A hook that acts before the first mutation that is `wanted`."""
    done: list[bool] = []

    def hook(name: str, key: str) -> None:
        if not done and wanted(name, key):
            done.append(True)
            action()

    return hook


def second_announcement() -> Callable[[str, str], bool]:
    """The first announcement opens the collection; the second comes after the tombstones, before the second look."""
    announcements = itertools.count()
    return lambda _, key: key == GC_FILE and next(announcements) == 1


def test_an_output_that_a_launch_comes_to_name_after_its_tombstone_is_restored(lab: Lab) -> None:
    base = node("a").named("base")
    lab.run(base)
    top = node("top", (base,)).named("top")

    def record_a_launch() -> None:
        # As a launch does that saw the output before its tombstone.
        write_launch(
            open_store(lab.root),
            make_launch(
                build_graph({"top": top}), run="r", experiment="exp", description="", config=None, provenance=SOMEBODY
            ),
        )

    hook = once(second_announcement(), record_a_launch)
    report = collect(hooked(lab.root, hook), NO_AGES, delete=True, user="u")
    assert isinstance(read_commit(open_store(lab.root), base.directory, 2), Withdrawn)
    assert base.directory not in outputs(report)
    assert "launch r of exp" in report.left[0].why
    assert base.load(root=lab.root).read() == "a"
    lab.ran()
    assert lab.statuses(top) == {"base": "cached", "top": "built"}


def test_a_launch_that_looked_before_a_collection_and_recorded_itself_after_it_looks_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = node("a").named("base")
    lab.run(base)
    hook = once(lambda _, key: "/experiments/" in key, lambda: collected(lab))
    monkeypatch.setattr(launcher, "open_store", lambda _: hooked(lab.root, hook))
    lab.ran()
    top = node("top", (base,)).named("top")
    assert lab.statuses({"top": top}, experiment=EXPERIMENT) == {"base": "built", "top": "built"}
    assert top.load(root=lab.root).read() == "top(a)"


def test_an_adoption_published_after_its_source_was_collected_is_withdrawn_and_the_step_runs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = node("a").named("one"), node("a").named("two")
    lab.run(first)
    wanted = commit_key(second.directory, 1)
    # Between the look at the source and the commit that adopts it.
    hook = once(lambda _, key: key == wanted, lambda: collected(lab))
    monkeypatch.setattr(launcher, "open_store", lambda _: hooked(lab.root, hook))
    lab.ran()
    assert lab.statuses(second) == {"two": "built"}
    assert lab.ran() == ["two"]
    store = open_store(lab.root)
    kinds = [read_commit(store, second.directory, number).kind for number in (1, 2, 3)]
    assert kinds == ["adopted", "withdrawn", "built"]
    assert second.load(root=lab.root).read() == "a"


def test_an_adoption_published_before_the_second_look_keeps_its_source(lab: Lab) -> None:
    first, second = node("a").named("one"), node("a").named("two")
    lab.run(first)
    hook = once(lambda name, key: name == "create" and key == commit_key(first.directory, 2), lambda: lab.run(second))
    report = collect(hooked(lab.root, hook), NO_AGES, delete=True, user="u")
    assert outputs(report) == set()
    assert first.load(root=lab.root).read() == second.load(root=lab.root).read() == "a"
    assert isinstance(lab.commit(second), Adopted)


def test_a_step_rebuilt_under_a_collection_that_lost_its_lease_keeps_its_new_attempt(lab: Lab) -> None:
    step = node("a")
    lab.run(step)

    def take_over() -> None:
        store = open_store(lab.root)
        present = read_lease(store, step.directory)
        assert present is not None
        assert present[0].owner is not None
        force_release(store, step.directory, owner=present[0].owner)
        lab.run(step)

    hook = once(second_announcement(), take_over)
    collect(hooked(lab.root, hook), NO_AGES, delete=True, user="u")
    assert step.load(root=lab.root).read() == "a"
    assert len(list(Path(lab.root, step.directory, "attempts").iterdir())) == 1


def test_a_collection_killed_at_any_mutation_leaves_every_current_output_whole(lab: Lab) -> None:
    policy = GcPolicy(keep_runs=1, older_than_s=0.0)
    doomed, kept = chain("doomed"), chain("kept")
    for number in itertools.count(1):
        here = Lab(folder=lab.folder / str(number))
        here.run(doomed, experiment=EXPERIMENT)
        here.run(kept, experiment=EXPERIMENT)
        backend = FaultyBackend(open_store(here.root).backend, {number: Fault.KILLED_AFTER})
        try:
            # The "dead" process is this one, so that its leases end by their age only.
            collect(Store(backend), policy, delete=True, user="u", times=LeaseTimes(ttl_s=0.02))
        except Killed:
            pass
        else:
            break
        assert kept.load(root=here.root).read() == "top(kept)"
        assert_current_outputs_are_whole(here.root)
        assert here.statuses(doomed)["top"] in ("built", "cached")
        assert doomed.load(root=here.root).read() == "top(doomed)"
    assert number > 8


def assert_current_outputs_are_whole(root: str) -> None:
    store = open_store(root)
    for directory, stored in Inventory(store=store).everything().items():
        if stored.current is not None:
            prefix = data_directory(directory, stored.current)
            for file in stored.current.manifest:
                assert store.digest(f"{prefix}/{file.path}") == file.digest


# --- random histories -------------------------------------------------------------------------------------------------

ARGUMENTS = st.sampled_from("abcd")
NAMES = st.sampled_from(["one", "two"])
OPERATIONS = st.one_of(
    st.tuples(st.just("run"), NAMES, ARGUMENTS, st.sampled_from(["x", "y"])),
    st.tuples(st.just("force"), NAMES, ARGUMENTS, st.sampled_from(["x", "y"])),
    st.tuples(st.just("label"), NAMES, ARGUMENTS, st.sampled_from(["l1", "l2"])),
    st.tuples(st.just("adopt"), NAMES, ARGUMENTS, ARGUMENTS),
    st.tuples(st.just("undo"), NAMES, ARGUMENTS, ARGUMENTS),
    st.tuples(st.just("gc"), st.integers(0, 3)),
)


@pytest.fixture
def memory_roots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Empty roots in memory."""
    monkeypatch.setenv("LAB_NOTEBOOK", str(tmp_path / "notebook"))
    numbers = itertools.count()
    made: list[str] = []

    def new() -> str:
        made.append(f"memory://gc-{os.getpid()}-{next(numbers)}")
        return made[-1]

    yield new
    for root in made:
        for entry in open_store(root).list_files(""):
            open_store(root).delete(entry.key)


def three(name: str, argument: str, salt: str = "") -> Step[Any]:
    base = node(argument, salt=salt).named("base")
    return node("top", (node("mid", (base,)).named("mid"),)).named(name)


# The fixture hands out a new root for each history.
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(OPERATIONS, min_size=4, max_size=14))
def test_whatever_happened_what_a_kept_record_names_remains_loadable(
    memory_roots: Callable[[], str], history: list[tuple[Any, ...]]
) -> None:
    root = memory_roots()
    store = open_store(root)
    for operation in history:
        if operation[0] == "gc":
            check_collect(store, keep_runs=operation[1])
        else:
            apply(store, root, *operation)
    check_collect(store, keep_runs=1)


def apply(store: Store, root: str, kind: str, name: str, argument: str, extra: str) -> None:
    step = three(name, argument, salt=extra if kind == "force" else "")
    if kind in ("run", "force"):
        selection = launcher.Selection(force=("base",)) if kind == "force" else launcher.Selection()
        report = run(
            {"top": step}, root=root, backend="inline", experiment=ExperimentInfo(name=extra), selection=selection
        )
        assert report.ok, report
        return
    stored = Inventory(store=store).look([step.directory])[step.directory]
    if kind == "label" and stored.current is not None:
        move_label(store, extra, step.directory, stored.current.number, user="u")
    elif kind == "undo" and isinstance(stored.current, Adopted):
        undo_adoption(store, step.directory, reason="wrong")
    elif kind == "adopt" and stored.served and argument != extra:
        source = three(name, extra).directory
        if observe(store, source).commit is not None:
            adopt(store, target_of_output(store, step.directory, provenance=SOMEBODY), source, reason="alike")


def check_collect(store: Store, *, keep_runs: int) -> None:
    """Collect, and compare with an account of its own of what must stay and what must go."""
    must_stay = named(store, keep_runs)
    before = {directory: observe(store, directory) for directory in must_stay}
    needed = {key for directory in must_stay for key in needed_commits(store, directory, before[directory].highest)}
    collect(store, GcPolicy(keep_runs=keep_runs, older_than_s=0.0), delete=True, user="u")
    for directory in must_stay:
        assert observe(store, directory) == before[directory]
    for directory, number in needed:
        commit = read_commit(store, directory, number)
        assert not isinstance(commit, Withdrawn)
        prefix = data_directory(directory, commit)
        for file in commit.manifest:
            assert store.digest(f"{prefix}/{file.path}") == file.digest
    reachable = reachable_directories(store, must_stay)
    for directory, stored in Inventory(store=store).everything().items():
        if stored.current is not None:
            assert_pointer_leads_to_data(store, build_key_file(stored.current.record.build_key))
        if directory not in reachable:
            assert stored.current is None
            assert store.list_files(f"{directory}/attempts") == []


def reachable_directories(store: Store, roots: set[str]) -> set[str]:
    """What may stay: all that any commit of a directory that stays names."""
    found: set[str] = set()
    stack = list(roots)
    while stack:
        directory = stack.pop()
        if directory in found:
            continue
        found.add(directory)
        for number in range(1, observe(store, directory).highest + 1):
            commit = read_commit(store, directory, number)
            if not isinstance(commit, Withdrawn):
                stack += [use.directory for use in commit.record.inputs]
            if isinstance(commit, Adopted):
                stack += [commit.source_directory, *(use.directory for use in commit.source_inputs)]
    return found


def assert_pointer_leads_to_data(store: Store, key: str) -> None:
    try:
        pointer = json.loads(store.read(key).data)
    except NotFound:
        return
    assert observe(store, pointer["directory"]).withdrawn is None


def named(store: Store, keep_runs: int) -> set[str]:
    """Directories that labels and the last launches of each experiment name."""
    found = {label.directory for label in list_labels(store)}
    for experiment in ("x", "y"):
        entries = store.list_directory(f".marin_pipe/experiments/{experiment}").files
        newest = sorted(entries, key=lambda entry: (entry.modified, entry.key), reverse=True)[:keep_runs]
        for entry in newest:
            launch = json.loads(store.read(entry.key).data)
            found.update(step["directory"] for step in launch["steps"])
    return found


def needed_commits(store: Store, directory: str, number: int) -> set[tuple[str, int]]:
    """The commit and everything that it was made from, by the exact commits its records name."""
    found: set[tuple[str, int]] = set()
    stack = [(directory, number)]
    while stack:
        here = stack.pop()
        if here in found or here[1] == 0:
            continue
        commit = read_commit(store, *here)
        if isinstance(commit, Withdrawn):
            continue
        found.add(here)
        stack += [(use.directory, use.commit) for use in commit.record.inputs]
        if isinstance(commit, Adopted):
            stack.append((commit.source_directory, commit.source_commit))
            stack += [(use.directory, use.commit) for use in commit.source_inputs]
    return found
