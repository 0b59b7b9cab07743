"""Bodies that the backend tests run. A module of its own: workers import it, and must not import pytest for that."""

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.handle import Ref
from marin_pipe.execution.markers import Artifact
from marin_pipe.execution.step import step


class Count(Artifact):
    words: int
    share: float = 1.0


@dataclass(frozen=True)
class Sources:
    first: Ref[Count]
    names: tuple[str, ...] = ()


@step
def write_files(files: dict[str, str], *, ctx: StepContext) -> Count:
    for name, text in files.items():
        path = ctx.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Count(words=len(files))


@step
def process_id(number: int = 0) -> int:  # noqa: ARG001  tells calls apart
    return os.getpid()


@step
def give_back(value: Any) -> Any:
    return value


@step
def read_count(count: Count, *, file: str) -> str:
    return f"{count.words}:{(count.path / file).read_text()}"


@step
def read_sources(sources: Sources) -> str:
    assert isinstance(sources.first, Count)
    return f"{type(sources).__name__}:{sources.first.words}:{sources.first.path.name}"


@step
def read_path(path: Path) -> str:
    return path.read_text()


@step
def environment_value(name: str) -> str | None:
    return os.environ.get(name)


@step
def print_everywhere() -> None:
    print("from print")
    print("from stderr", file=sys.stderr)
    logging.getLogger("library").info("from logging")
    os.write(1, b"from the descriptor\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    ctypes.CDLL(None).printf(b"from C\n")


@step
def print_text(text: str) -> None:
    print(text)


@step
def use_context(*, ctx: StepContext) -> list[Any]:
    with ctx.progress(10, "documents") as progress:
        progress.update(4, "reading")
    ctx.metrics.log(1, {"loss": 2.5})
    ctx.log.info("a line by ctx.log")
    (ctx.work / "state").write_text("half way")
    return [ctx.seed, str(ctx.resources), [str(path) for path in ctx.earlier_work]]


@step
def dirty() -> None:
    os.environ["LEFT_BEHIND"] = "1"
    del os.environ["HOME"]
    os.chdir("/")
    sys.path.insert(0, "/left/behind")
    logging.getLogger().setLevel(logging.ERROR)


@step
def surroundings(number: int = 0) -> list[Any]:  # noqa: ARG001
    return [
        os.environ.get("LEFT_BEHIND"),
        "HOME" in os.environ,
        os.getcwd(),
        "/left/behind" in sys.path,
        logging.getLogger().level,
    ]


def helper(kind: type[BaseException]) -> None:
    raise kind("the reason")


@step
def fail_with(kind: type[BaseException]) -> None:
    helper(kind)


@step
def say_exit(code: int) -> None:
    sys.exit(code)


@step
def import_missing() -> None:
    import no_such_module_anywhere  # type: ignore[import-not-found]  # noqa: F401


@step
def exit_at_once(code: int) -> None:
    os._exit(code)


@step
def die_by(number: int) -> None:
    if number == signal.SIGSEGV:
        ctypes.string_at(0)
    os.kill(os.getpid(), number)


def _mark(directory: str, name: str, text: str = "") -> None:
    Path(directory, f"{name}.tmp").write_text(text)
    Path(directory, f"{name}.tmp").rename(Path(directory, name))


def _grandchild(directory: str) -> None:
    """A process that outlives its parent unless somebody kills it, and that ignores polite requests."""
    code = (
        "import os, signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "child = subprocess.Popen(['sleep', '1000']); open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}'); "
        "os.rename(sys.argv[1], sys.argv[1][:-4]); time.sleep(1000)"
    )
    subprocess.Popen([sys.executable, "-c", code, str(Path(directory, "grandchild.tmp"))])
    while not Path(directory, "grandchild").exists():
        time.sleep(0.01)


