"""Fixtures of the engine's tests. Shared: each stands for itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab
from launching import Launching
from source_project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A folder of modules on `sys.path`; whatever is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield Project(tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def lab(project: Project, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """An empty laboratory for the engine."""
    monkeypatch.setenv("LAB_NOTEBOOK", str(project.folder / "notebook"))
    return Lab(folder=project.folder)


@pytest.fixture
def launching(tmp_path: Path) -> Iterator[Launching]:
    """Starts launches in processes of their own, below one root."""
    made = Launching(tmp_path)
    yield made
    made.close()
