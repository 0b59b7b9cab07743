"""`marin-pipe`: dispatch, exit codes and the display of errors."""

import functools
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from marin_storage import Conflict, MissingExtra, OutOfSpace, PermissionDenied, Unavailable, Unsuitable

from marin_pipe.cli import registry
from marin_pipe.cli.app import HELP_NAMES, dispatch, flags_of, load
from marin_pipe.cli.failures import guarded
from marin_pipe.execution.errors import Busy, ConfigurationError, CorruptOutput, ExitCode


@pytest.mark.parametrize("name", registry.COMMANDS)
def test_every_command_of_the_table_loads_and_has_its_flags_reserved(name: str) -> None:
    flags = {flag[2:] for flag in flags_of(load(name)) if flag.startswith("--")}
    assert flags <= registry.FLAG_NAMES


def test_every_reserved_name_is_a_flag_of_some_command() -> None:
    flags = {flag[2:] for name in registry.COMMANDS for flag in flags_of(load(name)) if flag.startswith("--")}
    assert flags >= registry.FLAG_NAMES


@pytest.mark.parametrize("argv", [[], *([name] for name in HELP_NAMES)])
def test_help_shows_what_needs_no_experiment(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(argv, program="marin-pipe") == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: marin-pipe COMMAND [FLAGS]\n")
    shown = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert shown == set(registry.COMMANDS) - {"run", "plan"}


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    for word, flag in ((["help"], ["--help"]), (["help", "ls"], ["ls", "--help"])):
        shown = []
        for argv in (word, flag):
            assert dispatch(argv, program="marin-pipe") == 0
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1]
    with pytest.raises(ConfigurationError, match="there is no command 'lss'"):
        dispatch(["help", "lss"], program="marin-pipe")


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert dispatch(["--version"], program="marin-pipe") == 0
    assert capsys.readouterr().out == f"marin-pipe {project['version']}\n"


def test_help_imports_no_command() -> None:
    program = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "import marin_pipe.cli.main as m\n"
        "try: m.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print([name for name in ('gc', 'doctor', 'init', 'run') if f'marin_pipe.cli.{name}' in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run"], "`marin-pipe run` needs an experiment"),
        (["plna"], "there is no command 'plna'\ndid you mean plan?"),
        (["--root", "x"], "--root was given without a command"),
        (["doctor", "--rot", "x"], "--rot is not a flag of this command\ndid you mean --root?"),
    ],
)
def test_what_marin_pipe_cannot_do_is_refused_with_a_way_out(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        dispatch(argv, program="marin-pipe")
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("error", "code", "first"),
    [
        (ConfigurationError("no"), 2, "error: no"),
        (Busy("taken"), 4, "error: taken"),
        (CorruptOutput("short"), 5, "error: short"),
        (PermissionDenied("x: denied"), 1, "error: the storage refuses access: x: denied"),
        (OutOfSpace("x: full"), 1, "error: the storage is full: x: full"),
        (Unavailable("x: silent"), 1, "error: the storage did not answer: x: silent"),
        (MissingExtra("x needs y", "s3"), 2, "error: this root cannot be used: x needs y"),
        (Unsuitable("x lies.\nUse another"), 2, "error: this root cannot be used: x lies."),
        (Conflict("x changed"), 1, "error: storage: x changed"),
        (click.UsageError("No such option: -x."), 2, "error: no such option: -x"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_messages_and_exit_codes(
    error: BaseException, code: int, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> int:
        raise error

    assert guarded(command, debug=False) == code
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == first
    assert len(lines) <= 3
    assert not any("Traceback" in line for line in lines)


def test_debug_shows_where_a_storage_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise OutOfSpace("x: full")

    assert guarded(command, debug=True) == 1
    err = capsys.readouterr().err
    assert "in command\n    raise OutOfSpace" in err
    assert err.count("error: the storage is full: x: full") == 1


@pytest.mark.parametrize(
    "argv", [["ls"], ["status"], ["logs", "a"], ["gc"], ["verify"], ["path", "a"], ["cancel", "a"]]
)
def test_a_root_that_does_not_exist_is_no_empty_one(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for flags, variable, origin in (
        (["--root", "typo"], "", "--root"),
        ([], "typo", "MARIN_PIPE_ROOT"),
        ([], "", "the default, ./outputs"),
    ):
        monkeypatch.setenv("MARIN_PIPE_ROOT", variable)
        code = guarded(functools.partial(dispatch, [*argv, *flags], program="marin-pipe"), debug=False)
        printed = capsys.readouterr()
        assert (code, printed.out) == (2, "")
        name = "outputs" if "default" in origin else "typo"
        assert printed.err.startswith(
            f"error: the root {tmp_path / name} does not exist\n  why:  it comes from {origin}\n"
        )
    assert guarded(lambda: dispatch(["ls", "--root", "memory://nothing"], program="marin-pipe"), debug=False) == 2
    assert list(tmp_path.iterdir()) == []


def test_an_unexpected_exception_is_not_hidden() -> None:
    def command() -> int:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        guarded(command, debug=False)
