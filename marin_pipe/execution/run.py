"""`run`: from steps and a root to a report. The thin shell around the engine: storage, backend, signals."""

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, get_args

from marin_storage import Store, ensure_writable, open_store

from marin_pipe.execution import launch as launches
from marin_pipe.execution.backends.base import Backend, StopReason
from marin_pipe.execution.engine import Engine, EngineSettings
from marin_pipe.execution.errors import ConfigurationError, ExitCode
from marin_pipe.execution.graph import Graph, build_graph
from marin_pipe.execution.guard import require_main_guard
from marin_pipe.execution.handle import SourcePolicy, Step
from marin_pipe.execution.layout import STORE_FILE
from marin_pipe.execution.lease import LeaseTimes
from marin_pipe.execution.machine import Pool, local_capacity
from marin_pipe.execution.records import Provenance
from marin_pipe.execution.report import Reporter, RunReport, StepEvent, StepReport, exit_code
from marin_pipe.execution.scheduler import Scheduler
from marin_pipe.execution.secret import Redactor, refuse_secrets_in_json
from marin_pipe.execution.selection import Selected, Selection, apply_selection
from marin_pipe.execution.view import View
from marin_pipe.execution.waiting import LeaseWatcher

if TYPE_CHECKING:
    # Loaded once something runs: a launch where everything is current does without.
    from marin_pipe.execution.attempt import Attempts
    from marin_pipe.execution.keeper import Keeper

DEFAULT_ROOT = "outputs"
INTERRUPT_GRACE_S = 3.0
"""After Ctrl-C: a step has this long to save its state, so that the launch ends within 5 s."""
PREEMPT_GRACE_S = 25.0
"""After SIGTERM: cloud providers give about 30 s."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How to run. None of it bears identity."""

    backend: Literal["local", "inline"] = "local"
    max_concurrent: int | None = None
    """None: one step per core."""
    source: SourcePolicy = "warn"
    verify: Literal["sizes", "digests"] = "sizes"
    keep_going: bool = True
    no_wait: bool = False
    single_writer: bool = False
    """Accept a store whose conditional writes lie."""
    selection: Selection = Selection()
    times: LeaseTimes = LeaseTimes()

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, ("local", "inline"))
        check_choice("source", self.source, get_args(SourcePolicy))
        check_choice("verify", self.verify, ("sizes", "digests"))
        if self.max_concurrent is not None and self.max_concurrent < 1:
            raise ConfigurationError(f"max_concurrent={self.max_concurrent} must be at least 1")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """ConfigurationError if `value` is none of `choices`."""
    if value not in choices:
        raise ConfigurationError(f"{name}={value!r} must be one of {', '.join(map(repr, choices))}")


@dataclass(frozen=True, kw_only=True)
class ExperimentInfo:
    """What the record of a launch says about the experiment, beside its steps."""

    name: str
    description: str = ""
    config: Any = None


def resolve_root(root: str | os.PathLike[str] | None) -> str:
    """The storage root: as given, else `MARIN_PIPE_ROOT`, else `./outputs`."""
    return os.fspath(root) if root is not None else os.environ.get("MARIN_PIPE_ROOT") or DEFAULT_ROOT


def run(
    steps: Mapping[str, Step[Any]] | Iterable[Step[Any]] | Step[Any],
    *,
    root: str | os.PathLike[str] | None = None,
    backend: Literal["local", "inline"] = "local",
    experiment: ExperimentInfo | None = None,
    on_event: Callable[[StepEvent], None] | None = None,
    settings: RunSettings | None = None,
    **options: Any,
) -> RunReport:
    """Run what is missing of `steps` and report what happened. A failed step does not raise: see `RunReport`.

    Args:
        steps: handles, or a dict of names and handles.
        root: storage root; default `MARIN_PIPE_ROOT`, else `./outputs`.
        backend: "local" (worker processes) or "inline" (this process).
        options: fields of `RunSettings`, such as `max_concurrent=4`.

    Raises:
        GraphError, ConfigurationError, IdentityConflict: before anything runs.
    """
    try:
        settings = replace(settings or RunSettings(backend=backend), **options)
    except TypeError as error:
        raise ConfigurationError(f"run(): {error}", next="see RunSettings for what can be set") from None
    graph = build_graph(steps)
    if settings.backend == "local" and any(node.step.function.module == "__main__" for node in graph.nodes):
        require_main_guard(sys._getframe(1), call="run()")
    return Launcher(graph, settings, root=resolve_root(root), experiment=experiment).run(on_event)


