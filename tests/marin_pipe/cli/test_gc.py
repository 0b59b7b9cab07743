import re

import pytest
from lab import Lab
from lab_steps import node
from shell import Shell

from marin_pipe.cli.gc import parse_age
from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.run import ExperimentInfo


def test_gc_is_a_dry_run_unless_told_to_delete(lab: Lab, shell: Shell) -> None:
    for i in range(3):
        lab.run(node(str(i)).named("a"), experiment=ExperimentInfo(name="exp"))
    flags = ("--keep-runs", "1", "--older-than", "0")
    before = lab.snapshot()
    dry = shell("gc", *flags)
    assert lab.snapshot() == before
    assert [line.split()[0] for line in dry.lines[1:3]] == ["output", "output"]
    assert "no kept launch, label or live lease reaches it" in dry.lines[1]
    assert re.fullmatch(r"would remove .* in 2 places and 2 launch records; 1 outputs are kept", dry.lines[-2])
    assert f"marin-pipe gc --keep-runs 1 --older-than 0 --delete --root {lab.root}" in dry.lines[-1]
    told = shell("gc", *flags, "--json").json
    assert {removal["directory"] for removal in told["removals"]} == {
        node(label).named("a").directory for label in ("0", "1")
    }
    assert told["size_bytes"] == sum(removal["size_bytes"] for removal in told["removals"])
    assert shell("gc").lines[-1].startswith("would remove 0 B in 0 places")
    wet = shell("gc", *flags, "--delete")
    assert wet.lines[-1].startswith("removed ")
    assert node("2").named("a").load(root=lab.root).read() == "2"
    assert [output["name"] for output in shell("ls", "--json").json["outputs"]] == ["a"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("30d", 2_592_000), ("2w", 1_209_600), ("0", 0)]
)
def test_ages_have_units(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1 d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no age"):
        parse_age(text)
