"""Plan and run agree, on random graphs with random histories; and what a run leaves is never stale."""

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe import Step
from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.observe import data_directory, observe, read_commit
from marin_pipe.execution.records import Served, Withdrawn

NAMES = ("a", "b", "c", "d", "e", "f")


@dataclass(frozen=True)
class Shape:
    """A graph over the first names: what each is called, whom it reads, and what chance adds to its bytes."""

    parents: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    salts: tuple[str, ...]
    suffix: str = ""

    def steps(self) -> dict[str, Step[Any]]:
        made: list[Step[Any]] = []
        for index, parents in enumerate(self.parents):
            parts = tuple(made[parent] for parent in parents)
            made.append(node(self.labels[index], parts, salt=self.salts[index]).named(f"{NAMES[index]}{self.suffix}"))
        return {step.name: step for step in made}


@dataclass(frozen=True)
class Launch:
    shape: Shape
    lost: frozenset[int]
    """Outputs that were deleted before it."""
    targets: frozenset[int]
    selection: Mapping[str, Any] = field(default_factory=dict)

    def asked(self) -> dict[str, Step[Any]]:
        steps = list(self.shape.steps().values())
        return {steps[i].name: steps[i] for i in sorted(self.targets)}


@st.composite
def histories(draw: st.DrawFn) -> list[Launch]:
    size = draw(st.integers(2, len(NAMES)))
    indices = st.integers(0, size - 1)
    parents = tuple(tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else () for i in range(size))
    labels = tuple(draw(st.sampled_from("pq")) for _ in range(size))
    launches = []
    for _ in range(draw(st.integers(2, 4))):
        changed = draw(st.one_of(st.none(), indices))
        if changed is not None:
            labels = (*labels[:changed], draw(st.sampled_from("pqr")), *labels[changed + 1 :])
        salts = tuple(draw(st.sampled_from(["", "", "1"])) for _ in range(size))
        shape = Shape(parents, labels, salts, draw(st.sampled_from(["", "", "_"])))
        targets = draw(st.frozensets(indices, min_size=1, max_size=3))
        lost = draw(st.frozensets(indices, max_size=2))
        force = draw(st.sets(st.sampled_from(NAMES[:size]), max_size=2))
        reached = _reach(parents, targets)
        force = {name for name in force if NAMES.index(name) in reached}
        selection: dict[str, Any] = {}
        if force:
            selection["force"] = tuple(sorted(name + shape.suffix for name in force))
            selection["downstream"] = draw(st.booleans())
        flag = draw(st.sampled_from([None, None, "only", "upto", "after"]))
        if flag is not None:
            names = draw(st.sets(st.sampled_from(NAMES[:size]), min_size=1, max_size=2))
            selection[flag] = tuple(sorted(name + shape.suffix for name in names if NAMES.index(name) in reached))
        launches.append(Launch(shape, lost, targets, selection))
    return launches


def _reach(parents: tuple[tuple[int, ...], ...], targets: frozenset[int]) -> set[int]:
    reached, stack = set[int](), list(targets)
    while stack:
        index = stack.pop()
        if index not in reached:
            reached.add(index)
            stack.extend(parents[index])
    return reached


folders = itertools.count()


@given(history=histories())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_run_does_what_the_plan_said(lab: Lab, history: list[Launch]) -> None:
    here = Lab(folder=lab.folder / str(next(folders)))
    try:
        for launch in history:
            steps = launch.shape.steps()
            for index in launch.lost:
                _lose(here, list(steps.values())[index].directory)
            asked = launch.asked()
            before = here.snapshot()
            try:
                rows = here.plan(asked, selection=dict(launch.selection))
            except ConfigurationError:
                with pytest.raises(ConfigurationError):
                    here.run(asked, selection=dict(launch.selection))
                continue
            assert here.snapshot() == before, "a plan writes nothing"
            here.ran()
            ends = here.run(asked, selection=dict(launch.selection))
            executed = here.ran()
            blocked = [end for end in ends.values() if end.status == "blocked"]
            assert here.exit_code == (1 if blocked else 0)
            _check_agreement(rows, ends, executed, steps)
            _check_nothing_is_stale(here, {n: end for n, end in ends.items() if end.status != "blocked"}, steps)
            if blocked or "only" in launch.selection or "upto" in launch.selection or "after" in launch.selection:
                continue
            settled = here.snapshot()
            assert set(here.actions(asked).values()) == {"cached"}
            assert set(here.statuses(asked).values()) == {"cached"}
            assert here.snapshot() == settled, "a run with nothing to do writes nothing"
    finally:
        shutil.rmtree(here.folder, ignore_errors=True)


