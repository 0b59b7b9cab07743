"""`.pinned_to(url, reason=...)`: a step served from somewhere else, seen in plan and in records."""

import json
import shutil
from pathlib import Path

import pytest
from lab import Lab
from lab_steps import Text, node

from marin_pipe import Artifact, Step, step
from marin_pipe.execution.errors import ConfigurationError

WHY = "as in the paper"


class Anything(Artifact):
    """Files without further facts."""


class Other(Artifact):
    words: int


@step
def files() -> Anything:
    raise AssertionError("a pinned step never runs")


@step
def other(n: int = 0) -> Other:
    return Other(words=n)


@step
def number(n: int = 0) -> int:
    return n


@step
def read(of: Anything) -> str:
    return " ".join(sorted(path.read_text() for path in of.path.iterdir()))


@pytest.fixture
def elsewhere(lab: Lab) -> Lab:
    """Another root, with outputs of its own."""
    return Lab(folder=lab.folder / "elsewhere")


def published(elsewhere: Lab, step_: Step[Text]) -> str:
    elsewhere.run(step_)
    return f"{elsewhere.root}/{step_.directory}"


def test_an_output_of_another_root_is_served_without_running(lab: Lab, elsewhere: Lab) -> None:
    url = published(elsewhere, node("theirs").named("exp/theirs"))
    mine = node("mine").named("mine").pinned_to(url, reason=WHY)
    b = node("b", (mine,)).named("b")
    lab.ran()
    rows = lab.plan(b)
    assert rows["mine"].action == "cached"
    assert rows["mine"].notes == (f"pinned to {url}: {WHY}",)
    assert rows["mine"].path.startswith(url)
    ends = lab.run(b)
    assert lab.ran() == ["b"]
    assert ends["mine"].notes == (f"pinned to {url}: {WHY}",)
    assert b.load(root=lab.root).read() == "b(theirs)"
    assert mine.load(root=lab.root).read() == "theirs"


def test_the_consumers_record_names_the_pin(lab: Lab, elsewhere: Lab) -> None:
    url = published(elsewhere, node("theirs"))
    b = node("b", (node("mine").pinned_to(url, reason=WHY),)).named("b")
    lab.run(b)
    commit = lab.commit(b)
    assert commit is not None
    (use,) = commit.record.inputs
    assert (use.directory, use.commit, use.arguments) == (url, 1, ("parts[0]",))


def test_other_bytes_behind_the_pin_rerun_its_consumers(lab: Lab, elsewhere: Lab) -> None:
    url = published(elsewhere, node("theirs"))
    b = node("b", (node("mine").pinned_to(url, reason=WHY),)).named("b")
    lab.run(b)
    elsewhere.run(node("theirs", salt="!"), selection={"force": "*"})
    assert lab.plan(b)["b"].why == "because of node: its output changed"
    assert lab.statuses(b) == {"node": "cached", "b": "built"}
    assert b.load(root=lab.root).read() == "b(theirs!)"


def test_a_pin_and_the_work_itself_have_one_identity(lab: Lab, elsewhere: Lab) -> None:
    """A pin is a way to get an output, not another output: where it holds the same bytes nothing reruns."""
    url = published(elsewhere, node("a"))
    plain = node("b", (node("a"),)).named("b")
    lab.run(plain)
    pinned = node("b", (node("a").pinned_to(url, reason=WHY),)).named("b")
    assert pinned.directory == plain.directory
    assert lab.statuses(pinned) == {"node": "cached", "b": "cached"}


def test_the_upstream_of_a_pinned_step_is_left_alone(lab: Lab, elsewhere: Lab) -> None:
    url = published(elsewhere, node("theirs"))
    pinned = node("b", (node("never", fail=True).named("never"),)).named("b").pinned_to(url, reason=WHY)
    lab.ran()
    assert lab.statuses(node("c", (pinned,)).named("c")) == {"b": "cached", "c": "built"}
    assert lab.ran() == ["c"]


def test_an_adopted_output_with_a_long_name_can_be_pinned(lab: Lab, elsewhere: Lab) -> None:
    """Its data lies in another directory below that root."""
    elsewhere.run(node("theirs").named("exp001/first"))
    url = published(elsewhere, node("theirs").named("exp002/deep/second"))
    mine = node("mine").pinned_to(url, reason=WHY)
    assert mine.load(root=lab.root).read() == "theirs"
    b = node("b", (mine,)).named("b")
    lab.run(b)
    assert b.load(root=lab.root).read() == "b(theirs)"


def test_a_plain_directory_of_files(lab: Lab) -> None:
    data = lab.folder / "data"
    (data / "sub").mkdir(parents=True)
    (data / "one.txt").write_text("1")
    pinned = files().pinned_to(str(data), reason=WHY)
    (data / "sub").rmdir()
    step_ = read(pinned)
    lab.run(step_)
    assert step_.load(root=lab.root) == "1"
    (data / "two.txt").write_text("2")
    assert lab.statuses(step_) == {"files": "cached", "read": "built"}
    assert step_.load(root=lab.root) == "1 2"
    assert lab.statuses(step_) == {"files": "cached", "read": "cached"}