class _CollectedMeanwhile(Exception):
    """Outputs were collected between the launch's look at storage and its record (see `gc.py`)."""


class Launcher:
    """One launch: opens the root, wires the engine and ends everything it started."""

    def __init__(self, graph: Graph, settings: RunSettings, *, root: str, experiment: ExperimentInfo | None = None):
        self._graph = graph
        self._settings = settings
        self._experiment = experiment
        self._store: Store = open_store(root)
        self._pool = Pool(local_capacity())
        self._backend: Backend | None = None
        self._keeper: Keeper | None = None
        self._run_id: str | None = None
        self._facts: Provenance | None = None
        self._collection = b""
        """The last collection on record before the launch looked at storage."""

    def run(self, on_event: Callable[[StepEvent], None] | None = None) -> RunReport:
        started = time.monotonic()
        settings = self._settings
        if self._store.url.startswith("memory:") and settings.backend != "inline":
            raise ConfigurationError(
                f"the root {self._store.url} lives in this process only, and the {settings.backend} backend runs steps "
                "in others",
                next="use the inline backend with memory://, or another root",
            )
        selected = apply_selection(self._graph, settings.selection)
        while True:
            try:
                reports, code = self._look_and_run(selected, on_event)
                break
            except _CollectedMeanwhile:
                # Nothing has run yet; the launch record now keeps what the next look finds.
                continue
        return RunReport(
            run=self._run_id,
            root=self._store.url,
            steps=reports,
            exit_code=code,
            duration_s=time.monotonic() - started,
        )

    def _look_and_run(
        self, selected: Selected, on_event: Callable[[StepEvent], None] | None
    ) -> tuple[tuple[StepReport, ...], ExitCode]:
        settings = self._settings
        self._collection = launches.last_collection(self._store)
        view = View(store=self._store, source_policy=settings.source)
        view.look(self._graph)
        reporter = Reporter(on_event=on_event)
        inline = settings.backend == "inline"
        concurrency = settings.max_concurrent or max(1, int(self._pool.capacity.cpus))
        engine = Engine(
            graph=self._graph,
            selected=selected,
            view=view,
            scheduler=Scheduler(self._pool, max_concurrent=concurrency, in_caller_thread=inline),
            pool=self._pool,
            reporter=reporter,
            settings=EngineSettings(keep_going=settings.keep_going, no_wait=settings.no_wait, verify=settings.verify),
            begin=lambda: self._begin(concurrency),
            watcher=LeaseWatcher(self._store),
        )
        try:
            with _signals(engine, inline=inline):
                engine.run()
        finally:
            if self._backend is not None:
                self._backend.close()
            if self._keeper is not None:
                self._keeper.close()
        reports = tuple(reporter.ends[n.directory] for n in self._graph.nodes if n.directory in reporter.ends)
        return reports, self._exit_code(engine, reports)

    def _exit_code(self, engine: Engine, reports: tuple[StepReport, ...]) -> ExitCode:
        if engine.stopped in ("interrupted", "preempted"):
            return ExitCode.INTERRUPTED if engine.stopped == "interrupted" else ExitCode.LOST
        code = exit_code(reports)
        return ExitCode.BUSY if engine.busy and code is ExitCode.FAILED else code

    def _begin(self, concurrency: int) -> "Attempts":
        """The launch's first write: probe the store, record the launch, start the backend."""
        from marin_pipe.execution.attempt import Attempts, AttemptSettings
        from marin_pipe.execution.keeper import Keeper

        folder = self._store.local_path("")
        is_new = folder is not None and not folder.exists()
        ensure_writable(self._store, STORE_FILE, single_writer=self._settings.single_writer)
        if is_new:
            # In a project under git, outputs would be untracked files by the thousand, all of them read for provenance.
            self._store.write(".gitignore", b"*\n")
        names = {name for node in self._graph.nodes for name in node.step.bound.secrets}
        redactor = Redactor.from_environment(declared=names)
        facts = self._facts = self._facts or self._record_launch(redactor)
        if launches.last_collection(self._store) != self._collection:
            raise _CollectedMeanwhile
        self._backend = _open_backend(self._settings, concurrency)
        self._keeper = Keeper(self._store, self._settings.times)
        return Attempts(
            store=self._store,
            backend=self._backend,
            keeper=self._keeper,
            provenance=facts,
            redactor=redactor,
            settings=AttemptSettings(times=self._settings.times),
        )

    def _record_launch(self, redactor: Redactor) -> Provenance:
        from marin_pipe.execution import provenance

        self._run_id = launches.new_run_id()
        info = self._experiment
        if info is not None:
            refuse_secrets_in_json(info.config, where="the config")
        facts = provenance.collect(
            self._store, run=self._run_id, experiment=info.name if info else None, redactor=redactor
        )
        if info is not None:
            launches.write_launch(
                self._store,
                launches.make_launch(
                    self._graph,
                    run=self._run_id,
                    experiment=info.name,
                    description=info.description,
                    config=info.config,
                    provenance=facts,
                ),
            )
        return facts


