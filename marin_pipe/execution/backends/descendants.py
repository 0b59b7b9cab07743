"""The processes below a process, whatever session or group they moved to, and how to end them."""

import functools
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from marin_pipe.execution.errors import PipelineError

if TYPE_CHECKING:
    import ctypes

END_S = 10.0
"""How long killed processes may take to vanish: the kernel lets one finish the system call it is in."""
_LOOK_EVERY_S = 0.002
_SET_CHILD_SUBREAPER = 36
_ENDED = "ZX"
_NOBODY: frozenset[int] = frozenset()


class Unkillable(PipelineError):
    """Processes that a step left running outlive SIGKILL."""


def adopt_orphans(*, adopt: bool = True) -> None:
    """Become the parent of all descendants that lose theirs, so that none can hide by forking twice. Linux only."""
    if sys.platform == "linux":
        import ctypes

        if _libc().prctl(_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


@functools.cache
def _libc() -> "ctypes.CDLL":
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


class Leftovers:
    """Ends the processes a body left running: they could still write into its output. For a body in this process."""

    def __init__(self, *, spare: frozenset[int] = _NOBODY) -> None:
        """`spare`: children that are none of the body's."""
        self.found = False
        """Whether there were any, ended ones that nobody waited for included."""
        self._spare = spare

    def end(self) -> None:
        """Kill them and say so on the standard error stream. Unkillable if they do not go."""
        if not _has_children():
            return
        me = os.getpid()
        killed: dict[int, str] = {}
        give_up_at = time.monotonic() + END_S
        tracker = _resource_tracker()
        spare = self._spare | {tracker}
        while children := _children(me, spare):
            self.found = True
            killed |= kill_descendants(me, spare=spare, limit_s=END_S)
            for pid in children:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > give_up_at:
                raise Unkillable(
                    f"processes that the step left running cannot be killed: {_names(killed)}",
                    why="they may still write into its output; a system call hangs, as on a lost network disk",
                    next="find out what they wait for, or restart the machine",
                )
        if tracker and tracker not in self._spare:
            _stop_resource_tracker()
        if killed:
            line = f"marin_pipe: the step left processes running, which were killed: {_names(killed)}\n"
            # The body may have closed its streams.
            with suppress(OSError):
                os.write(2, line.encode("utf-8", "backslashreplace"))


def _resource_tracker() -> int:
    """The process that `multiprocessing` keeps beside this one once a pool was made in it; 0 if there is none."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return 0 if module is None else module._resource_tracker._pid or 0


def _stop_resource_tracker() -> None:
    """End it in its own way: `multiprocessing` would warn of one that was killed when the next pool is made.

    Waits for it; it ends when no process that it watches is left.
    """
    with suppress(ChildProcessError):
        sys.modules["multiprocessing.resource_tracker"]._resource_tracker._stop()


def kill_descendants(ancestor: int, *, spare: frozenset[int] = _NOBODY, limit_s: float = END_S) -> dict[int, str]:
    """Kill all that live below `ancestor`, until nothing does or `limit_s` passed.

    If that is another process than this one, stop it first: it could start more.

    Args:
        spare: processes left alone with all that is below them.

    Returns:
        What was killed: the command's name by process number.
    """
    killed: dict[int, str] = {}
    give_up_at = time.monotonic() + limit_s
    while True:
        found = _below(ancestor, spare)
        alive = [pid for pid, state in found.items() if state not in _ENDED]
        for pid in alive:
            killed.setdefault(pid, _command(pid))
        # Also those that seem to have ended: the first thread of a process may end before the others.
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not alive or time.monotonic() > give_up_at:
            return killed
        time.sleep(_LOOK_EVERY_S)


def own_children() -> frozenset[int]:
    """What runs below this process before a body starts."""
    return frozenset(_children(os.getpid(), _NOBODY)) if _has_children() else _NOBODY


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children(parent: int, spare: frozenset[int]) -> list[int]:
    return [pid for pid, its_parent, _ in _processes() if its_parent == parent and pid not in spare]


def _below(ancestor: int, spare: frozenset[int]) -> dict[int, str]:
    """States of all processes below `ancestor`, by number."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for pid, parent, state in _processes():
        children.setdefault(parent, []).append(pid)
        states[pid] = state
    found: dict[int, str] = {}
    pending = [ancestor]
    while pending:
        below = [pid for pid in children.get(pending.pop(), ()) if pid not in spare]
        pending += below
        found |= {pid: states[pid] for pid in below}
    return found


def _processes() -> list[tuple[int, int, str]]:
    """(process, parent, state) of everything on this machine."""
    if not os.path.isdir("/proc/self"):
        return _processes_by_ps()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{name}/stat", "rb") as file:
                # The command's name, in parentheses, may hold anything.
                state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
                found.append((int(name), int(parent), state.decode()))
    return found


def _processes_by_ps() -> list[tuple[int, int, str]]:
    import subprocess

    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE, text=True) as ps:  # noqa: S607
        listing = ps.communicate()[0]
    rows = [line.split() for line in listing.splitlines()]
    return [(int(pid), int(parent), state[0]) for pid, parent, state in rows if int(pid) != ps.pid]


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", errors="backslashreplace") as file:
            return file.read().strip()
    except OSError:
        return "?"


def _names(processes: dict[int, str]) -> str:
    return ", ".join(f"{pid} ({command})" for pid, command in processes.items())
