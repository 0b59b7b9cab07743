"""The engine end to end on object stores, as far as their servers on this machine are faithful."""

from collections import Counter
from dataclasses import dataclass

import pytest
from lab import Lab
from lab_steps import node
from launching import Launching, eventually
from marin_storage import Store, open_store
from outputs import check_once, check_whole

from marin_pipe.execution import provenance
from marin_pipe.execution.adoption import adopt, target_of_output, undo_adoption
from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.gc import GcPolicy, collect
from marin_pipe.execution.labels import list_labels, move_label
from marin_pipe.execution.observe import observe
from marin_pipe.execution.run import ExperimentInfo

NO_AGES = GcPolicy(older_than_s=0.0, leftovers_older_than_s=0.0)


@dataclass(kw_only=True)
class Remote(Lab):
    """A laboratory whose root lies on an object store."""

    url: str
    requests: list[str]
    """What the store's server was asked."""

    @property
    def root(self) -> str:
        return self.url

    @property
    def store(self) -> Store:
        return open_store(self.url)


@pytest.fixture(params=["gcs", "s3"])
def lab(request: pytest.FixtureRequest, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Remote:
    monkeypatch.setattr(provenance, "git_state", lambda _: (None, None))
    monkeypatch.setattr(provenance, "installed_packages", dict)
    scheme, server = ("gs", "strict_gcs") if request.param == "gcs" else ("s3", "moto_s3")
    return Remote(
        folder=lab.folder, url=f"{scheme}://bucket/some/root", requests=request.getfixturevalue(server).requests
    )


def test_a_launch_in_worker_processes_and_the_next_one(lab: Remote) -> None:
    base = node("a").named("exp/base")
    top = node("top", (base, node("b"))).named("exp/top")
    assert set(lab.statuses(top, backend="local").values()) == {"built"}
    assert top.load(root=lab.root).read() == "top(a,b)"
    assert set(lab.statuses(top, backend="local").values()) == {"cached"}
    assert lab.statuses(top, selection={"force": "exp/top"})["exp/top"] == "built"
    check_whole(lab.store)


@pytest.mark.parametrize("count", [1, 30])
def test_a_cached_step_costs_two_requests(lab: Remote, count: int) -> None:
    top = node("top", tuple(node(f"n{index}") for index in range(count)))
    lab.run(top)
    before = len(lab.requests)
    assert set(lab.statuses(top).values()) == {"cached"}
    asked = lab.requests[before:]
    # A launch: one listing of the root, a look for a collection, and one listing of the files of what was asked for.
    assert len(asked) == 3 + 2 * (count + 1), asked
    assert {request.split()[0] for request in asked} == {"GET"}


def test_labels_adoption_and_collection(lab: Remote) -> None:
    store = lab.store
    one, other = node("a").named("one"), node("b").named("other")
    lab.run([one, other], experiment=ExperimentInfo(name="exp"))
    assert lab.statuses(node("a").named("again")) == {"again": "adopted"}
    move_label(store, "mine", other.directory, 1, user="me")
    move_label(store, "mine", one.directory, 1, user="me")
    assert [(label.label, label.directory) for label in list_labels(store)] == [("mine", one.directory)]

    commit = observe(store, other.directory).served()
    assert commit is not None
    facts = commit.record.provenance
    adopted, _ = adopt(
        store, target_of_output(store, other.directory, provenance=facts), one.directory, reason="equal for us"
    )
    assert other.load(root=lab.root).read() == "a"
    assert undo_adoption(store, other.directory, reason="not so").number == adopted.number + 1
    assert lab.statuses(other) == {"other": "built"}

    loose = node("c").named("loose")
    lab.run(loose)
    report = collect(store, NO_AGES, delete=True, user="me")
    assert {r.directory for r in report.removals if r.kind == "output"} >= {loose.directory}
    assert store.list_files(f"{loose.directory}/attempts") == []
    assert one.load(root=lab.root).read() == "a"
    assert lab.statuses(loose) == {"loose": "built"}


def test_a_damaged_record_is_told_and_replaced(lab: Remote) -> None:
    step = node("a")
    lab.run(step)
    lab.store.write(f"{step.directory}/commit.json", b"{")
    with pytest.raises(RecordError):
        step.load(root=lab.root)
    assert lab.statuses(step, selection={"force": "node"}) == {"node": "built"}
    assert step.load(root=lab.root).read() == "a"


def test_two_drivers(lab: Remote, launching: Launching) -> None:
    steps = 8
    launching.url = lab.root
    go = launching.directory / "go"
    ready = [launching.directory / f"ready-{number}" for number in range(2)]
    drivers = [
        launching.start("many", "--count", steps, "--backend", "inline", "--go", go, "--ready", path) for path in ready
    ]
    eventually(lambda: all(path.exists() for path in ready), what="both drivers are ready")
    go.touch()
    reports = [driver.end() for driver in drivers]
    assert [report["exit_code"] for report in reports] == [0, 0], reports
    assert Counter(int(line.split()[0]) for line in launching.side_lines()) == Counter(range(steps))
    check_once(lab.store, steps)
