"""What a launch tells its caller: events while it runs, and a report at the end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from marin_pipe.execution.errors import ExitCode
from marin_pipe.execution.records import Served

Status = Literal["cached", "built", "adopted", "failed", "blocked", "interrupted", "preempted", "lost", "not run"]
EventKind = Literal[
    "cached", "started", "waiting", "built", "adopted", "retrying", "failed", "stopped", "blocked", "note", "stopping"
]


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """Something happened to a step, or to the launch as a whole ("stopping", with an empty name)."""

    kind: EventKind
    name: str
    directory: str
    text: str = ""
    duration_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a step has no output, with everything a user needs to go on."""

    error_type: str
    message: str
    traceback: str
    log_tail: tuple[str, ...]
    attempt: str
    attempts: int
    log_directory: str
    exit_code: int
    explained: bool = False
    """Whether the message says what to do; else the traceback is what there is to go on."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """The end of one step of a launch."""

    name: str
    directory: str
    status: Status
    why: str = ""
    notes: tuple[str, ...] = ()
    duration_s: float = 0.0
    failure: Failure | None = None
    commit: Served | None = None
    """What it was served from, or made; None if it has no output."""
    path: str | None = None
    """URL of that commit's data directory."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """The end of a launch. `run` is None if everything was current and nothing was written."""

    run: str | None
    root: str
    steps: tuple[StepReport, ...]
    exit_code: ExitCode
    duration_s: float

    @property
    def ok(self) -> bool:
        """Whether every target has its output."""
        return self.exit_code == ExitCode.OK

    def count(self, status: Status) -> int:
        return sum(step.status == status for step in self.steps)


@dataclass(kw_only=True)
class Reporter:
    """Collects the ends of steps and passes events on."""

    on_event: Callable[[StepEvent], None] | None = None
    ends: dict[str, StepReport] = field(default_factory=dict)

    def event(
        self, kind: EventKind, name: str, directory: str, text: str = "", *, duration_s: float | None = None
    ) -> None:
        if self.on_event is not None:
            self.on_event(StepEvent(kind=kind, name=name, directory=directory, text=text, duration_s=duration_s))

    def end(self, report: StepReport) -> None:
        self.ends[report.directory] = report


_GRAVEST_FIRST = (ExitCode.INTERRUPTED, ExitCode.CORRUPT, ExitCode.USAGE, ExitCode.FAILED, ExitCode.LOST)


def exit_code(reports: tuple[StepReport, ...]) -> ExitCode:
    """The launch's exit code: that of its gravest step. A blocked step only repeats what blocked it."""
    codes: set[ExitCode] = set()
    for report in reports:
        if report.status == "interrupted":
            codes.add(ExitCode.INTERRUPTED)
        elif report.status in ("preempted", "lost"):
            codes.add(ExitCode.LOST)
        elif report.status == "failed":
            codes.add(ExitCode(report.failure.exit_code) if report.failure else ExitCode.FAILED)
    if not codes and any(report.status in ("blocked", "not run") for report in reports):
        codes.add(ExitCode.FAILED)
    return next((code for code in _GRAVEST_FIRST if code in codes), ExitCode.OK)
