"""Experiment scripts in a directory of their own, run as a user runs them or within the test's process."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab import Lab
from shell import Shell

REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True)
class Scripts:
    """`run("x.py", "plan")` is `python x.py plan` in `directory`."""

    directory: Path

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'lib'}"}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Outputs to look at: `lab.run(...)` makes them."""
    monkeypatch.setenv("LAB_NOTEBOOK", str(tmp_path / "notebook"))
    return Lab(folder=tmp_path)


@pytest.fixture
def shell(lab: Lab, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(lab, capsys)


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


@pytest.fixture
def tree() -> Callable[[Path], dict[str, tuple[int, int]]]:
    """Every path below a directory with size and time of change: equal before and after if nothing was written."""

    def look(root: Path) -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in [root, *root.rglob("*")]}

    return look
