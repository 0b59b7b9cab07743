"""`LocalBackend`: bodies in worker processes on this machine, kept and reused across steps."""

import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from marin_pipe.execution.backends.base import Completed, Control, Failed, LogSink, Task
from marin_pipe.execution.backends.body import usage_of
from marin_pipe.execution.backends.outcome import WorkerDied, after_stop, failure, no_usage
from marin_pipe.execution.backends.processes import Death, Guard, WorkerProcess, machine_memory_bytes
from marin_pipe.execution.backends.pump import Pump
from marin_pipe.execution.backends.transport import prepare
from marin_pipe.execution.errors import ConfigurationError, ExitCode, GraphError
from marin_pipe.execution.resources import CPU, GPU

logger = logging.getLogger(__name__)

CLOSE_S = 2.0
"""How long idle workers may take to end at `close`."""
BUSY_CLOSE_S = 60.0
"""How long the ends of killed bodies may take: longer than each of the waits that `execute` ends with."""
KILLED_FROM_OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
"""Signals that a person, a machine that shuts down or the memory killer sends. Others are the body's own crashes."""
OWN_PROCESS_CLOSE_S = 30.0
"""A process of a step's own ends before the step does: only then are its accelerators free."""


class LocalBackend:
    """Runs up to `max_workers` bodies at once. Thread-safe.

    Workers start when they are needed and are used again, the last one first. A step with `.environment({...})` or an
    accelerator gets a process of its own.
    """

    in_caller_thread = False

    def __init__(self, *, max_workers: int) -> None:
        if max_workers < 1:
            raise ConfigurationError(f"max_workers={max_workers} must be at least 1")
        _open_standard_streams()
        self.concurrency = max_workers
        self._lock = threading.Condition()
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._guard: Guard | None = None
        self._pump: Pump | None = None
        self._closed = False

    def execute(self, task: Task, *, log: LogSink, control: Control) -> Completed | Failed:
        """Run one body. Never raises for what the body did."""
        if control.stopped is not None:
            return self._stopped_before_start(task, control)
        try:
            invocation = prepare(task)
        except (GraphError, ConfigurationError) as error:
            return failure(error, usage=no_usage(), retryable=False)
        own = process_environment(task)
        worker, pump = self._take(own)
        started_s = time.time()
        try:
            result = worker.run(invocation, pump=pump, log=log, control=control)
        except BaseException:
            # It may still work for this call, and would answer the next one with it.
            worker.kill()
            raise
        finally:
            self._give_back(worker, reuse=own is None)
        if isinstance(result, Death):
            result = _died(result, task, started_s)
        if isinstance(result, Failed):
            return after_stop(result, control, retry_on=task.step.options.retry.on)
        return result

    def close(self) -> None:
        """Stop all processes; running bodies are killed, and their `execute` returns first. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle, busy = self._idle[:], list(self._busy)
            self._idle.clear()
        for worker in busy:
            worker.kill()
        for worker in idle:
            worker.hang_up()
        give_up_at = time.monotonic() + CLOSE_S
        for worker in idle:
            worker.close(wait_s=max(0.0, give_up_at - time.monotonic()))
        with self._lock:
            if not self._lock.wait_for(lambda: not self._busy, timeout=BUSY_CLOSE_S):
                logger.warning("%d worker processes do not end though they were killed", len(self._busy))
        if self._guard is not None:
            self._guard.close()
        if self._pump is not None:
            self._pump.close()

    def _stopped_before_start(self, task: Task, control: Control) -> Failed:
        never_ran = failure(KeyboardInterrupt(), usage=no_usage(), retryable=False)
        return after_stop(never_ran, control, retry_on=task.step.options.retry.on)

    def _take(self, environment: Mapping[str, str] | None) -> tuple[WorkerProcess, Pump]:
        with self._lock:
            if self._closed:
                raise RuntimeError("this backend was closed")
            if self._guard is None:
                self._guard, self._pump = Guard(), Pump()
            assert self._pump is not None
            worker = None
            while environment is None and self._idle and worker is None:
                worker = self._idle.pop()
                if not worker.alive:
                    worker.close(wait_s=0.0)
                    worker = None
            if worker is None:
                worker = WorkerProcess(self._guard, environment=environment)
            self._busy.add(worker)
            return worker, self._pump

    def _give_back(self, worker: WorkerProcess, *, reuse: bool) -> None:
        with self._lock:
            if reuse and not worker.soiled and worker.alive and not self._closed and len(self._idle) < self.concurrency:
                self._idle.append(worker)
                self._busy.discard(worker)
                return
        worker.close(wait_s=0.0 if worker.soiled else CLOSE_S if reuse else OWN_PROCESS_CLOSE_S)
        with self._lock:
            # Only now: `close` waits for this before it ends what the worker's own end needs.
            self._busy.discard(worker)
            self._lock.notify_all()


def _open_standard_streams() -> None:
    """Lead to nowhere those that are closed: a pipe that got such a number would be taken for one of them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)


