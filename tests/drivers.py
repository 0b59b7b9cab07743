"""Launches in processes of their own, for tests that kill, stop or race them: `python drivers.py COMMAND ROOT ...`.

A launch prints its report as one line of JSON and ends with its exit code.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from faults import Fault, FaultyBackend
from marin_storage import Store, open_store

import marin_pipe
from marin_pipe import Runtime, Step, StepContext, step
from marin_pipe.execution import lease, provenance
from marin_pipe.execution import run as run_module
from marin_pipe.execution.lease import LeaseTimes
from marin_pipe.execution.report import RunReport, StepEvent


@step
def note(index: int, *, side: Runtime[str], pause_s: Runtime[float] = 0.0, ctx: StepContext) -> int:
    """Leaves a line in a file outside for each time it runs."""
    add_line(side, f"{index} {ctx.attempt_key}")
    (ctx.output / "index.txt").write_text(str(index))
    time.sleep(pause_s)
    return index


@step
def add(numbers: list[int], *, side: Runtime[str], ctx: StepContext) -> int:
    """A consumer of `note`s."""
    add_line(side, f"sum {ctx.attempt_key}")
    print(f"adding {len(numbers)} numbers")
    (ctx.output / "sum.txt").write_text(str(sum(numbers)))
    return sum(numbers)


@step
def long(*, side: Runtime[str], manner: Runtime[str], ctx: StepContext) -> str:
    """Takes a minute, unless an earlier attempt left a checkpoint; returns which attempt that was."""
    found = [(work / "checkpoint").read_text() for work in ctx.earlier_work if (work / "checkpoint").exists()]
    add_line(side, f"began {ctx.attempt_key}")
    if found:
        (ctx.output / "result.txt").write_text(found[0])
        return found[0]
    (ctx.work / "checkpoint").write_text(ctx.attempt_key)
    add_line(side, f"ready {ctx.attempt_key}")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if manner == "polite" and ctx.should_stop():
                raise RuntimeError("stopped as asked")
            if manner == "deafened" and ctx.should_stop():
                add_line(side, "told")
                time.sleep(60)
            time.sleep(0.02)
        except KeyboardInterrupt:
            if manner != "stubborn":
                raise
    return "never"


@step
def slow(*, side: Runtime[str], go: Runtime[str], ctx: StepContext) -> int:
    """Waits until the file `go` is there."""
    add_line(side, f"began {ctx.attempt_key}")
    while not os.path.exists(go):
        time.sleep(0.02)
    (ctx.output / "data.txt").write_text(ctx.attempt_key)
    add_line(side, f"ended {ctx.attempt_key}")
    return 1


@step
def pulsing(*, side: Runtime[str], pulse: Runtime[str]) -> int:
    """Never ends by itself, and writes the time to a file as long as it lives."""
    add_line(side, "ready")
    while True:
        Path(pulse).write_text(str(time.monotonic()))
        time.sleep(0.02)


@step
def dying(point: int, *, side: Runtime[str], ctx: StepContext) -> int:
    """Its first attempt kills its own process at a point of its body."""
    first = add_line(side, "began") == 1

    def reach(number: int) -> None:
        if first and number == point:
            os.kill(os.getpid(), signal.SIGKILL)

    reach(0)
    with (ctx.output / "half.txt").open("w") as file:
        file.write("x" * 5000)
        file.flush()
        reach(1)
    ctx.progress(2, "files").update(1)
    reach(2)
    (ctx.work / "checkpoint").write_text("1")
    ctx.metrics.log(1, {"loss": 1.0})
    reach(3)
    (ctx.output / "whole.txt").write_text("y")
    reach(4)
    return point


def add_line(path: str, line: str) -> int:
    """Append a line at once, so that lines of several processes stay whole. Returns how many there are."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
    return len(Path(path).read_text().splitlines())


def two_steps(side: str) -> dict[str, Step[Any]]:
    return {"sum": add([note(0, side=side), note(1, side=side)], side=side)}


def many(side: str, count: int, pause_s: float) -> dict[str, Step[Any]]:
    return {f"note-{index}": note(index, side=side, pause_s=pause_s) for index in range(count)}


