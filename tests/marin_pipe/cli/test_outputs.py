from pathlib import Path

import pytest
from lab import Lab
from lab_steps import node, seed
from shell import Shell

from marin_pipe.execution.run import ExperimentInfo

BASE = node("base").named("exp/base")
TOP = node("top", (BASE,)).named("exp/top")


def test_ls_shows_size_age_producer_and_users(lab: Lab, shell: Shell) -> None:
    lab.run(TOP, experiment=ExperimentInfo(name="exp"))
    header, base, top, total = shell("ls").lines
    assert header.split("  ")[0] == "OUTPUT"
    assert base.startswith(BASE.directory)
    assert "4 B" in base
    assert "lab_steps.node" in base
    assert lab.reports[-1].run is not None
    assert lab.reports[-1].run in base
    assert base.endswith("1: exp/top")
    assert top.endswith("-")
    assert total == f"2 outputs, 13 B in {lab.root}"


def test_ls_filters_by_glob_and_lists_the_experiments_own_without_one(lab: Lab, shell: Shell) -> None:
    lab.run([TOP, node("x").named("other")])
    assert [o["name"] for o in shell("ls", "exp/*", "--json").json["outputs"]] == ["exp/base", "exp/top"]
    assert [o["name"] for o in shell("ls", "--json", steps={"t": TOP}).json["outputs"]] == ["exp/base", "exp/top"]
    assert [o["name"] for o in shell("ls", "other", "--json", steps={"t": TOP}).json["outputs"]] == ["other"]
    assert len(shell("ls", "--json").json["outputs"]) == 3
    (base,) = shell("ls", BASE.key[:8], "--json").json["outputs"]
    assert base["users"] == [TOP.directory]
    nothing = shell("ls", "nothing*")
    assert (nothing.code, nothing.out) == (1, "")
    assert "there is no step or output 'nothing*'" in nothing.err


def test_path_is_one_line_that_exists(lab: Lab, shell: Shell) -> None:
    lab.run(TOP)
    (line,) = shell("path", "exp/top").lines
    assert (Path(line) / "text.txt").read_text() == "top(base)"
    assert shell("path", "main", steps={"main": TOP}).lines == [line]
    shell("label", "good", "exp/top")
    lab.run(node("top", (BASE,), salt="!").named("exp/top"), selection={"force": "exp/top"})
    assert shell("path", "good").lines == [line]
    assert shell("path", "exp/top").lines != [line]


def test_path_of_a_value_without_files_prints_nothing(lab: Lab, shell: Shell) -> None:
    lab.run(seed("x").named("value"))
    result = shell("path", "value")
    assert (result.code, result.out) == (1, "")
    assert "has no files, so no directory is there\n  why:  its result is a value: [" in result.err


def test_path_of_a_pinned_step_is_what_it_is_pinned_to(lab: Lab, shell: Shell) -> None:
    lab.run(BASE)
    pinned = node("p").named("p").pinned_to(f"{lab.root}/{BASE.directory}", reason="published")
    assert shell("path", "p", steps={"p": pinned}).lines == shell("path", "exp/base").lines


def test_path_without_a_commit_exits_1_and_prints_nothing(lab: Lab, shell: Shell) -> None:
    lab.run(node("bad", fail=True).named("bad"))
    for text in ("bad", "unheard-of"):
        result = shell("path", text)
        assert (result.code, result.out) == (1, "")
    result = shell("path", "new", steps={"new": node("new").named("new")})
    assert (result.code, result.out) == (1, "")
    assert "nothing was committed yet" in result.err


@pytest.mark.parametrize("inside", ["", "/text.txt"])
def test_lineage_of_a_step_or_a_file_inside_it(lab: Lab, shell: Shell, inside: str) -> None:
    lab.run(node("end", (TOP,)).named("end"))
    text = f"{shell('path', 'exp/top').lines[0]}{inside}" if inside else "exp/top"
    end = node("end", (TOP,)).named("end")
    assert shell("lineage", text).lines == [
        f"{TOP.directory}, commit 1",
        "made from:",
        f"  {BASE.directory}, commit 1 (parts[0])",
        "used by:",
        f"  {end.directory}, commit 1 (parts[0])",
    ]
    assert shell("lineage", text, "--json").json["output"]["name"] == "exp/top"


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["exp/a b.py"], "python 'exp/a b.py' run --force exp/base"),
        (
            ["exp/x.py", "--n=4", "run"],
            "python exp/x.py run --force exp/base with the fields of python exp/x.py --n=4 run",
        ),
        (["-c"], "run --force exp/base, from the experiment that defines it"),
    ],
)
def test_verify_names_the_script_that_rebuilds(
    lab: Lab, shell: Shell, monkeypatch: pytest.MonkeyPatch, argv: list[str], command: str
) -> None:
    monkeypatch.setattr("sys.argv", argv)
    lab.run(BASE)
    (lab.output(BASE) / "text.txt").unlink()
    result = shell("verify")
    assert result.code == 5
    assert result.lines[1].endswith(f"rebuild with: {command}")


def test_ls_counts_the_data_of_adopted_outputs_once(lab: Lab, shell: Shell) -> None:
    lab.run(BASE)
    copy = node("base").named("exp/copy")
    lab.run(copy)
    _, base, adopted, total = shell("ls").lines
    assert f"-> {BASE.directory}, " in adopted
    assert "4 B" in base
    assert "4 B" in adopted
    assert total == f"2 outputs, 4 B in {lab.root}; 1 adopted, whose data (->) counts once"


def test_verify_names_what_differs_and_exits_5(lab: Lab, shell: Shell) -> None:
    lab.run(TOP)
    whole = shell("verify")
    assert (whole.code, whole.lines) == (0, ["2 of 2 outputs are as recorded (13 B digested)"])
    file = Path(shell("path", "exp/base").lines[0]) / "text.txt"
    file.write_text("bass")
    result = shell("verify", steps={"t": TOP})
    assert result.code == 5
    assert result.lines[0].startswith(f"changed: {file} (sha256:")
    assert result.lines[1].endswith(f"rebuild with: marin-pipe run --force exp/base --root {lab.root}")
    assert shell("verify", "exp/top").code == 0
    file.unlink()
    result = shell("verify", "--json", "exp/base")
    assert result.code == 5
    (mismatch,) = result.json["outputs"][0]["mismatches"]
    assert (mismatch["problem"], mismatch["key"]) == ("missing", str(file.relative_to(lab.root)))
