from pathlib import Path

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store
from shell import Shell

from marin_pipe.execution.layout import lease_key
from marin_pipe.execution.lease import Held, LeaseTimes, acquire
from marin_pipe.execution.observe import observe

ONE, TWO = node("1").named("one"), node("2").named("two")


def test_a_label_names_an_output_until_it_is_moved(lab: Lab, shell: Shell) -> None:
    lab.run([ONE, TWO])
    assert shell("label", "good/one", "one").lines == [f"good/one names commit 1 of {ONE.directory}"]
    assert shell("label", "good/one", "one").code == 0
    refused = shell("label", "good/one", "two")
    assert refused.code == 2
    assert "add --move to move it" in refused.err
    assert shell("label", "good/one", "two", "--move").code == 0
    assert shell("path", "good/one").lines == shell("path", "two").lines
    assert shell("label", "again", "good/one").lines == [f"again names commit 1 of {TWO.directory}"]
    assert shell("label", "bad name", "one").code == 2


def test_what_has_no_output_cannot_be_labelled(lab: Lab, shell: Shell) -> None:
    lab.run(ONE)
    result = shell("label", "good", "new", steps={"new": node("new").named("new")})
    assert result.code == 1
    assert "has no output to label" in result.err


def test_adopt_and_its_undo(lab: Lab, shell: Shell) -> None:
    lab.run(ONE)
    steps = {"two": TWO}
    assert "needs a reason" in shell("adopt", "two", "one", steps=steps).err
    result = shell("adopt", "two", "one", "--reason", "same data", steps=steps)
    assert (result.code, result.lines) == (0, [f"{TWO.directory} adopts {ONE.directory}, commit 1: same data"])
    again = shell("adopt", "two", "one", "--reason", "same data", steps=steps)
    assert again.lines == [f"{TWO.directory} has adopted already {ONE.directory}, commit 1: same data"]
    assert TWO.load(root=lab.root).read() == "1"
    assert "same data" in shell("explain", "two", steps=steps).out
    assert shell("adopt", "--undo", "two", "--reason", "they differ").code == 0
    assert shell("path", "two").code == 1
    assert lab.plan(TWO)["two"].why.endswith(": they differ")
    assert shell("adopt", "--undo", "two").code == 2


@pytest.mark.parametrize("argv", [("one",), ("one", "two", "--undo")])
def test_adopt_takes_a_source_or_undo(lab: Lab, shell: Shell, argv: tuple[str, ...]) -> None:
    lab.run([ONE, TWO])
    result = shell("adopt", *argv)
    assert result.code == 2
    assert "STEP and SOURCE, or STEP and --undo" in result.err


def test_unlock_frees_the_lease_of_a_process_that_is_gone_and_no_other(lab: Lab, shell: Shell) -> None:
    store = open_store(lab.root)
    held = acquire(store, ONE.directory, seen=observe(store, ONE.directory), times=LeaseTimes())
    assert isinstance(held, Held)
    owner = held.lease.owner or ""
    assert shell("unlock", "one").code == 2
    alive = shell("unlock", "one", "--owner", owner)
    assert alive.code == 4
    assert "its owner is alive" in alive.err
    path = Path(lab.root, lease_key(ONE.directory))
    path.write_text(path.read_text().replace(f'"pid_start":"{held.lease.pid_start}"', '"pid_start":"1"'))
    assert shell("unlock", "one", "--owner", "0" * 16).code == 2
    assert shell("unlock", "one", "--owner", owner).code == 0
    assert lab.statuses(ONE) == {"one": "built"}
