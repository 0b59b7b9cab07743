"""What a backend must do: run one step's body somewhere, and stop it when told. It knows no leases and no commits."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from marin_pipe.execution.handle import Step
from marin_pipe.execution.records import FileEntry, Usage
from marin_pipe.execution.resources import Resource

StopReason = Literal["cancelled", "interrupted", "preempted", "lost", "timeout"]


@dataclass(frozen=True, kw_only=True)
class LoadedInput:
    """One upstream output a body reads: enough to verify its files and to rebuild the typed result in the worker."""

    directory: str
    """Step directory (or pinned URL): the name the placeholders in the arguments refer to."""
    data_url: str
    """URL of the committed data directory."""
    result: Any
    """JSON of the result."""
    annotation: Any
    """The upstream function's return annotation, to validate `result` with."""
    manifest: tuple[FileEntry, ...]
    rebuild: str
    """What to do if it is damaged, for error messages: "rebuild it with `...`"."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One try at one step's body."""

    step: Step[Any]
    root: str
    directory: str
    attempt: str
    earlier_work: tuple[str, ...]
    """Work directories of earlier attempts relative to the root, newest first."""
    inputs: Mapping[str, LoadedInput]
    """By step directory."""
    resources: Resource
    devices: tuple[int, ...] = ()
    """Indices of the local accelerators this body may use."""
    seed: int = 0
    work_mark: bytes = b""
    """Stored before the body's first use of `ctx.work`: see `resume.py`."""
    source_files: Mapping[str, str] = field(default_factory=dict)
    """Absolute file name -> sha256 of the first-party files the driver fingerprinted."""
    verify: Literal["sizes", "digests"] = "sizes"


@dataclass(frozen=True, kw_only=True)
class Completed:
    """The body returned, its result fits the annotation, and its data is durable and digested."""

    result: Any
    """JSON of the result."""
    result_type: str | None
    manifest: tuple[FileEntry, ...]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The body raised, or its process died."""

    outcome: Literal["failed", "interrupted", "preempted", "lost"]
    error_type: str
    message: str
    traceback: str
    """User frames first."""
    retryable: bool
    """Whether the step's `.retry(on=...)` covers it; never for argument, import, source or corruption errors."""
    exit_code: int
    usage: Usage
    log_tail: tuple[str, ...] = ()
    explained: bool = False
    """Whether the message says what happened, why and what to do, so that nobody needs the traceback at first."""


class Control:
    """How the engine stops a running body. Thread-safe; one per attempt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[StopReason, float], None]] = []
        self.stopped: tuple[StopReason, float] | None = None

    def stop(self, reason: StopReason, *, grace_s: float) -> None:
        """Ask the body to stop (`ctx.should_stop()`), and kill its process group after `grace_s`. First call wins,
        but a later call may shorten the grace."""
        with self._lock:
            if self.stopped is not None and grace_s >= self.stopped[1]:
                return
            reason = reason if self.stopped is None else self.stopped[0]
            self.stopped = (reason, grace_s)
            listeners = list(self._listeners)
        for listener in listeners:
            listener(reason, grace_s)

    def on_stop(self, listener: Callable[[StopReason, float], None]) -> None:
        """Call `listener` when `stop` is called, or at once if it was."""
        with self._lock:
            self._listeners.append(listener)
            stopped = self.stopped
        if stopped is not None:
            listener(*stopped)


class LogSink(Protocol):
    """Takes what a body prints, as bytes, in order."""

    def write(self, data: bytes) -> None: ...


class Backend(Protocol):
    """Runs bodies. `execute` blocks until the body ended one way or another and never raises for what the body did."""

    concurrency: int
    """Bodies this backend can run at once on this machine."""
    in_caller_thread: bool
    """True: bodies run in the thread that calls `execute`, which must then be the driver's main thread (inline)."""

    def execute(self, task: Task, *, log: LogSink, control: Control) -> Completed | Failed: ...

    def close(self) -> None:
        """Stop all processes. Idempotent."""
        ...