def test_a_relative_pin_is_recorded_by_its_full_path(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    data = lab.folder / "data"
    data.mkdir()
    (data / "one.txt").write_text("1")
    monkeypatch.chdir(lab.folder)
    step_ = read(files().pinned_to("data", reason=WHY))
    lab.run(step_)
    commit = lab.commit(step_)
    assert commit is not None
    assert commit.record.inputs[0].directory == str(data)


@pytest.mark.parametrize("act", ["run", "plan"])
def test_a_pin_to_nothing_is_refused(lab: Lab, act: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        getattr(lab, act)(files().pinned_to(f"{lab.folder}/nowhere", reason=WHY))
    assert "step files is pinned to" in caught.value.what
    assert "no files" in caught.value.what
    assert caught.value.exit_code == 2


def test_a_pin_to_an_output_that_was_never_committed_is_refused(lab: Lab, elsewhere: Lab) -> None:
    failed = node("theirs", fail=True)
    url = published(elsewhere, failed)
    with pytest.raises(ConfigurationError, match="no commit to serve"):
        lab.run(node("mine").pinned_to(url, reason=WHY))


def test_a_plain_directory_cannot_stand_for_a_result_with_fields(lab: Lab) -> None:
    data = lab.folder / "data"
    data.mkdir()
    (data / "text.txt").write_text("1")
    with pytest.raises(ConfigurationError, match=r"returns Text|holds the result's fields"):
        lab.run(node("mine").pinned_to(str(data), reason=WHY))


@pytest.mark.parametrize("wrong", [other(3), number(3)])
def test_a_pin_to_an_output_of_another_kind_is_refused_before_anything_runs(
    lab: Lab, elsewhere: Lab, wrong: Step[Text]
) -> None:
    url = published(elsewhere, wrong)
    with pytest.raises(ConfigurationError) as caught:
        lab.run(node("b", (node("mine").pinned_to(url, reason=WHY),)).named("b"))
    assert "step node is pinned to" in caught.value.what
    assert "Text" in str(caught.value)
    assert lab.ran() == []


def test_a_plain_directory_for_a_step_that_returns_a_number_is_refused(lab: Lab) -> None:
    data = lab.folder / "data"
    data.mkdir()
    (data / "x").write_text("1")
    with pytest.raises(ConfigurationError, match="step number is pinned to"):
        lab.run(number().pinned_to(str(data), reason=WHY))


def test_a_pinned_file_that_is_gone_is_corrupt_for_its_consumers(lab: Lab, elsewhere: Lab) -> None:
    theirs = node("theirs")
    url = published(elsewhere, theirs)
    (elsewhere.output(theirs) / "text.txt").unlink()
    ends = lab.run(node("b", (node("mine").pinned_to(url, reason=WHY),)).named("b"))
    assert lab.exit_code == 5
    failure = ends["b"].failure
    assert failure is not None
    assert "text.txt" in failure.message
    assert "--force" not in failure.message, "a pinned step cannot be rebuilt here"


def test_removing_the_pin_runs_the_step(lab: Lab, elsewhere: Lab) -> None:
    url = published(elsewhere, node("theirs"))
    lab.run(node("b", (node("mine").pinned_to(url, reason=WHY),)).named("b"))
    lab.ran()
    b = node("b", (node("mine"),)).named("b")
    assert lab.plan(b)["b"].why == f"because of node: it is no longer pinned to {url}"
    assert lab.statuses(b) == {"node": "built", "b": "built"}
    assert b.load(root=lab.root).read() == "b(mine)"


def test_the_launch_record_names_pins(lab: Lab, elsewhere: Lab) -> None:
    from marin_pipe.execution.run import ExperimentInfo

    url = published(elsewhere, node("theirs"))
    b = node("b", (node("mine").named("mine").pinned_to(url, reason=WHY),)).named("b")
    lab.run(b, experiment=ExperimentInfo(name="exp"))
    (launch,) = Path(lab.root, ".marin_pipe/experiments/exp").iterdir()
    pins = {found["name"]: found["pin"] for found in json.loads(launch.read_text())["steps"]}
    assert pins == {"mine": url, "b": None}


def test_a_pin_survives_a_root_that_moved(lab: Lab, elsewhere: Lab) -> None:
    published(elsewhere, node("theirs"))
    moved = lab.folder / "moved"
    shutil.move(elsewhere.root, moved)
    mine = node("mine").pinned_to(f"{moved}/{node('theirs').directory}/", reason=WHY)
    assert mine.load(root=lab.root).read() == "theirs"
