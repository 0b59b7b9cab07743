"""What a run would do and why. Reads storage, writes nothing."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from marin_storage import Store, open_store

from marin_pipe.execution import decide
from marin_pipe.execution.commit import find_build
from marin_pipe.execution.decide import Current, Stale
from marin_pipe.execution.errors import CorruptOutput, ExitCode
from marin_pipe.execution.graph import Graph, Node, build_graph
from marin_pipe.execution.handle import SourcePolicy, Step
from marin_pipe.execution.layout import join_url
from marin_pipe.execution.lease import owner_is_dead
from marin_pipe.execution.observe import list_work, read_lease
from marin_pipe.execution.outlook import Fate, Outlook, foresee
from marin_pipe.execution.reasons import Reasons, names
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
    from marin_pipe.execution.run import check_choice, resolve_root

    check_choice("source", source, get_args(SourcePolicy))
    graph = build_graph(steps)
    store = open_store(resolve_root(root))
    view = View(store=store, source_policy=source)
    view.look(graph)
    return Planner(graph=graph, view=view, selected=apply_selection(graph, selection or Selection())).plan()


@dataclass(kw_only=True)
class Planner:
    """Tells the outlook of each step as an action and a reason."""

    graph: Graph
    view: View
    selected: Selected
    _rows: dict[Node, PlannedStep] = field(default_factory=dict)
    _first_of_key: dict[str, Node] = field(default_factory=dict)
    _adopted: dict[Node, str] = field(default_factory=dict)
    """Output digests that steps will have by adoption: what depends on them can be judged already."""

    def __post_init__(self) -> None:
        self._reasons = Reasons(view=self.view)

    def plan(self) -> Plan:
        for node, outlook in foresee(self.graph, self.view, self.selected).items():
            self._rows[node] = self._row(node, outlook)
        return Plan(root=self.view.store.url, steps=tuple(self._rows.values()))

    @property
    def _store(self) -> Store:
        return self.view.store

    def _row(self, node: Node, outlook: Outlook) -> PlannedStep:
        if outlook.fate is Fate.SERVED:
            assert isinstance(outlook.verdict, Current)
            if node in self.selected.targets:
                try:
                    self.view.check_files(node)
                except CorruptOutput as error:
                    return self._make(node, "blocked", f"{error.what}: {error.next}")
            return self._make(node, "cached", "", notes=outlook.verdict.notes, path=self.view.data_url(node))
        outlook = self._judged_anew(node, outlook)
        if outlook.fate is Fate.SERVED:
            return self._make(node, "cached", "", path=self.view.data_url(node))
        if outlook.blocked_by is not None:
            return self._make(node, "blocked", f"because of {outlook.blocked_by.shown}")
        damage = self.view.damage(node)
        if damage is not None and outlook.fate is Fate.BLOCKED:
            return self._make(node, "blocked", f"damaged record: {damage.what}; {damage.next}")
        why = self._why(node, outlook)
        if outlook.needed_if is not None:
            why = f"only if {outlook.needed_if.shown} runs: {why}"
        # One whose fate depends is served all the same if its inputs come out equal, so what follows is not blocked.
        if outlook.fate is Fate.BLOCKED or node not in self.selected.allowed:
            return self._make(node, "blocked", f"not selected to run ({why})")
        return self._pending(node, outlook, why)

    def _judged_anew(self, node: Node, outlook: Outlook) -> Outlook:
        """The outlook with the inputs that are adopted no longer moving."""
        moving = tuple(i for i in outlook.moving if i not in self._adopted)
        if moving == outlook.moving:
            return outlook
        outlook = replace(outlook, moving=moving)
        commit = self.view.commit(node)
        if moving or outlook.fate is not Fate.DEPENDS or commit is None:
            return outlook
        verdict = self.view.judge(node, commit, self._digests(node))
        return replace(outlook, verdict=verdict, fate=Fate.SERVED if isinstance(verdict, Current) else Fate.RUNS)

    def _digests(self, node: Node) -> dict[str, str]:
        known = {i: c.output_digest for i in node.inputs if (c := self.view.commit(i)) is not None}
        known |= {i: self._adopted[i] for i in node.inputs if i in self._adopted}
        return decide.digests_by_key((i.step.key, digest) for i, digest in known.items())

    def _why(self, node: Node, outlook: Outlook) -> str:
        if self.view.commit(node) is None:
            return self._reasons.missing(node, outlook.moving)
        if node in self.selected.forced:
            return "forced"
        if isinstance(outlook.verdict, Stale):
            return outlook.verdict.why
        return f"because of {names(outlook.moving)} (served if its output comes out equal)"

    def _pending(self, node: Node, outlook: Outlook, why: str) -> PlannedStep:
        """A step that would not be served: somebody runs it, it can be adopted or resumed, or it runs."""
        seen = self.view.observations[node]
        if seen.has_lease:
            present = read_lease(self._store, node.directory)
            if present is not None and present[0].owner is not None and not owner_is_dead(present[0]):
                return self._make(node, "wait", f"{present[0].holder} works on it")
        if outlook.fate is Fate.RUNS:
            source = self._adoptable(node, outlook)
            if source is not None:
                return self._make(node, "adopt", f"{why}; {source}")
        if seen.has_work and seen.commit is None and list_work(self._store, node.directory):
            return self._make(node, "resume", why)
        return self._make(node, "run", why)

    def _adoptable(self, node: Node, outlook: Outlook) -> str | None:
        """Whose output the step would adopt instead of running."""
        forced = node in self.selected.forced
        first = self._first_of_key.setdefault(node.step.key, node)
        if first is not node and (not forced or self._rows[first].action in ("run", "resume")):
            return f"the same computation as {first.shown}"
        if forced or outlook.moving or not self.view.may_adopt(node):
            return None
        own = decide.own_arguments(node.step, self._digests(node))
        found = find_build(self._store, decide.build_key(node.step, own, source_digest=self.view.source(node).digest))
        if found is None:
            return None
        self._adopted[node] = found[1].output_digest
        return f"the same was built as {found[0]}"

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
        if commit is None and action in ("run", "resume"):
            earlier = self._reasons.earlier(node)
            commit = earlier.commit if earlier is not None else None
        usage = commit.record.usage if commit is not None else None
        return usage.duration_s if usage is not None else None
