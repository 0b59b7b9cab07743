"""Worker processes as the driver sees them: start, feed, stop, kill, and never leave one behind."""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from marin_pipe.execution.backends.base import Completed, Control, Failed, LogSink, StopReason
from marin_pipe.execution.backends.descendants import END_S, kill_descendants
from marin_pipe.execution.backends.pump import Pump
from marin_pipe.execution.backends.transport import Invocation, receive_frame, send_frame
from marin_pipe.execution.backends.worker import READY

logger = logging.getLogger(__name__)

HANG_UP_S = 5.0
"""How long a worker may go on after it closed its channel."""
DESCENDANTS_S = 2.0
"""How long the processes below a worker may take to vanish when it is killed."""

_START = (
    "import sys; argv = sys.argv[3 : 3 + int(sys.argv[2])]; channel, stop = map(int, sys.argv[1].split(',')); "
    "sys.path[:] = sys.argv[3 + len(argv) :]; from marin_pipe.execution.backends.worker import main; "
    "main(channel, stop, argv)"
)
"""`-c` and not `-m`: the worker must import what the driver would, so its path is set before the first import."""

_GUARD = """
groups=
while read -r change group; do
  case $change in
    +) groups="$groups $group" ;;
    -) rest=; for g in $groups; do [ "$g" = "$group" ] || rest="$rest $g"; done; groups=$rest ;;
  esac
done
for g in $groups; do kill -s STOP "$g"; done
for round in 1 2 3 4 5; do
  below=" $groups "
  grown=
  while [ "$below" != "$grown" ]; do
    grown=$below
    for file in /proc/[0-9]*/stat; do
      read -r line 2>/dev/null <"$file" || continue
      set -- ${line##*)}
      case $below in *" $2 "*) pid=${line%% *}; case $below in *" $pid "*) ;; *) below="$below$pid " ;; esac ;; esac
    done
  done
  for pid in $below; do
    case " $groups " in *" $pid "*) ;; *) kill -s KILL "$pid" ;; esac
  done
done
for g in $groups; do kill -s KILL -- "-$g"; done
"""
"""Told of the workers' groups line by line; at the end of the input it kills what lives below them in other groups too.
A worker is the parent of all orphans below it, so while it stands still none can hide; new ones are found by looking
again."""


