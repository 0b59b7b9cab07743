"""Which steps of a graph a launch may run: `--only`, `--upto`, `--after`, `--force`, `--downstream`."""

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.graph import Graph, Node


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Glob patterns over step names. Empty means no restriction (or, for `force`, nothing forced)."""

    only: Sequence[str] = ()
    """Run nothing but these steps; their inputs must be there."""
    upto: Sequence[str] = ()
    """These steps and what they need are the targets."""
    after: Sequence[str] = ()
    """Run nothing but these steps and what depends on them."""
    force: Sequence[str] = ()
    """Run these steps even if they are current."""
    downstream: bool = False
    """Force what depends on the forced steps too."""


@dataclass(frozen=True, kw_only=True)
class Selected:
    """A selection applied to a graph."""

    targets: tuple[Node, ...]
    allowed: frozenset[Node]
    forced: frozenset[Node]


def apply_selection(graph: Graph, selection: Selection) -> Selected:
    """Resolve the patterns; one that matches no step is a ConfigurationError."""
    everything = frozenset(graph.nodes)
    targets = tuple(dict.fromkeys(graph.targets.values()))
    allowed = everything
    if selection.upto:
        targets = matching(graph, selection.upto, flag="--upto")
    if selection.only:
        targets = matching(graph, selection.only, flag="--only")
        allowed = frozenset(targets)
    if selection.after:
        allowed &= downstream_of(matching(graph, selection.after, flag="--after"))
    forced = frozenset(matching(graph, selection.force, flag="--force"))
    if selection.downstream:
        if not forced:
            raise ConfigurationError("--downstream was given without --force", next="add --force GLOB")
        forced = downstream_of(forced)
    return Selected(targets=targets, allowed=allowed, forced=forced)


def matching(graph: Graph, patterns: Sequence[str], *, flag: str) -> tuple[Node, ...]:
    """Nodes whose name (or target name in the experiment) matches one of `patterns`, in graph order."""
    names: dict[Node, set[str]] = {node: {node.name} for node in graph.nodes}
    for target, node in graph.targets.items():
        names[node].add(target)
    found: dict[Node, None] = {}
    for pattern in patterns:
        hits = [node for node in graph.nodes if any(fnmatch.fnmatchcase(name, pattern) for name in names[node])]
        if not hits:
            some = ", ".join(sorted({node.name for node in graph.nodes})[:8])
            raise ConfigurationError(f"{flag} {pattern!r} matches no step", next=f"the steps are: {some}")
        found.update(dict.fromkeys(hits))
    return tuple(node for node in graph.nodes if node in found)


def downstream_of(nodes: Iterable[Node]) -> frozenset[Node]:
    """`nodes` and everything that depends on them."""
    reached: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack.extend(node.consumers)
    return frozenset(reached)