def process_environment(task: Task) -> dict[str, str] | None:
    """The environment of a process of the step's own; None if any worker will do."""
    options = task.step.options
    if not options.environment and isinstance(task.resources, CPU):
        return None
    environment = dict(os.environ)
    if task.devices:
        name = "CUDA_VISIBLE_DEVICES" if isinstance(task.resources, GPU) else "TPU_VISIBLE_CHIPS"
        environment[name] = ",".join(_device_names(environment.get(name), task.devices))
    environment.update(options.environment)
    return environment


def _device_names(visible: str | None, devices: tuple[int, ...]) -> list[str]:
    """Devices are counted among those that the driver itself may use."""
    if not visible:
        return [str(index) for index in devices]
    names = [name.strip() for name in visible.split(",")]
    if max(devices) >= len(names):
        raise ConfigurationError(
            f"device {max(devices)} was given to a step, but the driver sees {len(names)}: {visible!r}",
            next="start the driver with all devices visible",
        )
    return [names[index] for index in devices]


def _died(death: Death, task: Task, started_s: float) -> Failed:
    """The process of a body ended by itself (or was killed; `after_stop` then tells why)."""
    usage = usage_of(started_s, death.cpu_s, death.ru_maxrss)
    peak = f"peak memory {usage.peak_memory_bytes / 2**20:,.0f} MiB"
    name = task.step.name
    if not death.started:
        error = WorkerDied(
            f"step {name}: its worker process ended before it could serve, {_how(death.code)}",
            why="what it printed is on the terminal: the interpreter or marin_pipe did not start",
            next="run `marin-pipe doctor`",
        )
        return _judged(failure(error, usage=usage, retryable=False), death)
    hint = _memory_hint(death, usage.peak_memory_bytes)
    error = WorkerDied(
        f"step {name}: its process ended {_how(death.code)}, {peak}{hint}",
        why="a body must return or raise; a crash, os._exit or a kill ends it without a result",
        next="see the end of its log; `run --backend inline` runs it in the driver",
    )
    failed = failure(error, usage=usage, retryable=issubclass(WorkerDied, task.step.options.retry.on))
    return _judged(failed, death)


def _judged(failed: Failed, death: Death) -> Failed:
    """A process that somebody killed is lost and may be tried again; one that ends by its own doing would again."""
    if -death.code in KILLED_FROM_OUTSIDE:
        return replace(failed, outcome="lost", exit_code=int(ExitCode.LOST))
    return failed


def _how(code: int) -> str:
    if code >= 0:
        return f"by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"by {name}"


def _memory_hint(death: Death, peak_bytes: int) -> str:
    if death.code != -signal.SIGKILL:
        return ""
    total = machine_memory_bytes()
    if death.oom_kills or peak_bytes > 0.8 * total:
        return f" of {total / 2**20:,.0f} MiB: probably out of memory"
    return ""
