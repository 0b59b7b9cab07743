"""Hygiene of the repository itself: what is tracked, what is locked, and that its documents agree."""

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600
LOCKS = sorted((ROOT / "requirements").iterdir())

# A directory of one person's or one provider's machine, at the start of a path. `gs://bucket/work/x` and
# `f"{directory}/work/{attempt}"` are no such paths: something precedes the slash.
MACHINE_PATH = re.compile(
    r"""(?:^|(?<=[\s"'`=(\[,:<>]))(?:/home/\w|/root/|/work/|/Users/\w|/mnt/\w|/scratch/\w)|\b[A-Z]:\\+Users""",
    re.MULTILINE,
)
PUBLIC_REGISTRIES = [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org"), ("anaconda", "org")]
# This file spells out what it looks for; nothing else may.
EXEMPT_FROM_PATHS = {"tests/test_repository.py"}


@functools.cache
def repository_files() -> tuple[str, ...]:
    """Tracked files and those about to be: everything that git does not ignore. Relative, sorted."""
    # A fresh clone may belong to another user (containers, CI).
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(sorted(name for name in names if name and (ROOT / name).is_file()))


@functools.cache
def text_of(name: str) -> str | None:
    """The file as text, or None for a binary file."""
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def python_files() -> list[str]:
    return [name for name in repository_files() if name.endswith(".py")]


def find_in_files(pattern: re.Pattern[str], *, exempt: frozenset[str] | set[str] = frozenset()) -> list[str]:
    """`file:line: match` for each match of `pattern` outside the exempt files."""
    found = []
    for name in repository_files():
        text = text_of(name)
        if text is None or name in exempt:
            continue
        for match in pattern.finditer(text):
            found.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()!r}")
    return found


def registry_hosts() -> set[str]:
    """Hosts of package registries: the public ones, and those that this machine's installers are set up with."""
    pip_config = [sys.executable, "-m", "pip", "config", "list"]
    settings = subprocess.run(pip_config, capture_output=True, text=True, check=True).stdout.splitlines()
    settings += [f"{name}={value}" for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))]
    words = " ".join(setting for setting in settings if "index" in setting.lower()).replace("'", " ").replace("=", " ")
    configured = {urlsplit(word).hostname for word in words.split() if "://" in word}
    return {".".join(parts) for parts in PUBLIC_REGISTRIES} | {host for host in configured if host}


def test_files_are_found() -> None:
    """The searches below would pass on an empty list."""
    assert {"pyproject.toml", "tests/test_repository.py", "marin_pipe/execution/step.py"} <= set(repository_files())


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_holds_versions_and_hashes_only(lock: Path) -> None:
    requirements = lock.read_text().replace("\\\n", " ").splitlines()
    assert requirements
    for requirement in requirements:
        pin, *hashes = requirement.split("--hash=")
        assert re.fullmatch(r"[a-z0-9.-]+==[\w.+!]+( ; [^/@]+)?", pin.strip()), f"{lock.name}: {pin}"
        assert hashes, f"{lock.name}: {pin} has no hash"
        for digest in hashes:
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest.strip()), f"{lock.name}: {pin}: {digest}"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_never_installs_torch(lock: Path) -> None:
    """2 GB that nothing here imports; a dependency that begins to pull it in must be noticed."""
    assert not re.search(r"^(torch|nvidia-|triton)", lock.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("lock", "extras"), [("run", {"demo"}), ("dev", {"dev"}), ("slow", {"dev", "slow"})])
def test_lock_satisfies_pyproject(lock: str, extras: set[str]) -> None:
    pins: dict[str, set[Version]] = {}
    for name, version in re.findall(
        r"^([a-z0-9.-]+)==([^\s;]+)", (ROOT / f"requirements/{lock}.lock").read_text(), re.M
    ):
        pins.setdefault(name, set()).add(Version(version))
    for requirement in wanted_requirements(extras):
        locked = pins.get(requirement.name.lower().replace("_", "-"))
        assert locked, f"{requirement} is not in requirements/{lock}.lock; run: make lock"
        for version in locked:
            assert version in requirement.specifier, f"{lock}.lock pins {requirement.name} {version}; run: make lock"


