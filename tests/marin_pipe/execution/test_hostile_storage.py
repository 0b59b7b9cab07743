"""Full and read-only disks, and data files with hostile names: a clear error or a whole commit, nothing torn."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marin_storage import PermissionDenied, open_store
from outputs import check_once, check_whole

import marin_pipe
from marin_pipe import Artifact, Runtime, Step, StepContext, step
from marin_pipe.execution import provenance


class Names(Artifact):
    """The files of an output, by name."""

    names: list[str]


@step
def write(names: list[str], *, ctx: StepContext) -> Names:
    """A file for each name; what it holds is its name."""
    for name in names:
        path = Path(str(ctx.output)) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode("utf-8", "surrogateescape"))
    return Names(names=names)


@step
def read(files: Names) -> dict[str, str]:
    """What a consumer finds under each name."""
    assert files.path is not None
    return {name: (files.path / name).read_bytes().decode() for name in files.names}


@step
def fill(size_mib: int, *, loudly: Runtime[bool] = False, ctx: StepContext) -> int:
    """Writes more or less."""
    if loudly:
        print("x" * 1000)
    with (ctx.output / "big.bin").open("wb") as file:
        for _ in range(size_mib):
            file.write(b"\0" * 2**20)
    return size_mib


@step
def after(size: int) -> int:
    return size


@step
def bytes_named(*, ctx: StepContext) -> None:
    """A name that no text encodes to."""
    Path(os.fsdecode(os.fsencode(str(ctx.output)) + b"/caf\xe9")).write_text("x")


@step
def fill_up(*, ctx: StepContext) -> None:
    """Leaves no byte free."""
    print("filling")
    block = b"\0" * 4096
    with (ctx.output / "big.bin").open("wb", buffering=0) as file:
        while True:
            file.write(block)


@step
def lose_the_disk(*, root: Runtime[str], ctx: StepContext) -> int:
    """Its disk becomes read-only before it ends."""
    (ctx.output / "data.txt").write_text("x")
    read_only(Path(root))
    return 1


@pytest.fixture(autouse=True)
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git_state", lambda _: (None, None))


HOSTILE = [
    "a b",
    " leading and trailing ",
    "ünïcödé-日本語-🙂",
    "e\u0301 combining",
    "new\nline",
    "tab\tand\rreturn",
    "hash#mark",
    "question?mark",
    "percent%41%2e%2e%2f",
    "..dots..",
    ".hidden/.file",
    "back\\slash",
    "star*[1-2]{a,b}",
    "quote'\"quote",
    "-rf",
    "~",
    "$HOME",
    "a:b|c<d>&e;f",
    "commit.json",
    "lease.json",
    "attempts/000001-9f3c2a/output/commit.json",
    ".marin_storage/locks/00",
    "\x01\x1b[31mred",
    "n" * 255,
    "/".join(["d" * 200] * 10),
]


def run_and_read(names: list[str], root: str) -> dict[str, str]:
    consumer = read(write(names))
    report = marin_pipe.run({"read": consumer}, root=root, backend="inline")
    assert report.ok, report.steps
    check_once(open_store(root), 2)
    found: dict[str, str] = consumer.load(root=root)
    return found


def test_every_hostile_name_is_committed_and_read_back(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    assert run_and_read(HOSTILE, root) == {name: name for name in HOSTILE}
    # Served from its record the second time, with every name as it was.
    assert marin_pipe.run({"read": read(write(HOSTILE))}, root=root, backend="inline").count("cached") == 2


PART = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=40).filter(
    lambda part: part not in (".", "..") and len(part.encode()) <= 255
)


@given(names=st.lists(st.lists(PART, min_size=1, max_size=3).map("/".join), min_size=1, max_size=4, unique=True))
@settings(max_examples=25)
def test_any_name_that_the_disk_takes_is_committed_and_read_back(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    taken = [name for name in names if not any(other.startswith(f"{name}/") for other in names)]
    assert run_and_read(taken, str(tmp_path_factory.mktemp("names"))) == {name: name for name in taken}


def failed_message(name: str, steps: dict[str, Step[Any]], root: Path) -> str:
    """The message of the one step that fails; nothing is committed, and a second launch is no worse off."""
    report = marin_pipe.run(steps, root=root, backend="inline")
    (end,) = [end for end in report.steps if end.status == "failed"]
    assert end.name == name
    assert report.exit_code == 1
    assert end.failure is not None
    check_whole(open_store(str(root)))
    return end.failure.message


def test_a_name_that_is_too_long_is_the_bodys_own_error(tmp_path: Path) -> None:
    message = failed_message("write", {"write": write(["n" * 256])}, tmp_path)
    assert "File name too long" in message


def test_a_name_that_is_not_text_is_refused_with_the_name(tmp_path: Path) -> None:
    message = failed_message("bytes_named", {"step": bytes_named()}, tmp_path)
    assert r"b'caf\xe9'" in message
    assert "another name" in message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    yield from mounted(tmp_path / "small", "size=2m")


def mounted(path: Path, options: str) -> Iterator[Path]:
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def read_only(path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)


def test_a_full_disk_fails_the_step_with_its_name_and_the_next_launch_succeeds(small_disk: Path) -> None:
    steps: dict[str, Step[Any]] = {"after": after(fill(3, loudly=True))}
    message = failed_message("fill", steps, small_disk)
    assert "No space left on device" in message
    # The user makes room, by removing what the attempt that failed left.
    for path in small_disk.glob("fill-*/attempts/*/output/big.bin"):
        path.unlink()
    report = marin_pipe.run({"after": after(fill(1))}, root=small_disk, backend="inline")
    assert report.ok
    check_once(open_store(str(small_disk)), 2)


def test_a_disk_that_is_full_for_records_too_tells_the_bodys_error(small_disk: Path) -> None:
    """Neither the log nor how it ended can be stored then; that must not hide why."""
    assert marin_pipe.run({"fill": fill(0)}, root=small_disk, backend="inline").ok

    message = failed_message("fill_up", {"fill": fill_up()}, small_disk)
    assert "No space left on device" in message
    assert list(check_whole(open_store(str(small_disk)))) == [fill(0).directory]


def test_a_read_only_root_serves_what_is_there_and_says_what_it_refuses(tmp_path: Path) -> None:
    for root in mounted(tmp_path / "root", "size=8m"):
        steps = {"after": after(fill(1))}
        assert marin_pipe.run(steps, root=root, backend="inline").ok
        read_only(root)
        # A launch that has nothing to do, and a plan, write nothing.
        report = marin_pipe.run(steps, root=root)
        assert (report.exit_code, report.count("cached")) == (0, 2)
        assert marin_pipe.plan(steps, root=root).up_to_date
        planned = marin_pipe.plan({"after": after(fill(2))}, root=root)
        assert [row.action for row in planned.steps] == ["run", "run"]
        for backend in ("inline", "local"):
            with pytest.raises(PermissionDenied, match="Read-only file system") as caught:
                marin_pipe.run({"after": after(fill(2))}, root=root, backend=backend)
            assert str(root) in str(caught.value)


def test_a_disk_that_becomes_read_only_under_a_step_fails_it(tmp_path: Path) -> None:
    for root in mounted(tmp_path / "root", "size=8m"):
        message = failed_message("lose_the_disk", {"step": lose_the_disk(root=str(root))}, root)
        assert "Read-only file system" in message
        subprocess.run(["mount", "-o", "remount,rw", str(root)], check=True)
        assert not check_whole(open_store(str(root)))
