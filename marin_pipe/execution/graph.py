"""The graph of a launch: every step the targets reach, once, inputs before consumers. Walks are iterative."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.handle import Step, StepPath
from marin_pipe.execution.namesakes import Namesakes
from marin_pipe.execution.secret import refuse_secrets_in_json
from marin_pipe.execution.step import StepFunction


@dataclass(eq=False, slots=True)
class Node:
    """One step of a graph with its neighbours."""

    step: Step[Any]
    directory: str
    inputs: tuple["Node", ...] = ()
    consumers: list["Node"] = field(default_factory=list)
    height: int = 0
    """Steps on the longest path from here to an end of the graph."""
    shown: str = ""
    """What to call it: its name, or its directory where another step of the graph has that name."""

    @property
    def name(self) -> str:
        return self.step.name

    def __repr__(self) -> str:
        return f"Node({self.directory})"


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes in topological order, and the targets by the name the experiment gave them."""

    nodes: tuple[Node, ...]
    targets: Mapping[str, Node]


def build_graph(steps: Mapping[str, Step[Any]] | Iterable[Step[Any]] | Step[Any]) -> Graph:
    """Collect what `steps` reach.

    Raises:
        GraphError: two functions share an identity name, arguments name two things of one name, or one step has two
            set-ups.
    """
    named = _named_targets(steps)
    nodes: dict[str, Node] = {}
    functions: dict[str, Any] = {}
    namesakes = Namesakes()
    # Many handles may stand for one node; a handle is looked at once.
    seen: dict[int, Node] = {}
    order: list[Node] = []
    for _, target in named:
        stack: list[tuple[Step[Any], bool]] = [(target, False)]
        while stack:
            step, expanded = stack.pop()
            if expanded:
                _finish(seen[id(step)], step, seen, order)
                continue
            if id(step) in seen:
                continue
            _check_function(step, functions)
            namesakes.check(step.name, step.bound.functions)
            directory = step.directory
            node = nodes.get(directory)
            if node is not None:
                _check_same(node.step, step)
                seen[id(step)] = node
                continue
            node = nodes[directory] = seen[id(step)] = Node(step=step, directory=directory)
            stack.append((step, True))
            # The stack turns the order around; inputs are to come in the order in which they were written.
            inputs = reversed(upstream_steps(step))
            stack.extend((upstream, False) for upstream in inputs if id(upstream) not in seen)
    count = Counter(node.name for node in order)
    for node in reversed(order):
        node.shown = node.name if count[node.name] == 1 else node.directory
        node.height = 1 + max((consumer.height for consumer in node.consumers), default=0)
    return Graph(nodes=tuple(order), targets={name: seen[id(step)] for name, step in named})


def upstream_steps(step: Step[Any]) -> list[Step[Any]]:
    """The steps among `step`'s arguments, each once, in order of appearance."""
    found = {}
    for _, reference in step.bound.inputs:
        upstream = reference.step if isinstance(reference, StepPath) else reference
        found[id(upstream)] = upstream
    return list(found.values())


def _finish(node: Node, step: Step[Any], seen: Mapping[int, Node], order: list[Node]) -> None:
    inputs = {id(seen[id(upstream)]): seen[id(upstream)] for upstream in upstream_steps(step)}
    node.inputs = tuple(inputs.values())
    for upstream in node.inputs:
        upstream.consumers.append(node)
    order.append(node)


def _named_targets(steps: Mapping[str, Step[Any]] | Iterable[Step[Any]] | Step[Any]) -> list[tuple[str, Step[Any]]]:
    if isinstance(steps, Step):
        steps = [steps]
    if isinstance(steps, Mapping):
        named = list(steps.items())
    elif isinstance(steps, Iterable):
        # Two handles of one directory are both looked at: they may disagree.
        named = [(getattr(step, "directory", str(index)), step) for index, step in enumerate(steps)]
    else:
        raise _no_step("what was given to run", steps)
    if not named:
        raise GraphError("there is nothing to run: no steps were given", next="return at least one step from build()")
    refuse_secrets_in_json([str(name) for name, _ in named], where="the names of the targets")
    for name, step in named:
        if not isinstance(step, Step):
            raise _no_step(f"target {name!r}", step)
    return named


def _no_step(what: str, value: object) -> GraphError:
    fix = f"call it: {value.name}(...) is the step" if isinstance(value, StepFunction) else "call a @step function"
    return GraphError(
        f"{what} is {type(value).__name__}, not a step",
        why="build() returns a dict of names and steps",
        next=fix,
    )


def _check_function(step: Step[Any], functions: dict[str, Any]) -> None:
    known = functions.setdefault(step.function.name, step.function)
    if known is not step.function and known.location != step.function.location:
        raise GraphError(
            f"two functions share the identity name {step.function.name!r}: {known.module}.{known.qualname} and "
            f"{step.function.module}.{step.function.qualname}",
            why="their outputs could be taken for one another",
            next="give one of them a name of its own with @step(name=...)",
        )


def _check_same(first: Step[Any], second: Step[Any]) -> None:
    if first.key != second.key:
        raise GraphError(f"two steps share the directory {first.directory} with different keys: a hash collision")
    if first.options != second.options:
        raise GraphError(
            f"step {first.name} is asked for twice with different options: {first.options} and {second.options}",
            next="use one handle for both, or give one another name with .named(...)",
        )
