"""Bodies that misbehave. A module of its own: workers import it, and must not import pytest for that."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.markers import Artifact
from marin_pipe.execution.step import step


class Text(Artifact):
    pass


class Loose(Artifact):
    value: Any = None


@step
def write(text: str = "alpha", *, ctx: StepContext) -> Text:
    (ctx.output / "a.txt").write_text(text)
    (ctx.output / "sub").mkdir()
    (ctx.output / "sub/b.txt").write_text(text)
    return Text()


@step
def read(text: Text, number: int = 0) -> str:  # noqa: ARG001  tells calls apart
    return (text.path / "a.txt").read_text()


@step
def write_into_input(text: Text, how: str) -> str:
    file = Path(str(text.path), "a.txt")
    if how == "other bytes":
        file.chmod(0o600)
        file.write_text("ALPHA")
    elif how == "equal bytes":
        file.chmod(0o600)
        file.write_text("alpha")
    elif how == "another file":
        (file.parent / "sub/new.txt").write_text("new")
    elif how == "removed":
        file.unlink()
    elif how == "replaced":
        file.with_name("temporary").write_text("ALPHA")
        file.with_name("temporary").rename(file)
    elif how == "times set back":
        before = file.stat()
        file.chmod(0o600)
        file.write_text("ALPHA")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif how == "mode and link":
        file.chmod(0o444)
        os.link(file, file.parents[1] / "link")
    return "done"


def write_for_ever(marks: str, target: str) -> None:
    Path(marks, "number").write_text(str(os.getpid()))
    Path(marks, "number").rename(Path(marks, "child"))
    while True:
        with open(target, "a") as file:
            file.write("x")
        time.sleep(0.01)


@step
def leave(how: str, *, marks: str, ctx: StepContext) -> str:
    """Leave a process behind that writes into the output for as long as it lives."""
    target = ctx.local_output() / "late.txt"
    code = f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as m; m.write_for_ever(*sys.argv[1:])"
    command = [sys.executable, "-c", code, marks, str(target)]
    if how == "own session":
        child = subprocess.Popen(command, start_new_session=True)
        # Else its end warns of what is meant here.
        child.returncode = 0
    elif how == "twice forked":
        quoted = " ".join(f"'{part}'" if index != 2 else '"$CODE"' for index, part in enumerate(command))
        subprocess.run(["sh", "-c", f"(setsid {quoted} &)"], check=True, env={**os.environ, "CODE": code})
    elif how == "forked without exec" and not os.fork():
        os.setsid()
        if not os.fork():
            write_for_ever(marks, str(target))
        os._exit(0)
    while not Path(marks, "child").exists() or not target.exists():
        time.sleep(0.01)
    return "done"


@step
def hang_with_hidden_child(*, marks: str) -> None:
    """Never end; what it started is in a session of its own and no child of it."""
    subprocess.run(["sh", "-c", f"(setsid sleep 1000 & echo $! >'{marks}/hidden')"], check=True)
    Path(marks, "number").write_text(str(os.getpid()))
    Path(marks, "number").rename(Path(marks, "started"))
    time.sleep(1000)


@step
def fork_and_return(how: str) -> str:
    if os.fork():
        if how == "wait":
            return f"parent {os.waitstatus_to_exitcode(os.wait()[1])}"
        time.sleep(0.3)
        return "parent"
    if how == "raise":
        raise ValueError("in the child")
    if how == "exit":
        sys.exit(7)
    return "child"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Leaving(Exception):
    def __str__(self) -> str:
        sys.exit("no text")


class Odd(Exception):
    """Its text is of a class that only this process knows."""

    def __str__(self) -> str:
        class Words(str):
            __slots__ = ()

        return Words("odd words")


def _recurse(number: int) -> int:
    return _recurse(number + 1) + 1


@step
def raise_oddly(how: str) -> None:
    if how == "mute":
        raise Mute
    if how == "leaving":
        raise Leaving
    if how == "odd":
        raise Odd
    if how == "surrogate":
        raise ValueError("a \udc80 b")
    if how == "huge":
        raise ValueError("x" * 30_000_000)
    if how == "recursion":
        _recurse(0)
    if how == "exit with mute":
        sys.exit(Mute())  # type: ignore[arg-type]
    if how == "cause is mute":
        try:
            raise Mute
        except Mute as error:
            raise KeyError("told") from error
    if how == "notes":
        noted: Any = ValueError("told")
        noted.__notes__ = 3
        raise noted
    if how == "group":
        raise BaseExceptionGroup("several", [Mute(), KeyError("told")])


def _nested(levels: int, kind: str) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value] if kind == "list" else {"a": value}
    return value


@step
def give_nested(levels: int, kind: str) -> Any:
    return _nested(levels, kind)


@step
def give_nested_artifact(levels: int, kind: str) -> Loose:
    return Loose(value=_nested(levels, kind))


@step
def give_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@step
def give_surrogate(where: str) -> Any:
    return {"text": "a \udc80", "item": [1, "\udc80"], "key": {"\udc80": 1}}[where]


@step
def give_surrogate_artifact(where: str) -> Loose:
    return Loose(value={"text": "a \udc80", "item": [1, "\udc80"], "key": {"\udc80": 1}}[where])


@step
def odd_words(*, ctx: StepContext) -> str:
    """Words that UTF-8 cannot hold, wherever a body may say something."""
    print("printed \udc80")
    ctx.log.info("logged \udc80")
    with ctx.progress(1, "\udc80") as progress:
        progress.update(1, "told \udc80")
    ctx.metrics.log(1, {"\udc80": 1.0})
    return "done"


@step
def sum_of(array: np.ndarray) -> float:
    return float(array.sum(dtype=np.float64))


@step
def count(texts: list[Text]) -> int:
    return len(texts)


@step
def change_process(how: str) -> None:
    """Leave the process otherwise than it was found."""
    if how == "umask":
        os.umask(0o777)
    elif how == "handlers":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
    elif how == "mask":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    elif how == "alarm":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    elif how == "limits":
        sys.setrecursionlimit(77)
        gc.disable()
    elif how == "removed directory":
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
    elif how == "streams":
        sys.stdout.close()
        sys.stderr.close()
    elif how == "no streams":
        sys.stdout = sys.stderr = None
    elif how == "descriptors 1 and 2":
        os.close(1)
        os.close(2)


@step
def look_at_process(number: int, pause_s: float = 0.0) -> list[Any]:  # noqa: ARG001
    print("still printing")
    time.sleep(pause_s)
    umask = os.umask(0)
    os.umask(umask)
    handlers = [repr(signal.getsignal(number)).partition(" of ")[0] for number in (2, 15, 17)]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return [umask, handlers, sorted(blocked), sys.getrecursionlimit(), gc.isenabled(), os.getcwd()]


@step
def close_everything() -> str:
    """As programs do that become daemons."""
    os.closerange(3, 1000)
    return "done"


@step
def swallow_interrupt(*, marks: str) -> str:
    """Returns what it has so far when interrupted, as training loops do."""
    Path(marks, "number").write_text(str(os.getpid()))
    Path(marks, "number").rename(Path(marks, "started"))
    try:
        time.sleep(1000)
    except KeyboardInterrupt:
        print("interrupted, keeping what there is")
    return "half"


@step
def look_late(*, marks: str, ctx: StepContext) -> str:
    """Asks `should_stop()` and goes on for a while after it is told."""
    Path(marks, "number").write_text(str(os.getpid()))
    while not ctx.should_stop():
        if not Path(marks, "started").exists():
            Path(marks, "number").rename(Path(marks, "started"))
        time.sleep(0.01)
    try:
        time.sleep(0.3)
    except KeyboardInterrupt:
        return "interrupted"
    raise RuntimeError("in its own time")


@step
def compute_in_c(*, marks: str) -> str:
    """In C code that does not look at signals, until it is killed."""
    Path(marks, "number").write_text(str(os.getpid()))
    Path(marks, "number").rename(Path(marks, "started"))
    sum(range(1 << 60))
    return "never"


@step
def interrupt_itself() -> str:
    signal.raise_signal(signal.SIGINT)
    return "went on"


@step
def print_at(*, marks: str) -> str:
    """Needs nothing but its streams."""
    print(marks)
    print(marks, file=sys.stderr)
    return sys.stdin.read() + subprocess.run(["echo", marks], capture_output=True, text=True, check=True).stdout