@step
def hang(how: str, *, marks: str, ctx: StepContext) -> str:
    """Never end by itself; write process numbers to `marks` first."""
    _grandchild(marks)
    _mark(marks, "started", str(os.getpid()))
    if how == "polite":
        while not ctx.should_stop():
            time.sleep(0.01)
        (ctx.work / "state").write_text("saved")
        return "half of the answer"
    if how == "raise":
        while not ctx.should_stop():
            time.sleep(0.01)
        raise RuntimeError("stopping")
    if how == "stubborn":
        time.sleep(1000)
    if how == "lock":
        # Unlike CDLL, PyDLL keeps the interpreter lock: no other thread of this process runs.
        ctypes.PyDLL(None).sleep(1000)
    if how == "frozen":
        os.kill(os.getpid(), signal.SIGSTOP)
    return "never"


@step
def wait_for_stop_without_looking(*, marks: str) -> str:
    """Wait for what never comes, and clean up when interrupted."""
    _mark(marks, "started", str(os.getpid()))
    try:
        while not Path(marks, "go on").exists():
            time.sleep(0.01)
    finally:
        _mark(marks, "cleaned up", "")
    return "whole"


@step
def wait_for_child(*, marks: str) -> int:
    """Wait in a system call for a child that outlasts every test."""
    child = subprocess.Popen(["sleep", "1000"])
    _mark(marks, "started", str(os.getpid()))
    return child.wait()


@step
def leave_process(*, marks: str) -> int:
    """Leave a process behind that prints until it is killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys, time\nwhile True: print('noise', flush=True); time.sleep(0.005)"]
    )
    _mark(marks, "child", str(child.pid))
    return child.pid


@step
def flood(size: int, chunk: int) -> None:
    """Print `size` bytes without a newline."""
    piece = b"x" * chunk
    for _ in range(size // chunk):
        os.write(1, piece)
    os.write(1, b"THE END")


@step
def odd_output(kind: str, *, ctx: StepContext) -> None:
    local = ctx.local_output()
    if kind == "name":
        Path(os.fsdecode(bytes(local) + b"/bad\xff")).write_text("x")
    elif kind == "link":
        (local / "real").write_text("x")
        (local / "link").symlink_to("real")
    elif kind == "broken link":
        (local / "link").symlink_to("nowhere")
    elif kind == "directory link":
        (local / "folder").mkdir()
        (local / "link").symlink_to("folder")
    elif kind == "pipe":
        (local / "sub").mkdir()
        os.mkfifo(local / "sub/pipe")
    elif kind == "socket":
        # Its address is short, unlike the path.
        os.chdir(local)
        socket.socket(socket.AF_UNIX).bind("socket")
    elif kind == "linked output":
        local.rmdir()
        local.symlink_to("/usr")
    elif kind == "linked attempt":
        moved = local.parent.with_name("moved")
        local.parent.rename(moved)
        local.parent.symlink_to(moved)
    elif kind == "file as output":
        local.rmdir()
        local.write_text("x")
    elif kind == "pipe as output":
        local.rmdir()
        os.mkfifo(local)


@step
def wrong_result(which: str) -> Count:
    if which == "text":
        return "text"  # type: ignore[return-value]
    if which == "none":
        return None  # type: ignore[return-value]

    class Other(Count):
        more: int = 0

    return Other(words=1)


@step
def wrong_list() -> list[int]:
    return ["one"]  # type: ignore[list-item]


@step
def use_memory(mebibytes: int) -> int:
    return len(bytearray(mebibytes << 20))


@step
def burn(seconds: float, *, in_child: bool) -> None:
    code = f"import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"
    if in_child:
        subprocess.run([sys.executable, "-c", code], check=True)
    else:
        exec(code)  # noqa: S102


@step
def leave_thread() -> None:
    threading.Thread(target=time.sleep, args=(1000,)).start()


@step
def nap(seconds: float, *, ctx: StepContext) -> list[Any]:
    time.sleep(seconds)
    return [os.getpid(), ctx.should_stop()]


@step
def leave_process_and_fail(*, marks: str) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    _mark(marks, "child", str(child.pid))
    raise ValueError("after that")
