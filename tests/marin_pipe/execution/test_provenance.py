"""What a launch records of the code around it, and that it costs the user's repository nothing."""

import subprocess
from pathlib import Path

from marin_storage import open_store

from marin_pipe import run
from marin_pipe.execution.provenance import git_state, installed_packages, read_packages
from marin_pipe.execution.secret import Redactor


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "code.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_clean_tree_is_its_commit(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    assert git_state(folder) == (git(folder, "rev-parse", "HEAD"), None)


def test_each_state_of_a_dirty_tree_has_its_digest(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    seen = set()
    for name, text in (("code.py", "x = 2\n"), ("code.py", "x = 3\n"), ("new.py", "y = 1\n"), ("new.py", "y = 2\n")):
        (folder / name).write_text(text)
        commit, dirty = git_state(folder)
        assert commit == git(folder, "rev-parse", "HEAD")
        seen.add(dirty)
    assert len(seen) == 4
    assert None not in seen


def test_no_repository_is_no_error(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, None)


def test_outputs_in_a_project_are_no_untracked_files(tmp_path: Path) -> None:
    from lab_steps import seed

    folder = repository(tmp_path)
    assert run(seed("a").named("a"), root=folder / "outputs", backend="inline").ok
    assert git(folder, "status", "--porcelain") == ""


def test_a_root_that_was_there_keeps_what_the_user_put_in_it(tmp_path: Path) -> None:
    from lab_steps import seed

    folder = repository(tmp_path)
    assert run(seed("a").named("a"), root=folder, backend="inline").ok
    assert not (folder / ".gitignore").exists()


def test_packages_are_on_record_once_and_as_installed(tmp_path: Path) -> None:
    import importlib.metadata

    from marin_pipe.execution.provenance import collect

    store = open_store(str(tmp_path))
    facts = collect(store, run="r", experiment=None, redactor=Redactor.from_environment())
    assert read_packages(store, facts.packages) == installed_packages()
    for name in ("pydantic", "click", "pytest"):
        assert installed_packages()[name] == importlib.metadata.version(name)
