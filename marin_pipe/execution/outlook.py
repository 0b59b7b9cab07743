"""What a launch would come to, step by step, as far as storage tells: the engine's decisions without its results."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from marin_pipe.execution.decide import Current, Stale
from marin_pipe.execution.graph import Graph, Node
from marin_pipe.execution.selection import Selected
from marin_pipe.execution.view import View


class Fate(Enum):
    SERVED = auto()
    RUNS = auto()
    """It has nothing to serve: it runs, or adopts what was built elsewhere."""
    DEPENDS = auto()
    """It is served if the inputs that run before it come out equal, and runs if they do not."""
    BLOCKED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known of one step before the launch."""

    fate: Fate
    verdict: Current | Stale | None = None
    """On its commit, from the inputs that are served; None if it was not asked for (forced)."""
    moving: tuple[Node, ...] = ()
    """Inputs whose bytes are not known yet."""
    blocked_by: Node | None = None
    """The input that is blocked; None if the step itself is not selected, or the record of its output is damaged."""
    needed_if: Node | None = None
    """Set if only this step, whose fate depends, needs it."""


def foresee(graph: Graph, view: View, selected: Selected) -> dict[Node, Outlook]:
    """The outlook of every step the launch looks at, in topological order.

    Raises:
        IdentityConflict: an output that would be served was made by another function.
    """
    foresight = _Foresight(graph, view, selected)
    needed = set(selected.targets)
    outlooks: dict[Node, Outlook] = {}
    # A step that runs needs inputs that nobody else does, and these may change what others come to.
    while True:
        wanted = foresight.needed(outlooks, conditional=True) | needed
        if wanted == needed and outlooks:
            break
        needed = wanted
        outlooks = {}
        for node in graph.nodes:
            if node in needed:
                outlooks[node] = foresight.outlook(node, outlooks)
    certain = foresight.needed(outlooks, conditional=False)
    return {node: found if node in certain else _conditional(node, found, outlooks) for node, found in outlooks.items()}


def _conditional(node: Node, found: Outlook, outlooks: dict[Node, Outlook]) -> Outlook:
    needed_if = next((c for c in node.consumers if c in outlooks and outlooks[c].fate is not Fate.SERVED), None)
    return replace(found, needed_if=needed_if)


class _Foresight:
    def __init__(self, graph: Graph, view: View, selected: Selected) -> None:
        self._graph, self._view, self._selected = graph, view, selected

    def needed(self, outlooks: dict[Node, Outlook], *, conditional: bool) -> set[Node]:
        """Targets, the inputs that decide about what is needed, and all inputs of what runs.

        Args:
            conditional: take the steps whose fate depends to run.
        """
        needed = set(self._selected.targets)
        for node in reversed(self._graph.nodes):
            if node in needed and node.step.options.pin is None:
                needed.update(self._inputs_needed(node, outlooks.get(node), conditional=conditional))
        return needed

    def _inputs_needed(self, node: Node, outlook: Outlook | None, *, conditional: bool) -> Iterable[Node]:
        if self._must_run(node):
            return node.inputs if node in self._selected.allowed and not self._is_damaged(node) else ()
        fate = outlook.fate if outlook is not None else Fate.SERVED
        if fate is Fate.RUNS or (fate is Fate.DEPENDS and conditional):
            return node.inputs
        return [i for i in node.inputs if self._view.commit(i) is not None]

    def _must_run(self, node: Node) -> bool:
        return self._view.commit(node) is None or node in self._selected.forced

    def _is_damaged(self, node: Node) -> bool:
        return node not in self._selected.forced and self._view.damage(node) is not None

    def outlook(self, node: Node, outlooks: dict[Node, Outlook]) -> Outlook:
        if node.step.options.pin is not None:
            return Outlook(fate=Fate.SERVED, verdict=self._view.assess(node, ()))
        if self._is_damaged(node):
            return Outlook(fate=Fate.BLOCKED, verdict=self._view.assess(node, ()))
        inputs = [i for i in node.inputs if i in outlooks]
        moving = tuple(i for i in inputs if outlooks[i].fate in (Fate.RUNS, Fate.DEPENDS))
        blocking = [i for i in inputs if outlooks[i].fate is Fate.BLOCKED]
        verdict = None
        if not self._must_run(node):
            # An input that stays missing says nothing about the commit.
            deciding = next((i for i in blocking if self._view.commit(i) is not None), None)
            if deciding is not None:
                return Outlook(fate=Fate.BLOCKED, blocked_by=deciding)
            verdict = self._view.assess(node, [i for i in inputs if outlooks[i].fate is Fate.SERVED])
            if isinstance(verdict, Current) and not moving:
                return Outlook(fate=Fate.SERVED, verdict=verdict)
        elif self._view.commit(node) is None:
            verdict = self._view.assess(node, ())
        if isinstance(verdict, Current):
            return Outlook(fate=Fate.DEPENDS, verdict=verdict, moving=moving)
        if node not in self._selected.allowed:
            return Outlook(fate=Fate.BLOCKED, verdict=verdict, moving=moving)
        if blocking:
            return Outlook(fate=Fate.BLOCKED, verdict=verdict, blocked_by=blocking[0])
        return Outlook(fate=Fate.RUNS, verdict=verdict, moving=moving)