class Guard:
    """A tiny process that kills the workers' groups when the driver is gone, however it went.

    Its standard input is a pipe that only the driver holds, so the kernel tells it; nothing in a worker has to run for
    that, not even when a body holds the interpreter lock, and grandchildren die too. The parent-death signal would
    reach the workers alone.
    """

    def __init__(self) -> None:
        import subprocess

        self._process = subprocess.Popen(  # noqa: S603  a constant script
            ["/bin/sh", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        self._lock = threading.Lock()

    def add(self, group: int) -> None:
        self._tell(f"+ {group}\n")

    def remove(self, group: int) -> None:
        self._tell(f"- {group}\n")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        # A guard that somebody killed guards nothing; what it would be told is of no use.
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a process ended without being asked. `cpu_s` of all bodies it ran; `ru_maxrss` as the kernel counts it."""

    code: int
    """As in `subprocess`: negative for a signal."""
    cpu_s: float
    ru_maxrss: int
    oom_kills: int
    """Kills by the memory controller of this container while the process lived."""
    started: bool = False
    """Whether it had begun to serve."""


class WorkerProcess:
    """One spawned worker, leader of its own session and process group. One body at a time."""

    def __init__(self, guard: Guard, *, environment: Mapping[str, str] | None = None) -> None:
        import subprocess

        ours, theirs = socket.socketpair()
        stop_read, self._stop_write = os.pipe()
        self._channel = ours
        descriptors = (theirs.fileno(), stop_read)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        argv = sys.argv or [""]
        self.started_s = time.time()
        self._oom_kills = count_oom_kills()
        try:
            self._process = subprocess.Popen(  # noqa: S603  this interpreter and the driver's own paths
                [
                    sys.executable,
                    *flags,
                    "-c",
                    _START,
                    ",".join(map(str, descriptors)),
                    str(len(argv)),
                    *argv,
                    *sys.path,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(stop_read)
        self.pid = self._process.pid
        self._guard = guard
        guard.add(self.pid)
        self._number = 0
        self._ready = False
        # Held while a signal or message is sent, so that the process cannot be reaped, and its number or the pipe's
        # reused, in between.
        self._alive_lock = threading.Lock()
        self._alive = True
        self._death: Death | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._reap, name=f"marin_pipe-reap-{self.pid}", daemon=True).start()

    def run(self, invocation: Invocation, *, pump: Pump, log: LogSink, control: Control) -> Completed | Failed | Death:
        """Run one body to its end. `Death` if the process ended first, killed or by itself."""
        self._number += 1
        read, write = os.pipe()
        stream = pump.attach(read, log)
        stopper = _Stopper(self, self._number)
        try:
            control.on_stop(stopper.stop)
            send_frame(self._channel, invocation, descriptor=write)
            while True:
                reply, _ = receive_frame(self._channel)
                if reply != READY:
                    break
                self._ready = True
        except (EOFError, ConnectionError, BrokenPipeError):
            # Asked here, where all that the worker sent has been read.
            return replace(self._await_death(), started=self._ready)
        finally:
            stopper.cancel()
            os.close(write)
            stream.finish()
        result, soiled = reply
        self.soiled = self.soiled or soiled
        return result  # type: ignore[no-any-return]

    soiled = False
    """The last body left what cannot be undone, or was asked to stop, which may still interrupt what comes after it."""

    @property
    def alive(self) -> bool:
        return self._alive

    def ask_to_stop(self, number: int) -> None:
        """Make `should_stop()` true in body `number` of this process."""
        with self._alive_lock, contextlib.suppress(BrokenPipeError):
            if self._alive:
                self.soiled = True
                os.write(self._stop_write, number.to_bytes(8, "little"))

    def kill(self) -> None:
        """Kill the process and all that lives below it now."""
        with self._alive_lock:
            if self._alive:
                # It stands still while it is the parent of the orphans: nothing new starts, and nothing gets away.
                os.kill(self.pid, signal.SIGSTOP)
                kill_descendants(self.pid, limit_s=DESCENDANTS_S)
                os.killpg(self.pid, signal.SIGKILL)

    def close(self, *, wait_s: float) -> None:
        """Let an idle worker end by itself, within `wait_s`; then kill it."""
        self.hang_up()
        if not self._ended.wait(wait_s):
            self.kill()
            if not self._ended.wait(END_S):
                logger.warning("worker process %d does not end though it was killed: it is left behind", self.pid)
        self._channel.close()

    def hang_up(self) -> None:
        """Tell an idle worker that nothing more comes."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def _await_death(self) -> Death:
        """What became of a worker that hung up. One that closed its channel and goes on is killed."""
        if not self._ended.wait(HANG_UP_S):
            self.kill()
            self._ended.wait(END_S)
        return self._death or Death(code=-signal.SIGKILL, cpu_s=0.0, ru_maxrss=0, oom_kills=0)

    def _reap(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        oom_kills = count_oom_kills() - self._oom_kills
        with self._alive_lock:
            # While the dead leader is not reaped its number is not reused: this reaches its own group or nobody.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._guard.remove(self.pid)
            self._alive = False
            os.close(self._stop_write)
            _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._death = Death(
            code=self._process.returncode,
            cpu_s=usage.ru_utime + usage.ru_stime,
            ru_maxrss=usage.ru_maxrss,
            oom_kills=oom_kills,
        )
        self._ended.set()
        # A forked child may hold the other end: this one is ended here, and what was received stays readable.
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)


class _Stopper:
    """Turns `Control.stop` into a message now and a kill after the grace, while one body runs."""

    def __init__(self, worker: WorkerProcess, number: int) -> None:
        self._worker, self._number = worker, number
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._done = False

    def stop(self, reason: StopReason, grace_s: float) -> None:
        del reason
        with self._lock:
            if self._done:
                return
            self._worker.ask_to_stop(self._number)
            if self._timer is not None:
                self._timer.cancel()
            if grace_s <= 0:
                self._worker.kill()
                return
            self._timer = threading.Timer(grace_s, self._kill)
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """The body ended: a later kill would hit the next one."""
        with self._lock:
            self._done = True
            if self._timer is not None:
                self._timer.cancel()

    def _kill(self) -> None:
        with self._lock:
            if not self._done:
                self._worker.kill()


def count_oom_kills() -> int:
    """Kills by the memory controller in this container so far; 0 where the kernel does not tell."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with contextlib.suppress(OSError), open(path) as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


def machine_memory_bytes() -> int:
    """Memory of this machine, or of this container if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            total = min(total, int(file.read()))
    return total