def launch(steps: dict[str, Step[Any]], options: argparse.Namespace) -> RunReport:
    return marin_pipe.run(
        steps,
        root=options.root,
        backend=options.backend,
        max_concurrent=options.max_concurrent,
        times=LeaseTimes(ttl_s=options.ttl_s),
        on_event=lambda event: note_event(options, event),
    )


def note_event(options: argparse.Namespace, event: StepEvent) -> None:
    if options.events:
        add_line(options.events, f"{event.kind} {event.name or event.text}")


def summary(report: RunReport) -> dict[str, Any]:
    return {
        "exit_code": int(report.exit_code),
        "duration_s": report.duration_s,
        "steps": {
            end.name if end.name != "note" else end.directory: [
                end.status,
                end.failure.message if end.failure is not None else end.why,
            ]
            for end in report.steps
        },
    }


def killed_at(n: int, fault: Fault) -> Any:
    """`open_store` whose store kills this process at its n-th mutation."""

    def kill() -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a killed process goes on")

    return lambda url: Store(FaultyBackend(open_store(url).backend, {n: fault}, kill=kill))


def in_child(work: Callable[[], int]) -> int:
    """Run `work` in a forked process; its exit code, negative for a signal. This process must have one thread."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def sweep(options: argparse.Namespace) -> int:
    """Kill a launch at its n-th mutation, then launch again; for n = first, first + stride, ... until none is killed.

    Each launch is forked from this process, which has imported everything: most of a launch's time.
    """
    provenance.git_state = no_git_state
    base, n = options.root, options.first
    while True:
        options.root = f"{base}/{n}"
        side = f"{base}/{n}.side"
        os.makedirs(options.root)

        def doomed(number: int = n, side: str = side) -> int:
            run_module.open_store = killed_at(number, Fault(options.fault))
            return int(launch(two_steps(side), options).exit_code)

        first = in_child(doomed)
        print(json.dumps({"n": n, "first": first, "root": options.root, "side": side}))
        in_child(lambda side=side: tell(launch(two_steps(side), options)))  # type: ignore[misc]
        if first == 0:
            return 0
        n += options.stride


def no_git_state(directory: Path) -> tuple[str | None, str | None]:
    """Git's four processes would be most of a launch's time."""
    del directory
    return None, None


def tell(report: RunReport) -> int:
    print(json.dumps(summary(report)))
    return int(report.exit_code)


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.002)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["sweep", "two", "many", "long", "slow", "dying"])
    parser.add_argument("root")
    parser.add_argument("--side", default="")
    parser.add_argument("--backend", default="local")
    parser.add_argument("--max-concurrent", type=int, default=2)
    parser.add_argument("--ttl-s", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--pause-s", type=float, default=0.0)
    parser.add_argument("--manner", default="polite")
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--fault", default=Fault.KILLED_AFTER.value)
    parser.add_argument("--ready", help="a file that tells that everything is imported")
    parser.add_argument("--go", help="a file to wait for")
    parser.add_argument("--host", help="the host to name in leases")
    parser.add_argument("--events", help="a file for the launch's events, one a line")
    parser.add_argument("--clock-off-s", type=float, default=0.0, help="how wrong this process's clock is")
    options = parser.parse_args()
    if options.clock_off_s:
        right = time.time
        time.time = lambda: right() + options.clock_off_s
    if options.host:
        me = lease.this_process()
        lease.this_process = lambda: lease.Process(
            host=options.host, boot_id="elsewhere", pid_namespace=me.pid_namespace, pid=me.pid, pid_start=me.pid_start
        )
    if options.command == "sweep":
        return sweep(options)
    steps: dict[str, Step[Any]] = {}
    if options.command == "two":
        steps = two_steps(options.side)
    elif options.command == "many":
        steps = many(options.side, options.count, options.pause_s)
    elif options.command == "long":
        steps = {"long": long(side=options.side, manner=options.manner)}
    elif options.command == "slow":
        steps = {"slow": slow(side=options.side, go=options.go)}
    elif options.command == "dying":
        steps = {
            f"dying-{point}": dying(point, side=f"{options.side}-{point}")
            .named(f"dying-{point}")
            .retry(times=options.retries)
            for point in range(options.count)
        }
    if options.ready:
        Path(options.ready).touch()
    if options.command == "many" and options.go:
        wait_for(options.go)
    return tell(launch(steps, options))


if __name__ == "__main__":
    sys.exit(main())
