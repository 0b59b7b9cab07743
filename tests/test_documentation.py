"""Every command in the README and the documentation is executed, and shows what the page says it shows.

A page is one session in one directory: fenced blocks with a title are files, `console` blocks are commands and their
output. Times, sizes that depend on the machine, and names with a random part are compared by their form.
`UPDATE_DOCS=1` writes what the commands print into the pages.
"""

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import marin_pipe
from marin_pipe import Step, StepContext
from marin_pipe.cli.app import flags_of, load
from marin_pipe.cli.registry import COMMANDS, FLAG_NAMES
from marin_pipe.execution.run import RunSettings

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
FENCE = re.compile(r'^```(?P<kind>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<body>.*?)^```$', re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"#\s*exits with (\d+)\s*$")
VARIABLE = [
    # Names first: a nonce may end in what looks like a number of days.
    (re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}"), "<run>"),
    (re.compile(r"\b(\d{6})-[0-9a-f]{6}\b"), r"\1-<nonce>"),
    (re.compile(r"(?<![\w.-])\d+(\.\d+)? ?(ms|s|min|h|d)\b"), "<time>"),
    (re.compile(r"\bby \S+ on \S+"), "by <user> on <host>"),
    (re.compile(r"\S+, pid \d+ works on it"), "<host>, pid <pid> works on it"),
    (re.compile(r"\b(failed|interrupted) on \S+ after"), r"\1 on <host> after"),
    (re.compile(r"(?<=, )\S+(?=, \w+ <run>)"), "<user>"),
    (re.compile(r"\d+(\.\d+)? [KMG]iB"), "<size>"),
    (re.compile(r"[ ]{2,}|-{3,}"), "  "),
]


@dataclass(frozen=True)
class Block:
    kind: str
    title: str | None
    body: str


def blocks(page: Path) -> Iterator[Block]:
    for match in FENCE.finditer(page.read_text()):
        yield Block(match["kind"], match["title"], match["body"])


def commands(body: str) -> list[tuple[str, str]]:
    """Commands of a console block with the output shown below each."""
    found: list[tuple[str, str]] = []
    for line in body.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].rstrip("\n"), ""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def form(text: str) -> str:
    """The text with everything replaced that may differ from run to run."""
    for pattern, replacement in VARIABLE:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def run(command: str, folder: Path) -> str:
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder / ".home"),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "COLUMNS": "160",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    announced = EXIT.search(command)
    assert done.returncode == int(announced[1] if announced else 0), f"$ {command}\n{done.stdout}"
    return done.stdout.replace(f"{folder}/", "")


SESSIONS = [page for page in PAGES if any(block.kind == "console" for block in blocks(page))]


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    update = os.environ.get("UPDATE_DOCS") == "1"
    text = page.read_text()
    for block in blocks(page):
        if block.title:
            (tmp_path / block.title).write_text(block.body)
        elif block.kind == "console":
            shown = []
            for command, expected in commands(block.body):
                printed = run(command, tmp_path)
                shown.append(f"$ {command}\n{printed}")
                if not update:
                    assert form(printed) == form(expected), f"$ {command}\n{printed}"
            if update:
                text = text.replace(f"```console\n{block.body}```", f"```console\n{''.join(shown)}```")
    if update:
        page.write_text(text)


def test_the_command_reference_is_what_the_command_line_says() -> None:
    done = subprocess.run([sys.executable, "-c", "import commands; print(commands.page(), end='')"],
        cwd=REPOSITORY / "docs", capture_output=True, text=True, check=True)  # fmt: skip
    assert (REPOSITORY / "docs/reference/commands.md").read_text() == done.stdout, "run `make docs`"


def test_the_command_reference_has_every_flag() -> None:
    page = (REPOSITORY / "docs/reference/commands.md").read_text()
    flags = {flag for name in COMMANDS for flag in flags_of(load(name))}
    assert {flag for flag in flags if not re.search(rf"^\| `[^`]*{flag}\b", page, re.MULTILINE)} == set()
    assert all(f"`{name.replace('-', '_')}`" in page for name in FLAG_NAMES)


def test_the_first_page_has_commands() -> None:
    assert REPOSITORY / "README.md" in SESSIONS
    assert REPOSITORY / "docs" / "tutorials" / "first-experiment.md" in SESSIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


API = (REPOSITORY / "docs/reference/api.md").read_text()


def public_members(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


@pytest.mark.parametrize("name", sorted(marin_pipe.__all__))
def test_the_api_page_has_a_section_for_every_exported_name(name: str) -> None:
    assert re.search(rf"^###? `{name}`$", API, re.MULTILINE)


@pytest.mark.parametrize("cls", [Step, StepContext, RunSettings], ids=lambda cls: cls.__name__)
def test_the_api_page_names_every_public_member(cls: type) -> None:
    members = public_members(cls)
    assert members
    internal = {"function", "bound", "options"}  # fields of `Step` that only the engine reads
    missing = [name for name in members if name not in internal and not re.search(rf"`[^`\n]*\b{name}\b", API)]
    assert missing == []


@pytest.mark.parametrize("name", sorted(name for name in marin_pipe.__all__ if name not in {"Ref", "Runtime", "Step"}))
def test_the_api_page_names_every_parameter(name: str) -> None:
    section = re.split(rf"^### `{name}`$", API, flags=re.MULTILINE)[1].split("\n### ")[0]
    called = StepContext.for_test if name == "StepContext" else getattr(marin_pipe, name)
    parameters = set(inspect.signature(called).parameters) - {"data", "text", "value", "fn"}  # named by their meaning
    assert sorted(p for p in parameters if not re.search(rf"\b{p}\b", section)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_python_shown_in_a_page_compiles(page: Path) -> None:
    examples = [block.body for block in blocks(page) if block.kind == "python"]
    for example in examples:
        compile(example, str(page), "exec")
    assert len(examples) == page.read_text().count("```python")


def test_every_page_is_in_the_navigation_and_on_the_first_page() -> None:
    pages = {str(page.relative_to(REPOSITORY / "docs")) for page in PAGES[1:]}
    navigation = set(re.findall(r"^\s+- (\S+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE))
    linked = set(re.findall(r"\]\((\S+\.md)\)", (REPOSITORY / "docs/index.md").read_text()))
    assert navigation == pages
    assert linked == pages - {"index.md"}


def test_make_targets_named_in_pages_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    named = {
        name for page in PAGES for name in re.findall(r"\bmake ([a-z][a-z-]*)\b`|^make ([a-z-]+)", page.read_text())
    }
    targets = {name for pair in named for name in pair if name}
    assert {"demo", "test"} <= targets
    assert [t for t in sorted(targets) if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []


@pytest.mark.slow
def test_make_demo_works_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(clone)], check=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    first = subprocess.run(["make", "demo"], cwd=clone, env=environment, capture_output=True, text=True, timeout=600)
    assert first.returncode == 0, first.stderr
    report = next(clone.glob("outputs/exp000/report-*/attempts/*/output/report.md"))
    assert "| 1860s |" in report.read_text()
    again = subprocess.run(["make", "demo"], cwd=clone, env=environment, capture_output=True, text=True, timeout=60)
    assert "3 cached" in again.stdout
    shutil.rmtree(clone)
