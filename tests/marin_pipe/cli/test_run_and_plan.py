"""`run` and `plan` in this process: what they print, and what they leave alone."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from marin_storage import PermissionDenied
from marin_storage.local import LocalBackend

from marin_pipe.cli.app import dispatch, flags_of, load
from marin_pipe.cli.lines import Lines
from marin_pipe.cli.script import Script
from marin_pipe.execution.errors import ConfigurationError, ExitCode
from marin_pipe.execution.graph import build_graph
from marin_pipe.execution.handle import Step
from marin_pipe.execution.report import StepEvent
from marin_pipe.execution.step import step


@step
def number(n: int) -> int:
    return n


@step
def fail(n: int) -> int:
    raise ValueError(f"cannot do {n}")


@step
def add(parts: list[int]) -> int:
    return sum(parts)


def cli(build: Callable[[], Mapping[str, Step[Any]]]) -> Callable[..., int]:
    script = Script(name="exp", description="", build=lambda _: build_graph(build()))

    def run(*argv: str) -> int:
        inline = ["--backend", "inline"] if not argv or argv[0].startswith("--") else []
        return dispatch([*argv, *inline], program="python exp.py", script=script)

    return run


def diamond() -> dict[str, Step[Any]]:
    parts = [number(i).named(f"d/n{i}") for i in range(2)]
    return {"sum": add([*parts]).named("d/sum")}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every mutating call to local storage fail as on a read-only root (permissions do not bind root)."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionDenied("read-only")

    def apply() -> None:
        for name in ("create", "replace", "write", "delete", "delete_tree", "upload", "make_durable"):
            monkeypatch.setattr(LocalBackend, name, refuse)

    return apply


def test_plan_writes_nothing_even_to_an_empty_root(read_only, tmp_path: Path, capsys) -> None:
    read_only()
    assert cli(diamond)("plan") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 run"
    assert list(tmp_path.iterdir()) == []


def test_plan_and_cached_run_on_a_read_only_root(read_only, tmp_path: Path, tree, capsys) -> None:
    command = cli(diamond)
    assert command() == 0
    before = tree(tmp_path / "outputs")
    read_only()
    capsys.readouterr()
    assert command("plan", "--check") == 0
    assert command() == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-2].startswith("3 cached in ")
    assert err == ""  # the labels are right already, so nothing had to be said or written
    assert tree(tmp_path / "outputs") == before


def test_labels_that_cannot_be_moved_are_a_note(read_only, tmp_path: Path, capsys) -> None:
    command = cli(diamond)
    assert command() == 0
    for label in (tmp_path / "outputs/.marin_pipe/labels").rglob("*.json"):
        label.unlink()
    read_only()
    capsys.readouterr()
    assert command() == 0
    assert capsys.readouterr().err == "note: the labels exp/latest/* were not moved: read-only\n"


def test_a_run_that_must_write_to_a_read_only_root_says_so(read_only) -> None:
    read_only()
    with pytest.raises(PermissionDenied):
        cli(diamond)()


def test_labels_follow_the_targets(tmp_path: Path) -> None:
    def label() -> dict[str, Any]:
        loaded = json.loads((tmp_path / "outputs/.marin_pipe/labels/exp/latest/sum.json").read_text())
        assert isinstance(loaded, dict)
        return loaded

    assert cli(diamond)() == 0
    first = label()
    assert cli(lambda: {"sum": add([1, 2]).named("d/sum")})() == 0
    assert label()["directory"] != first["directory"]
    assert cli(diamond)() == 0
    assert (label()["directory"], label()["commit"]) == (first["directory"], 1)


def test_plan_takes_every_flag_of_run(capsys) -> None:
    taken = flags_of(load("plan"))
    assert {flag: takes for flag, takes in flags_of(load("run")).items() if taken.get(flag) != takes} == {}
    flags = [
        "--max-concurrent",
        "2",
        "--verify",
        "digests",
        "--fail-fast",
        "--keep-going",
        "--no-wait",
        "--single-writer",
    ]
    assert cli(diamond)("plan", *flags, "--only", "d/n0") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 run"


def test_only_a_part_of_the_steps(capsys) -> None:
    command = cli(diamond)
    assert command("--only", "d/n0") == 0
    assert "1 built" in capsys.readouterr().out
    assert command("plan", "--upto", "d/n*") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 cached, 1 run"
    assert command("--force", "d/n0", "--only", "d/n0") == 0
    assert "run     d/n0  forced" in capsys.readouterr().out
    with pytest.raises(ConfigurationError, match="--only 'x' matches no step"):
        command("--only", "x")


def test_blocked_steps_are_counted_by_their_root_cause(capsys) -> None:
    def build() -> dict[str, Step[Any]]:
        bad = [fail(i).named(f"b/bad{i}") for i in range(2)]
        middle = [add([bad[0]]).named("b/middle0"), add([bad[1]]).named("b/middle1")]
        return {"end": add([*middle]).named("b/end"), "other": add([bad[0], 1]).named("b/other"), "ok": number(1)}

    assert cli(build)() == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "blocked: 2 steps because of b/bad0 (b/middle0, b/other)\n" in out
    assert "blocked: 1 step because of b/bad1 (b/middle1)\n" in out
    assert "blocked: 1 step because of b/bad0, b/bad1 (b/end)\n" in out
    assert out.count("ValueError: cannot do 0\n  logs:  python exp.py logs b/bad0\n") == 1
    assert out.count("\nresume: ") == 1
    assert "1 built, 2 failed, 4 blocked in " in out.splitlines()[-1]


def test_many_failures_and_their_causes_fit_a_screen(capsys) -> None:
    def build() -> dict[str, Step[Any]]:
        return {f"{i}": add([fail(i).named(f"b/bad{i}")]).named(f"b/sum{i}") for i in range(40)}

    assert cli(build)() == ExitCode.FAILED
    out = capsys.readouterr().out
    ending = out[out.index("\nfailed: b/bad0\n") :]
    assert ending.count("Traceback") == 5
    assert all(f"\nfailed: b/bad{i}" in ending for i in range(40))
    assert ending.count("\nblocked: ") == 6
    assert "\nblocked: 35 steps for 35 other causes (b/sum5, b/sum6, b/sum7, b/sum8, b/sum9 and 30 more)\n" in ending
    assert len(ending.splitlines()) < 100
    assert ending.count("resume: ") == 1


@step
def ramble() -> int:
    raise ValueError("so " + "long " * 1000 + "end")


def test_a_long_message_is_cut_where_it_is_told_in_passing(capsys) -> None:
    command = cli(lambda: {"sum": add([ramble()])})
    command()
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith("failed  "))
    assert "ValueError: so long long" in line
    assert len(line) < 330
    command("status")
    assert max(map(len, capsys.readouterr().out.splitlines())) < 500
    command("logs", "ramble")
    assert capsys.readouterr().out.endswith("long end\n")


def test_steps_of_one_name_are_told_apart(capsys) -> None:
    two = {f"{i}": number(i).named("n") for i in (1, 2)}
    directories = [found.directory for found in two.values()]
    command = cli(lambda: {**two, "bad": add([fail(1).named("n"), *two.values()]).named("sum")})
    command("plan")
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows[1:3]] == directories
    assert f"needs {', '.join(sorted([*directories, fail(1).named('n').directory]))}" in rows[4]
    command()
    out = capsys.readouterr().out
    assert {line.split()[1] for line in out.splitlines() if line.startswith("built   ")} == set(directories)
    failed = fail(1).named("n").directory
    assert f"\nfailed: {failed}\n" in out
    assert f"  debug: python exp.py run --only {failed} --backend inline\n" in out
    assert f"blocked: 1 step because of {failed} (sum)\n" in out
    assert command("logs", directories[0]) == 0


def test_fail_fast_starts_nothing_more(capsys) -> None:
    def build() -> dict[str, Step[Any]]:
        return {"bad": add([fail(1)]), "ok": number(1)}

    assert cli(build)("--fail-fast") == ExitCode.FAILED
    last = capsys.readouterr().out.splitlines()[-1]
    assert "1 failed" in last


def test_plan_as_json(tmp_path: Path, capsys) -> None:
    command = cli(diamond)
    command("--only", "d/n0")
    capsys.readouterr()
    assert command("plan", "--json", "--check") == ExitCode.OUT_OF_DATE
    plan = json.loads(capsys.readouterr().out)
    assert plan["root"] == str(tmp_path / "outputs")
    assert {step["name"]: step["action"] for step in plan["steps"]} == {
        "d/n0": "cached",
        "d/n1": "run",
        "d/sum": "run",
    }
    paths = {step["name"]: Path(step["path"]) for step in plan["steps"]}
    assert paths["d/n0"].parent.parent.name == "attempts"
    assert paths["d/n1"].parent == tmp_path / "outputs/d"


def test_a_plan_of_a_thousand_steps_fits_a_screen(capsys) -> None:
    def build() -> dict[str, Step[Any]]:
        return {"sum": add([number(i).named(f"many/n{i}") for i in range(1000)]).named("many/sum")}

    command = cli(build)
    assert command("plan") == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 4
    assert " and 999 more  run     no output yet" in out
    assert out.splitlines()[-1] == "1001 run"
    assert command("plan", "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1003


def test_the_ray_backend_is_refused_by_name() -> None:
    script = Script(name="exp", description="", build=lambda _: build_graph(diamond()))
    with pytest.raises(ConfigurationError, match=r"marin-pipe\[ray\]"):
        dispatch(["--backend", "ray"], program="python exp.py", script=script)


def test_commands_shown_repeat_the_root(capsys) -> None:
    assert cli(lambda: {"bad": fail(1)})("--root", "my root") == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "\nresume: python exp.py run --root 'my root'\n" in out
    assert "  logs:  python exp.py logs fail --root 'my root'\n" in out


def test_a_note_that_many_steps_share_is_printed_once(capsys) -> None:
    lines = Lines(build_graph(number(1)))
    for name in ("a", "b", "c"):
        lines.event(StepEvent(kind="note", name=name, directory=name, text="source changed"))
    lines.event(StepEvent(kind="cached", name="a", directory="a"))
    lines.finish()
    assert capsys.readouterr().out.splitlines() == [
        "note    a  source changed",
        "note    2 more with the same note: source changed",
    ]
