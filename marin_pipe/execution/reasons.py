"""Why a step has no output to serve: the same words in a plan, in a run and in `explain`."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from marin_pipe.execution.decide import Stale
from marin_pipe.execution.difference import Change
from marin_pipe.execution.graph import Node
from marin_pipe.execution.history import Earlier, History
from marin_pipe.execution.observe import list_attempts, read_ended
from marin_pipe.execution.view import View

SHOWN = 3
"""Changes, or names, told in one line; the rest is counted."""


@dataclass(kw_only=True)
class Reasons:
    """Looks for reasons in what the launch observed and, for steps without an output, in earlier outputs."""

    view: View
    _history: History | None = None
    _missing: dict[Node, str] = field(default_factory=dict)

    def missing(self, node: Node, moving: Iterable[Node] = ()) -> str:
        """Why a step without a commit must run. Reads earlier outputs of its name.

        A root cause is told once, where it is: a step that is new only through its inputs points to them.

        Args:
            moving: inputs that are not settled yet.
        """
        if node not in self._missing:
            self._missing[node] = self._find(node, tuple(moving))
        return self._missing[node]

    def _find(self, node: Node, moving: tuple[Node, ...]) -> str:
        ended = self.last_end(node)
        if ended is not None:
            return ended
        verdict = self.view.assess(node, ())
        if isinstance(verdict, Stale) and verdict.cause in ("withdrawn", "damaged"):
            return verdict.why
        earlier = self.earlier(node)
        if earlier is None:
            return f"no output yet{f'; needs {names(moving)}' if moving else ''}"
        own = own_changes(earlier)
        if own:
            return f"{_changes(own)} (against {earlier.directory})"
        keys = {change.new["$step"] for change in earlier.changes}
        return f"because of {names(i for i in node.inputs if i.step.key in keys)}"

    def earlier(self, node: Node) -> Earlier | None:
        """The nearest earlier output of the step's name."""
        if self._history is None:
            self._history = History(store=self.view.store)
        return self._history.nearest(node.step)

    def last_end(self, node: Node) -> str | None:
        """How the newest try of a step without a commit ended; None if there was none."""
        seen = self.view.observations[node]
        if not seen.has_attempts or seen.highest:
            return None
        attempts = list_attempts(self.view.store, node.directory)
        if not attempts:
            return None
        ended = read_ended(self.view.store, node.directory, attempts[-1])
        if ended is None:
            return f"attempt {attempts[-1]} was lost before it could say why"
        message = f": {ended.message.splitlines()[0][:80]}" if ended.message.strip() else ""
        return f"attempt {ended.attempt} {ended.outcome}: {ended.error_type}{message}"


def own_changes(earlier: Earlier) -> tuple[Change, ...]:
    """The changes that are a step's own: not those of the keys of its inputs."""
    return tuple(change for change in earlier.changes if not change.is_input)


def names(nodes: Iterable[Node]) -> str:
    """What the nodes are called, in one line."""
    found = sorted({node.shown for node in nodes})
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


def _changes(changes: tuple[Change, ...]) -> str:
    more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return "; ".join(str(change) for change in changes[:SHOWN]) + more
