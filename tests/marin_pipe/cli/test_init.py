"""`init` writes a file that runs as it is."""

import pytest

from marin_pipe.cli.app import dispatch
from marin_pipe.execution.errors import ConfigurationError


def test_the_file_runs_and_teaches(
    scripts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(scripts.directory)
    assert dispatch(["init", "exp001_first"], program="marin-pipe") == 0
    assert (
        capsys.readouterr().out
        == "wrote experiments/exp001_first.py; run it with: python experiments/exp001_first.py\n"
    )

    result = scripts.run("experiments/exp001_first.py")
    assert (result.returncode, result.stderr) == (0, "")
    path = result.stdout.splitlines()[-1].split()[-1]
    assert (scripts.directory / path).read_text() == "3 the\n2 dog\n1 and\n"

    changed = scripts.run("experiments/exp001_first.py", "--top", "1")
    assert "1 cached, 1 built" in changed.stdout


def test_nothing_is_overwritten(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/mine.py").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"experiments/mine\.py exists already"):
        dispatch(["init", "mine"], program="marin-pipe")
    assert (tmp_path / "experiments/mine.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["001", "a-b", "../x", "", "a b", "class"])
def test_a_name_that_is_no_module_is_refused(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot name an experiment file"):
        dispatch(["init", name], program="marin-pipe")
    assert list(tmp_path.iterdir()) == []
