"""What a run would do and why. Reads storage, writes nothing."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from marin_storage import Store, open_store

from marin_pipe.execution import decide
from marin_pipe.execution.attempt import find_build
from marin_pipe.execution.difference import Change
from marin_pipe.execution.errors import ExitCode
from marin_pipe.execution.graph import Graph, Node, build_graph
from marin_pipe.execution.handle import SourcePolicy, Step
from marin_pipe.execution.history import Earlier, History
from marin_pipe.execution.lease import owner_is_dead
from marin_pipe.execution.observe import list_attempts, list_work, read_ended, read_lease
from marin_pipe.execution.pin import join_url
from marin_pipe.execution.selection import Selected, Selection, apply_selection
from marin_pipe.execution.view import View

Action = Literal["cached", "run", "resume", "wait", "adopt", "blocked"]


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """One row of a plan."""

    name: str
    directory: str
    action: Action
    why: str
    notes: tuple[str, ...] = ()
    expected_s: float | None = None
    """Duration of the last build of that function, if one is on record."""
    path: str
    """The committed data directory of a cached step, else the step directory."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Rows in the order in which the steps would run."""

    root: str
    steps: tuple[PlannedStep, ...]

    @property
    def up_to_date(self) -> bool:
        return all(step.action == "cached" for step in self.steps)

    @property
    def exit_code(self) -> ExitCode:
        """0 if nothing would run, else 3 (out of date)."""
        return ExitCode.OK if self.up_to_date else ExitCode.OUT_OF_DATE


def plan(
    steps: Mapping[str, Step[Any]] | Iterable[Step[Any]] | Step[Any],
    *,
    root: str | os.PathLike[str] | None = None,
    source: SourcePolicy = "warn",
    selection: Selection | None = None,
) -> Plan:
    """Say what `run` would do with the same arguments, and why.

    Raises:
        GraphError, ConfigurationError, IdentityConflict: as `run` would.
    """
    from marin_pipe.execution.run import resolve_root

    graph = build_graph(steps)
    store = open_store(resolve_root(root))
    view = View(store=store, source_policy=source)
    view.look(graph)
    return Planner(graph=graph, view=view, selected=apply_selection(graph, selection or Selection())).plan()