def wanted_requirements(extras: set[str]) -> list[Requirement]:
    """What the project with `extras`, and its build, ask for directly."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    wanted = [*project["dependencies"], *pyproject["dependency-groups"]["build"]]
    pending = set(extras)
    while pending:
        for text in project["optional-dependencies"][pending.pop()]:
            requirement = Requirement(text)
            if requirement.name == project["name"]:
                pending |= requirement.extras
            else:
                wanted.append(text)
    return [Requirement(text) for text in wanted]


def test_no_lock_that_records_addresses_is_tracked() -> None:
    names = {Path(name).name for name in repository_files()}
    assert names.isdisjoint({"uv.lock", "pylock.toml", "poetry.lock", "pdm.lock", "Pipfile.lock"})


def test_no_file_names_a_path_of_a_machine() -> None:
    assert find_in_files(MACHINE_PATH, exempt=EXEMPT_FROM_PATHS) == []
    assert find_in_files(re.compile(re.escape(str(ROOT)) + r"\b")) == []


@pytest.mark.parametrize("path", ["/home/ada/x", "open('/root/x')", "`/work/data`", "root=/Users/ada", r"C:\Users\ada"])
def test_paths_of_machines_are_recognised(path: str) -> None:
    assert MACHINE_PATH.search(path)


@pytest.mark.parametrize("text", ["gs://bucket/work/x", 'f"{directory}/work/{attempt}"', "earlier/home/x", "a/root/b"])
def test_other_paths_are_not_taken_for_those_of_machines(text: str) -> None:
    assert not MACHINE_PATH.search(text)


def test_no_file_names_a_package_registry() -> None:
    hosts = "|".join(re.escape(host) for host in sorted(registry_hosts()))
    assert find_in_files(re.compile(rf"\b(?:{hosts})\b")) == []


def test_python_files_are_of_readable_size() -> None:
    sizes = {name: (text_of(name) or "").count("\n") for name in python_files()}
    assert {name: lines for name, lines in sizes.items() if lines > MAX_LINES} == {}


def test_every_test_checks_something() -> None:
    idle = [
        f"{name}:{function.lineno}: {function.name}"
        for name in python_files()
        if Path(name).name.startswith("test_")
        for function in functions_of_tests(name)
        if not any(map(is_check, ast.walk(function)))
    ]
    assert idle == []


def functions_of_tests(name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(ast.parse(text_of(name) or "", filename=name))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [function for function in functions if function.name.startswith("test_")]


def is_check(node: ast.AST) -> bool:
    """An assertion, an expected exception, or a call of a helper whose name promises one (or a wait that may fail)."""
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called in {"raises", "warns", "fail", "run_state_machine_as_test"}:
        return True
    return called.lstrip("_").split("_")[0] in {"assert", "check", "expect", "wait"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("assert x", True),
        ("with pytest.raises(ValueError): f()", True),
        ("check_conformance(store)", True),
        ("f(x)", False),
        ("checkpoint(x)", False),
    ],
)
def test_checks_are_recognised(source: str, expected: bool) -> None:
    assert any(map(is_check, ast.walk(ast.parse(source)))) is expected


@pytest.mark.parametrize("target", ["demo", "test", "test-slow", "check", "docs", "bench", "lock"])
def test_makefile_has_target(target: str) -> None:
    assert re.search(rf"^{target}:.*## \w", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no documented {target}"


def test_ci_runs_what_a_person_runs() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert "set -euo pipefail" in script
    assert re.findall(r"^make (.+)$", script, re.MULTILINE) == ["check", "test"]


def test_changelog_names_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [heading for heading in headings if heading != "Unreleased"]
    assert released[:1] == [version], "the newest released heading of CHANGELOG.md is the version in pyproject.toml"
