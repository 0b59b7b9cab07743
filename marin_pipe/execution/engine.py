"""Drives a launch: settles which steps are current, submits the others when their inputs are, and follows the results.

All methods run in the scheduler's loop thread unless they say otherwise.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal

from marin_pipe.execution import decide
from marin_pipe.execution.backends.base import Control, StopReason
from marin_pipe.execution.decide import Stale
from marin_pipe.execution.errors import PipelineError, RecordError
from marin_pipe.execution.graph import Graph, Node
from marin_pipe.execution.jobs import Committed, Job, Occupied, Result, Superseded, Unfinished
from marin_pipe.execution.layout import attempt_directory
from marin_pipe.execution.lease import Watch
from marin_pipe.execution.machine import Grant, Pool
from marin_pipe.execution.observe import Observation
from marin_pipe.execution.outlook import foresee
from marin_pipe.execution.reasons import Reasons
from marin_pipe.execution.report import EventKind, Failure, Reporter, Status, StepReport
from marin_pipe.execution.resources import Resource
from marin_pipe.execution.scheduler import Scheduler, Work
from marin_pipe.execution.selection import Selected
from marin_pipe.execution.view import View
from marin_pipe.execution.waiting import LeaseWatcher

if TYPE_CHECKING:
    # A launch where everything is current loads none of what makes attempts.
    from marin_pipe.execution.attempt import Attempts


class State(Enum):
    IDLE = auto()
    """Not asked for (yet)."""
    WAITING = auto()
    """Some input is not settled."""
    SUBMITTED = auto()
    DONE = auto()
    FAILED = auto()
    BLOCKED = auto()


_OVER = (State.DONE, State.FAILED, State.BLOCKED)


@dataclass(slots=True, eq=False)
class _Progress:
    """Where the launch is with one node."""

    state: State = State.IDLE
    unsettled: int = 0
    """Inputs it waits for."""
    why: str = ""
    seen: Observation | None = None
    """What was observed when the launch decided to run it."""
    watch: Watch | None = None


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    keep_going: bool = True
    no_wait: bool = False
    verify: Literal["sizes", "digests"] = "sizes"


@dataclass(kw_only=True)
class Engine:
    """One launch over one graph."""

    graph: Graph
    selected: Selected
    view: View
    scheduler: Scheduler
    pool: Pool
    reporter: Reporter
    settings: EngineSettings
    begin: "Callable[[], Attempts]"
    """Called once, before the first step that must run: the launch's first write happens in it."""
    watcher: LeaseWatcher
    busy: list[str] = field(default_factory=list)
    """With `no_wait`: steps of another live owner."""
    _attempts: "Attempts | None" = None
    _progress: dict[Node, _Progress] = field(default_factory=dict)
    _agenda: deque[Node] = field(default_factory=deque)
    _controls: dict[Node, Control] = field(default_factory=dict)
    _twins: dict[str, Node] = field(default_factory=dict)
    """First node of each key: a second name for one computation waits for it and adopts."""
    _followers: dict[Node, list[Node]] = field(default_factory=dict)
    stopped: StopReason | None = None
    """Why the launch was stopped before its end, if it was."""

    def __post_init__(self) -> None:
        self._reasons = Reasons(view=self.view)
        self._targets = frozenset(self.selected.targets)

    def run(self) -> None:
        """Bring every target to an end."""
        self._progress = {node: _Progress() for node in self.graph.nodes}
        demanded = self._demanded()
        self._check(demanded)
        for node in self.graph.nodes:
            if node in demanded:
                self._progress[node].state = State.WAITING
                self._agenda.append(node)
        self._work_off()
        self.scheduler.loop()
        self._report_rest(demanded)

    def stop(self, reason: StopReason, *, grace_s: float) -> None:
        """Start nothing more and stop what runs. Safe from signal handlers through `scheduler.post`."""
        self.stopped = self.stopped or reason
        self.scheduler.drain()
        self.watcher.close()
        self.stop_bodies(reason, grace_s=grace_s)

    def stop_bodies(self, reason: StopReason, *, grace_s: float) -> None:
        """Ask what runs to stop. From any thread."""
        for control in list(self._controls.values()):
            control.stop(reason, grace_s=grace_s)

    def _demanded(self) -> set[Node]:
        """Targets, and the inputs that decide about what is demanded.

        An input without a commit is demanded only by a consumer that certainly runs. Where a commit has such an input,
        all that is known to be stale is looked for first: what it makes rebuild decides about others too.
        """
        demanded = set(self.selected.targets)
        for node in reversed(self.graph.nodes):
            if node not in demanded or node.step.options.pin is not None:
                continue
            runs = self._must_run(node)
            if runs and (node not in self.selected.allowed or self._damage(node) is not None):
                continue
            present = [i for i in node.inputs if runs or self.view.commit(i) is not None]
            if len(present) < len(node.inputs):
                outlooks = foresee(self.graph, self.view, self.selected)
                return {found for found, outlook in outlooks.items() if outlook.needed_if is None}
            demanded.update(present)
        return demanded

    def _check(self, demanded: set[Node]) -> None:
        """Refuse, before anything runs, what is known to be impossible.

        Raises:
            ConfigurationError: a step that certainly runs asks for what this machine does not have.
            IdentityConflict: an output that would be served was made by another function.
        """
        for node in self.graph.nodes:
            if node not in demanded or node.step.options.pin is not None:
                continue
            if not self._must_run(node):
                self.view.check_function(node)
            elif node in self.selected.allowed:
                self.pool.choose(node.step.options.resources, step=node.name)

    def _must_run(self, node: Node) -> bool:
        return self.view.commit(node) is None or (node in self.selected.forced and not self._forced_done(node))

    def _damage(self, node: Node) -> RecordError | None:
        """Why the node's output can neither be served nor, without --force, replaced."""
        return None if node in self.selected.forced else self.view.damage(node)

    def _forced_done(self, node: Node) -> bool:
        """Whether a commit newer than the one seen at launch exists."""
        seen = self._progress[node].seen if self._progress else None
        return seen is not None and self.view.observations[node].highest > seen.highest

    def _work_off(self) -> None:
        while self._agenda:
            node = self._agenda.popleft()
            progress = self._progress[node]
            if progress.state is not State.WAITING:
                continue
            try:
                ask = self._advance(node, progress)
            except PipelineError as error:
                self._fail_before_start(node, error)
                continue
            if ask is not None:
                self._submit(node, progress, ask)

    def _advance(self, node: Node, progress: _Progress) -> Resource | None:
        """Serve the node, make it wait for the inputs that decide about it, or return what it needs to run with."""
        if node.step.options.pin is not None:
            verdict = self.view.assess(node, ())
            assert not isinstance(verdict, Stale)
            self._serve(node, verdict.notes)
            return None
        must_run = self._must_run(node)
        damage = self._damage(node)
        if damage is not None:
            raise damage
        if must_run:
            progress.why = "forced" if self.view.commit(node) is not None else self._reasons.missing(node)
        else:
            deciding = [i for i in node.inputs if self._decides(i)]
            if self._waits(node, progress, deciding):
                return None
            verdict = self.view.assess(node, deciding)
            if not isinstance(verdict, Stale):
                self._serve(node, verdict.notes)
                return None
            progress.why = verdict.why
        if node not in self.selected.allowed:
            self._block(node, f"not selected to run ({progress.why})")
            return None
        if self._waits(node, progress, list(node.inputs)) or self._waits_for_twin(node, progress):
            return None
        return self.pool.choose(node.step.options.resources, step=node.name)

    def _waits_for_twin(self, node: Node, progress: _Progress) -> bool:
        """One computation under two names: the second adopts what the first makes."""
        first = self._twins.setdefault(node.step.key, node)
        state = self._progress[first].state
        if first is node or state is State.DONE:
            return False
        if state in _OVER:
            self._block(node, f"because of {first.shown}, the same computation: {self._progress[first].why}")
        else:
            progress.unsettled = 1
            self._followers.setdefault(first, []).append(node)
        return True

    def _decides(self, upstream: Node) -> bool:
        """Whether a commit can only be judged once this input is settled; one that stays missing says nothing."""
        if self.view.commit(upstream) is not None:
            return True
        return self._progress[upstream].state in (State.WAITING, State.SUBMITTED)

    def _waits(self, node: Node, progress: _Progress, inputs: list[Node]) -> bool:
        """Whether `node` cannot go on for some input; demands what nobody has demanded, blocks on what failed."""
        pending = []
        for upstream in inputs:
            state = self._progress[upstream].state
            if state is State.DONE:
                continue
            if state in (State.FAILED, State.BLOCKED):
                why = self._progress[upstream].why
                # An input that is blocked by another repeats why: the cause is told, not the way it came.
                repeated = state is State.BLOCKED and why.startswith("because of ")
                self._block(node, why if repeated else f"because of {upstream.shown}: {why}")
                return True
            pending.append(upstream)
        if not pending:
            return False
        progress.unsettled = len(pending)
        self._demand([i for i in pending if self._progress[i].state is State.IDLE])
        return True

    def _demand(self, nodes: list[Node]) -> None:
        stack = nodes
        while stack:
            node = stack.pop()
            if self._progress[node].state is State.IDLE:
                self._progress[node].state = State.WAITING
                self._agenda.append(node)

    def _serve(self, node: Node, notes: tuple[str, ...]) -> None:
        if node in self._targets:
            # What is asked for is looked at; what others read is checked by whoever reads it.
            self.view.check_files(node)
        for note in notes:
            self.reporter.event("note", node.name, node.directory, note)
        self.reporter.event("cached", node.name, node.directory)
        self._end(node, State.DONE, "cached", notes=notes)

    def _block(self, node: Node, why: str) -> None:
        self.reporter.event("blocked", node.name, node.directory, why)
        self._end(node, State.BLOCKED, "blocked", why=why)

    def _fail_before_start(self, node: Node, error: PipelineError) -> None:
        failure = Failure(
            error_type=type(error).__name__,
            message=str(error),
            traceback="",
            log_tail=(),
            attempt="",
            attempts=0,
            log_directory="",
            exit_code=int(error.exit_code),
        )
        self.reporter.event("failed", node.name, node.directory, str(error))
        self._end(node, State.FAILED, "failed", why=error.what, failure=failure)

    def _end(
        self,
        node: Node,
        state: State,
        status: Status,
        *,
        why: str = "",
        notes: tuple[str, ...] = (),
        duration_s: float = 0.0,
        failure: Failure | None = None,
    ) -> None:
        progress = self._progress[node]
        progress.state = state
        progress.why = why or progress.why
        served = self.view.commit(node) if state is State.DONE else None
        self.reporter.end(
            StepReport(
                name=node.name,
                directory=node.directory,
                status=status,
                why=progress.why,
                notes=notes,
                duration_s=duration_s,
                failure=failure,
                commit=served,
                path=self.view.data_url(node) if served is not None else None,
            )
        )
        for consumer in (*node.consumers, *self._followers.pop(node, ())):
            waiting = self._progress[consumer]
            if waiting.state is State.WAITING and waiting.unsettled:
                waiting.unsettled -= 1
                if not waiting.unsettled:
                    self._agenda.append(consumer)

    def _submit(self, node: Node, progress: _Progress, ask: Resource) -> None:
        if self.stopped is not None:
            return
        if self._attempts is None:
            self._attempts = self.begin()
        attempts = self._attempts
        if progress.seen is None:
            progress.seen = self.view.observations[node]
        progress.state = State.SUBMITTED
        control = Control()
        self._controls[node] = control

        def work(grant: Grant) -> Result:
            return attempts.run(self._job(node, grant, expired), control, tell)

        def tell(kind: EventKind, text: str) -> None:
            self.reporter.event(kind, node.name, node.directory, progress.why if kind == "started" else text)

        expired = progress.watch.dead_version if progress.watch is not None else None
        self.scheduler.submit(
            Work(
                priority=node.height,
                ask=ask,
                run=work,
                done=lambda result: self._finished(node, result),
            )
        )

    def _job(self, node: Node, grant: Grant, expired: str | None) -> Job:
        """Runs in a scheduler thread; reads only what is settled."""
        own = self.view.own_arguments(node)
        source = self.view.source(node)
        return Job(
            step=node.step,
            directory=node.directory,
            seen=self.view.observations[node],
            inputs=self.view.input_uses(node),
            loaded={upstream.directory: self.view.loaded_input(upstream) for upstream in node.inputs},
            build_key=decide.build_key(node.step, own, source_digest=source.digest),
            seed=decide.seed(node.step, own),
            source=source,
            resource=grant.ask,
            devices=grant.devices,
            policy=self.view.policy(node),
            may_adopt=self._may_adopt(node),
            fresh=node in self.selected.forced,
            verify=self.settings.verify,
            expired_lease=expired,
        )

    def _may_adopt(self, node: Node) -> bool:
        """A forced step must be computed by this launch; under another name of the same computation will do."""
        if node not in self.selected.forced:
            return self.view.may_adopt(node)
        first = self._twins[node.step.key]
        return first is not node and self.reporter.ends[first.directory].status == "built"

    def _finished(self, node: Node, result: Result) -> None:
        self._controls.pop(node, None)
        progress = self._progress[node]
        if isinstance(result, Committed):
            self.view.observations[node] = result.observation
            self._committed(node, result)
        elif isinstance(result, Superseded):
            # Another driver committed: theirs is judged like any other commit.
            self.view.observations[node] = result.observation
            progress.state = State.WAITING
            self._agenda.append(node)
        elif isinstance(result, Occupied):
            self._occupied(node, progress, result)
        else:
            self._unfinished(node, result)
        self._work_off()

    def _committed(self, node: Node, result: Committed) -> None:
        commit = result.observation.commit
        assert commit is not None
        if commit.kind == "adopted":
            self.reporter.event("adopted", node.name, node.directory, commit.source_directory)
            self._end(node, State.DONE, "adopted", why=f"adopted from {commit.source_directory}: {commit.reason}")
            return
        usage = commit.record.usage
        duration_s = usage.duration_s if usage else 0.0
        self.reporter.event("built", node.name, node.directory, duration_s=duration_s)
        self._end(node, State.DONE, "built", duration_s=duration_s)

    def _occupied(self, node: Node, progress: _Progress, result: Occupied) -> None:
        lease = result.taken.lease
        owner = lease.holder
        if self.settings.no_wait:
            self.busy.append(node.name)
            self._block(node, f"{owner} works on it (--no-wait)")
            return
        if self.stopped is not None:
            progress.state = State.WAITING
            return
        if progress.watch is None:
            progress.watch = Watch()
            self.reporter.event("waiting", node.name, node.directory, f"{owner} works on it")
        progress.state = State.SUBMITTED
        arrived = self.scheduler.expect()

        def again() -> None:
            progress.state = State.WAITING
            self._agenda.append(node)
            self._work_off()

        self.watcher.watch(node.directory, progress.watch, result.taken, lambda: arrived(again))

    def _unfinished(self, node: Node, result: Unfinished) -> None:
        failure = result.failure
        report = Failure(
            error_type=failure.error_type,
            message=failure.message,
            traceback=failure.traceback,
            log_tail=result.log_tail,
            attempt=result.attempt or "",
            attempts=result.attempts,
            log_directory=f"{attempt_directory(node.directory, result.attempt)}/log" if result.attempt else "",
            exit_code=failure.exit_code,
            explained=failure.explained,
        )
        first_line = f": {failure.message.splitlines()[0]}" if failure.message.strip() else ""
        why = f"{failure.error_type}{first_line}"
        self.reporter.event("failed" if failure.outcome == "failed" else "stopped", node.name, node.directory, why)
        self._end(node, State.FAILED, failure.outcome, why=why, failure=report)
        if failure.outcome == "interrupted" and self.stopped is None and self.scheduler.in_caller_thread:
            self.stop("interrupted", grace_s=0.0)
        elif not self.settings.keep_going:
            self.scheduler.drain()
            self.watcher.close()
            self.stopped = self.stopped or "cancelled"

    def _report_rest(self, demanded: set[Node]) -> None:
        """Steps that were asked for but never came to an end, because the launch was stopped."""
        for node in self.graph.nodes:
            state = self._progress[node].state
            if state not in _OVER and (state is not State.IDLE or node in demanded):
                self.reporter.end(StepReport(name=node.name, directory=node.directory, status="not run"))
