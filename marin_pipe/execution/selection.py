"""Which steps of a graph a launch may run: `--only`, `--upto`, `--after`, `--force`, `--downstream`."""

import fnmatch
from collections.abc import Callable, Iterable, Sequence
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
    """Resolve the patterns. ConfigurationError for one that matches no step, and if together they leave none."""
    allowed = frozenset(graph.nodes)
    targets = tuple(dict.fromkeys(graph.targets.values()))
    if selection.upto:
        targets = matching(graph, selection.upto, flag="--upto")
        allowed = upstream_of(targets)
    if selection.only:
        targets = _within(matching(graph, selection.only, flag="--only"), allowed, flag="--only")
        allowed = frozenset(targets)
    if selection.after:
        allowed &= downstream_of(matching(graph, selection.after, flag="--after"))
        targets = _within(targets, allowed, flag="--after")
    forced = _forced(graph, selection, allowed)
    # What is forced runs even if nothing between it and the targets needs it.
    wanted = forced.union(targets)
    return Selected(
        targets=tuple(node for node in graph.nodes if node in wanted),
        allowed=allowed,
        forced=forced,
    )


def _forced(graph: Graph, selection: Selection, allowed: frozenset[Node]) -> frozenset[Node]:
    if not selection.force:
        if selection.downstream:
            raise ConfigurationError("--downstream was given without --force", next="add --force GLOB")
        return frozenset()
    matches = matching(graph, selection.force, flag="--force")
    runnable = [node for node in matches if node.step.options.pin is None]
    if not runnable:
        raise ConfigurationError(
            f"--force names pinned steps only: {_some(matches)}",
            why="a pinned step is served from its pin and never runs",
            next="remove .pinned_to(...) to run it",
        )
    forced = downstream_of(runnable) if selection.downstream else frozenset(runnable)
    return frozenset(_within([n for n in graph.nodes if n in forced], allowed, flag="--force")) - {
        node for node in graph.nodes if node.step.options.pin is not None
    }


def _within(nodes: Sequence[Node], allowed: frozenset[Node], *, flag: str) -> tuple[Node, ...]:
    kept = tuple(node for node in nodes if node in allowed)
    if not kept:
        raise ConfigurationError(
            f"nothing is left to run: {flag} leaves only steps that the other flags leave out",
            why=f"{flag} alone selects {_some(nodes)}",
            next="remove one of the flags",
        )
    return kept


def matching(graph: Graph, patterns: Sequence[str], *, flag: str) -> tuple[Node, ...]:
    """Nodes whose name (or target name in the experiment) matches one of `patterns`, in graph order."""
    names: dict[Node, set[str]] = {node: {node.name, node.shown} for node in graph.nodes}
    for target, node in graph.targets.items():
        names[node].add(target)
    found: dict[Node, None] = {}
    for pattern in patterns:
        hits = [node for node in graph.nodes if any(fnmatch.fnmatchcase(name, pattern) for name in names[node])]
        if not hits:
            raise ConfigurationError(f"{flag} {pattern!r} matches no step", next=f"the steps are: {_some(graph.nodes)}")
        found.update(dict.fromkeys(hits))
    return tuple(node for node in graph.nodes if node in found)


def _some(nodes: Iterable[Node]) -> str:
    names = sorted({node.shown for node in nodes})
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def upstream_of(nodes: Iterable[Node]) -> frozenset[Node]:
    """`nodes` and everything they depend on."""
    return _reached(nodes, lambda node: node.inputs)


def downstream_of(nodes: Iterable[Node]) -> frozenset[Node]:
    """`nodes` and everything that depends on them."""
    return _reached(nodes, lambda node: node.consumers)


def _reached(nodes: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> frozenset[Node]:
    reached: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack.extend(following(node))
    return frozenset(reached)