def _open_backend(settings: RunSettings, concurrency: int) -> Backend:
    if settings.backend == "inline":
        from marin_pipe.execution.backends.inline import InlineBackend

        return InlineBackend()
    from marin_pipe.execution.backends.local import LocalBackend

    return LocalBackend(max_workers=concurrency)


@contextmanager
def _signals(engine: Engine, *, inline: bool) -> Iterator[None]:
    """Ctrl-C interrupts, and kills the second time; SIGTERM and a closed terminal preempt. Both leave resumable state.

    Handlers only post events.
    """
    if threading.current_thread() is not threading.main_thread():
        # Signals reach the main thread only; whoever runs a launch elsewhere stops it by other means.
        yield
        return

    interrupts = itertools.count()

    def stop(reason: StopReason, grace_s: float, text: str) -> None:
        engine.scheduler.post(lambda: _stop(engine, reason, grace_s, text))
        if inline:
            # The loop sees the event when the body has ended. In a thread, since this one may hold a control's lock.
            threading.Thread(target=engine.stop_bodies, args=(reason,), kwargs={"grace_s": grace_s}).start()

    def preempt(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        stop("preempted", PREEMPT_GRACE_S, f"{name}: running steps have {PREEMPT_GRACE_S:.0f} s to save their state")

    def interrupt(*_: object) -> None:
        if next(interrupts):
            stop("interrupted", 0.0, "Ctrl-C again: running steps are killed")
        else:
            saving = f"Ctrl-C: running steps have {INTERRUPT_GRACE_S:.0f} s to save their state"
            stop("interrupted", INTERRUPT_GRACE_S, f"{saving}; again kills them now")

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {signal.SIGTERM: preempt}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # Under nohup the launch outlives its terminal.
        handlers[signal.SIGHUP] = preempt
    if not inline:
        # Inline bodies run in this thread and get Python's own KeyboardInterrupt.
        handlers[signal.SIGINT] = interrupt
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with _woken_by_signals(engine.scheduler):
            yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _woken_by_signals(scheduler: Scheduler) -> Iterator[None]:
    """Have every signal end the loop's wait.

    Python runs handlers in the main thread only, but the kernel may interrupt any thread with the signal: a main thread
    that waits for a lock then sleeps on. What the interpreter writes to the wake-up descriptor does not depend on that.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    previous = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)

    def listen() -> None:
        while os.read(readable, 64):
            scheduler.post(lambda: None)
        os.close(readable)

    threading.Thread(target=listen, name="signal-wake-up", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(writable)


def _stop(engine: Engine, reason: StopReason, grace_s: float, text: str) -> None:
    engine.reporter.event("stopping", "", "", text)
    engine.stop(reason, grace_s=grace_s)