def _lose(lab: Lab, directory: str) -> None:
    """Delete an output, and what was adopted from it: without its data that would be corrupt, not missing."""
    store = open_store(lab.root)
    for entry in store.list_directory("").directories:
        commit = observe(store, entry).commit
        if entry == directory or (
            commit is not None and commit.kind == "adopted" and commit.source_directory == directory
        ):
            shutil.rmtree(Path(lab.root, entry))


def _check_agreement(
    rows: Mapping[str, Any], ends: Mapping[str, Any], executed: list[str], steps: Mapping[str, Step[Any]]
) -> None:
    assert ends.keys() <= rows.keys()
    assert sorted(executed) == sorted(name for name, end in ends.items() if end.status == "built")
    builds = [end.commit.record.build_key for end in ends.values() if end.status == "built"]
    assert len(set(builds)) == len(builds), "one computation ran twice"
    keys = [steps[name].key for name in rows]
    for name, row in rows.items():
        if name not in ends:
            conditional = row.action == "cached" or "only if " in row.why
            assert conditional, f"{name} was planned and not looked at"
            continue
        status = ends[name].status
        depends = row.why.startswith("only if ") or row.why.endswith("comes out equal)")
        shared = keys.count(steps[name].key) > 1
        if row.action == "blocked":
            assert status == "blocked" or (status == "cached" and "comes out equal" in row.why)
        elif status == "blocked":
            assert any(other.action == "blocked" and "comes out equal" in other.why for other in rows.values())
        elif row.action == "cached":
            assert status == "cached"
        elif row.action == "adopt" and not shared:
            assert status == "adopted"
        elif depends:
            assert status in ("built", "adopted", "cached")
        else:
            assert status in ("built", "adopted")
            settled = all(rows[upstream.name].action == "cached" for upstream in _inputs(steps[name]))
            if row.action == "run" and settled and not shared:
                assert status == "built"


def _inputs(step: Step[Any]) -> list[Step[Any]]:
    return [upstream for _, upstream in step.bound.inputs if isinstance(upstream, Step)]


def _check_nothing_is_stale(lab: Lab, ends: Mapping[str, Any], steps: Mapping[str, Step[Any]]) -> None:
    """Every output in the report was made from what its inputs hold now, and holds what its function makes of that."""
    store = open_store(lab.root)
    for name in ends:
        commit = observe(store, steps[name].directory).commit
        assert commit is not None
        now: dict[str, set[str]] = {}
        for upstream in _inputs(steps[name]):
            current = observe(store, upstream.directory).commit
            if current is not None:
                now.setdefault(upstream.key, set()).add(current.output_digest)
        texts = []
        for use in commit.record.inputs:
            assert use.output_digest in now.get(use.key, {use.output_digest}), f"{name} is stale"
            texts.append(_text(lab, use.directory, use.commit))
        if None not in texts:
            label = steps[name].bound.arguments["label"]
            text = _own_text(lab, steps[name].directory, commit)
            expected = f"{label}({','.join(map(str, texts))})" if texts else label
            assert text is None or text in (expected, f"{expected}1")


def _text(lab: Lab, directory: str, number: int) -> str | None:
    store = open_store(lab.root)
    if not Path(lab.root, directory).exists():
        return None
    if number > observe(store, directory).highest:
        return None
    commit = read_commit(store, directory, number)
    assert not isinstance(commit, Withdrawn)
    return _own_text(lab, directory, commit)


def _own_text(lab: Lab, directory: str, commit: Served) -> str | None:
    file = Path(lab.root, data_directory(directory, commit), "text.txt")
    return file.read_text() if file.exists() else None
