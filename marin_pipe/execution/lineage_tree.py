"""A lineage for people: indented lines, with every output spelled out once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from marin_pipe.execution.lineage import Edge, Lineage, Output

_SHOWN = 3
"""Outputs named in one line; the rest is counted."""


@dataclass(kw_only=True)
class _Branch:
    """The neighbours of one output. What was spelled out elsewhere before shares one line at the end."""

    of: Output
    depth: int
    edges: list[Edge]
    """Still to be shown, the next one last."""
    repeated: list[Edge] = field(default_factory=list)


def tree(lineage: Lineage, edges: Mapping[Output, tuple[Edge, ...]]) -> list[str]:
    """One side of a lineage (its `upstream` or `downstream`).

    An output that was adopted from the same work, or by it, is named on the line of its twin: what lies beyond it is
    the same again.
    """
    upstream = edges is lineage.upstream
    lines = [f"file {line}" for line in _file_lines(lineage, lineage.output)] if upstream else []
    twins = _twins(edges)
    shown: set[Output] = set()
    # No recursion: a chain may be as long as it likes.
    stack = [_Branch(of=lineage.output, depth=0, edges=[*reversed(edges[lineage.output])])]
    while stack:
        branch = stack[-1]
        indent = "  " * branch.depth
        if not branch.edges:
            stack.pop()
            if branch.repeated:
                lines.append(f"{indent}and, shown above: {_some([edge.to.directory for edge in branch.repeated])}")
            continue
        edge = branch.edges.pop()
        beyond = _neighbours(edges, twins, edge.to)
        if edge.to in shown and (beyond or twins[edge.to]):
            branch.repeated.append(edge)
            continue
        lines.append(f"{indent}{_line(lineage, edge, twins)}")
        if edge.to in shown or edge in twins[branch.of]:
            continue
        shown.add(edge.to)
        if upstream:
            lines += [f"{indent}  file {line}" for line in _file_lines(lineage, edge.to)]
        stack.append(_Branch(of=edge.to, depth=branch.depth + 1, edges=beyond))
    return lines


def _twins(edges: Mapping[Output, tuple[Edge, ...]]) -> dict[Output, list[Edge]]:
    """The adoptions that need no line of their own."""
    adoptions = {here: [edge for edge in found if edge.is_same_work] for here, found in edges.items()}
    twin_of = {edge.to for found in adoptions.values() for edge in found}
    return {
        here: [edge for edge in found if all(n.to in twin_of or n.is_same_work for n in edges[edge.to])]
        for here, found in adoptions.items()
    }


def _neighbours(
    edges: Mapping[Output, tuple[Edge, ...]], twins: Mapping[Output, list[Edge]], here: Output
) -> list[Edge]:
    """The edges of `here` that have lines of their own, the last one first."""
    return [edge for edge in reversed(edges[here]) if edge not in twins[here]]


def _line(lineage: Lineage, edge: Edge, twins: Mapping[Output, list[Edge]]) -> str:
    through = f" ({', '.join(edge.through)})" if edge.through else ""
    relation = f"{edge.relation} " if edge.relation.startswith("adopted") else ""
    note = f"  [{lineage.notes[edge.to]}]" if edge.to in lineage.notes else ""
    others = twins[edge.to] if not relation else []
    adopted = f"  [{others[0].relation} {_some([str(other.to) for other in others])}]" if others else ""
    return f"{relation}{edge.to}{through}{note}{adopted}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return "; ".join(names[:_SHOWN]) + more


def _file_lines(lineage: Lineage, output: Output) -> list[str]:
    return [f"{use.path} ({use.argument}, {len(use.files)} files)" for use in lineage.files.get(output, ())]