@dataclass(kw_only=True)
class Planner:
    """Settles nodes as the engine does, except that a step that would run has unknown bytes."""

    graph: Graph
    view: View
    selected: Selected
    _rows: dict[Node, PlannedStep] = field(default_factory=dict)
    _history: History | None = None

    def plan(self) -> Plan:
        needed = self._needed()
        for node in self.graph.nodes:
            if node in needed:
                self._rows[node] = self._row(node)
        rows = tuple(self._rows[node] for node in self.graph.nodes if node in needed)
        return Plan(root=self.view.store.url, steps=rows)

    @property
    def _store(self) -> Store:
        return self.view.store

    def _needed(self) -> set[Node]:
        """Targets, the inputs that decide about them, and every input of what would certainly run."""
        needed = set(self.selected.targets)
        for node in reversed(self.graph.nodes):
            if node in needed and node.step.options.pin is None:
                runs = self.view.commit(node) is None or node in self.selected.forced
                needed.update(i for i in node.inputs if runs or self.view.commit(i) is not None)
        # What turns out stale needs its missing inputs too.
        for node in self.graph.nodes:
            if node in needed and self.view.commit(node) is not None and self._is_stale(node):
                stack = [i for i in node.inputs if i not in needed]
                while stack:
                    missing = stack.pop()
                    needed.add(missing)
                    stack.extend(i for i in missing.inputs if i not in needed)
        return needed

    def _is_stale(self, node: Node) -> bool:
        return isinstance(self.view.assess(node, [i for i in node.inputs if self.view.commit(i)]), decide.Stale)

    def _row(self, node: Node) -> PlannedStep:
        rows = {i: self._rows[i] for i in node.inputs if i in self._rows}
        blocked = [i for i, row in rows.items() if row.action == "blocked"]
        moving = [i for i, row in rows.items() if row.action not in ("cached", "blocked")]
        if node.step.options.pin is not None:
            verdict = self.view.assess(node, ())
            assert isinstance(verdict, decide.Current)
            return self._make(node, "cached", "", notes=verdict.notes, path=self.view.data_url(node))
        has_commit = self.view.commit(node) is not None
        forced = node in self.selected.forced
        if has_commit and not forced and not moving and not blocked:
            verdict = self.view.assess(node, [i for i in node.inputs if self.view.commit(i) is not None])
            if isinstance(verdict, decide.Current):
                return self._make(node, "cached", "", notes=verdict.notes, path=self.view.data_url(node))
            why = verdict.why
        elif has_commit and forced:
            why = "forced"
        elif blocked:
            return self._make(node, "blocked", f"because of {blocked[0].name}")
        elif has_commit:
            why = f"because of {_names(moving)} (served if its output comes out equal)"
        else:
            why = self._why_missing(node, moving)
        if node not in self.selected.allowed:
            return self._make(node, "blocked", f"not selected to run ({why})")
        return self._pending(node, why, settled=not moving)

    def _pending(self, node: Node, why: str, *, settled: bool) -> PlannedStep:
        """A step that would not be served: somebody runs it, it can be adopted or resumed, or it runs."""
        seen = self.view.observations[node]
        if seen.has_lease:
            present = read_lease(self._store, node.directory)
            if present is not None and present[0].owner is not None and not owner_is_dead(present[0]):
                lease = present[0]
                return self._make(node, "wait", f"{lease.host}, pid {lease.pid} works on it")
        if settled and node not in self.selected.forced:
            digests = {i.step.key: c.output_digest for i in node.inputs if (c := self.view.commit(i)) is not None}
            key = decide.build_key(node.step, digests=digests, source_digest=self.view.source(node).digest)
            found = find_build(self._store, key)
            if found is not None:
                return self._make(node, "adopt", f"{why}; the same was built as {found[0]}")
        if seen.has_work:
            names = list_work(self._store, node.directory)
            if names and seen.commit is None:
                return self._make(node, "resume", self._last_end(node) or f"attempt {names[-1]} left work")
        if seen.has_attempts and seen.commit is None:
            why = self._last_end(node) or why
        return self._make(node, "run", why)

    def _last_end(self, node: Node) -> str | None:
        attempts = list_attempts(self._store, node.directory)
        if not attempts:
            return None
        ended = read_ended(self._store, node.directory, attempts[-1])
        if ended is None:
            return f"attempt {attempts[-1]} was lost before it could say why"
        message = f": {ended.message.splitlines()[0][:80]}" if ended.message.strip() else ""
        return f"attempt {ended.attempt} {ended.outcome}: {ended.error_type}{message}"

    def _why_missing(self, node: Node, moving: list[Node]) -> str:
        """Root causes are told once, where they are: a step that is new only through its inputs points to them."""
        verdict = self.view.assess(node, ())
        if isinstance(verdict, decide.Stale) and verdict.cause == "withdrawn":
            return verdict.why
        if self._history is None:
            self._history = History(store=self._store)
        earlier = self._history.nearest(node.step)
        own = own_changes(earlier)
        if own:
            assert earlier is not None
            return f"{_changes(own)} (against {earlier.directory})"
        if earlier is not None and moving:
            return f"because of {_names(moving)}"
        return f"no output yet{f'; needs {_names(moving)}' if moving else ''}"

    def _make(
        self, node: Node, action: Action, why: str, *, notes: tuple[str, ...] = (), path: str | None = None
    ) -> PlannedStep:
        return PlannedStep(
            name=node.name,
            directory=node.directory,
            action=action,
            why=why,
            notes=notes,
            expected_s=self._expected_s(node, action),
            path=path or join_url(self._store.url, node.directory),
        )

    def _expected_s(self, node: Node, action: Action) -> float | None:
        """From the step's own commit, or the nearest earlier output's; nothing is read for this alone."""
        commit = self.view.commit(node)
        if commit is None and self._history is not None and action in ("run", "resume"):
            earlier = self._history.nearest(node.step)
            commit = earlier.commit if earlier is not None else None
        usage = commit.record.usage if commit is not None else None
        return usage.duration_s if usage is not None else None


def own_changes(earlier: Earlier | None) -> tuple[Change, ...]:
    """The changes that are a step's own: not those of the keys of its inputs."""
    if earlier is None:
        return ()
    return tuple(change for change in earlier.changes if not change.is_input)


def _changes(changes: tuple[Change, ...]) -> str:
    return "; ".join(str(change) for change in changes[:3]) + (
        f"; and {len(changes) - 3} more" if len(changes) > 3 else ""
    )


def _names(nodes: list[Node]) -> str:
    names = sorted({node.name for node in nodes})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
