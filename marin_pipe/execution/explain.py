"""Why a step's key is what it is, and why the step would run or not."""

from dataclasses import dataclass
from typing import Any

from marin_storage import Store

from marin_pipe.execution.difference import readable
from marin_pipe.execution.errors import MissingOutput
from marin_pipe.execution.finding import Found
from marin_pipe.execution.graph import Graph, Node
from marin_pipe.execution.handle import SourcePolicy, StepPath
from marin_pipe.execution.history import NEAREST_LIMIT, History
from marin_pipe.execution.plan import Planner
from marin_pipe.execution.records import Built, Served
from marin_pipe.execution.selection import Selection, apply_selection
from marin_pipe.execution.source import changed_parts
from marin_pipe.execution.subject import Cause, Subject, Subjects, own_changes
from marin_pipe.execution.view import View


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What makes a step what it is."""

    name: str
    directory: str
    key: str
    function: str
    """`module.name` and version."""
    arguments: dict[str, str]
    """Each argument on one line; an upstream step by its key, a file by its name."""
    inputs: tuple[str, ...]
    """The upstream steps: `argument: name (directory)`."""
    action: str
    """What a run would do ("cached", "run", ...); "stored" for an output looked at without its experiment."""
    why: str
    notes: tuple[str, ...] = ()
    against: str | None = None
    """The nearest earlier output of that name: the step directory."""
    causes: tuple[Cause, ...] = ()
    """What differs from it, followed upstream to where the reasons lie."""
    source_against: str | None = None
    """What `source_changes` compare with."""
    source_changes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "directory": self.directory,
            "key": self.key,
            "function": self.function,
            "arguments": self.arguments,
            "inputs": list(self.inputs),
            "action": self.action,
            "why": self.why,
            "notes": list(self.notes),
            "against": self.against,
            "changes": [
                {
                    "trail": list(cause.trail),
                    "path": cause.change.path,
                    "old": readable(cause.change.old),
                    "new": readable(cause.change.new),
                    "note": cause.note,
                }
                for cause in self.causes
            ],
            "source_against": self.source_against,
            "source_changes": list(self.source_changes),
        }


def explain_step(
    store: Store, found: Found, *, graph: Graph | None = None, source_policy: SourcePolicy = "warn"
) -> Explanation:
    """Explain a step of a graph, or a stored output that no graph at hand defines.

    Raises:
        MissingOutput: a stored step that was never committed: its identity is known to its experiment only.
    """
    subjects = Subjects(store=store)
    if found.node is not None:
        assert graph is not None
        return _explain_node(subjects, graph, found.node, source_policy)
    subject = subjects.of_output(found.directory, found.commit)
    if subject is None:
        raise MissingOutput(
            f"{found.directory} has no record to explain",
            why="nothing was committed there",
            next="ask the experiment that defines it: `python experiments/x.py explain STEP`",
        )
    return _explain_output(subjects, subject)


def _explain_node(subjects: Subjects, graph: Graph, node: Node, source_policy: SourcePolicy) -> Explanation:
    subject = subjects.of_node(node)
    view = View(store=subjects.store, source_policy=source_policy)
    view.look(graph)
    selected = apply_selection(graph, Selection(upto=(node.shown,)))
    rows = Planner(graph=graph, view=view, selected=selected).plan().steps
    row = next(row for row in rows if row.directory == node.directory)
    if subject.commit is not None:
        old = _nearest_before(subjects, subject)
    else:
        earlier = History(store=subjects.store).nearest(node.step)
        old = subjects.of_commit(earlier.directory, earlier.commit) if earlier is not None else None
    why = row.why
    if row.action == "cached" and subject.commit is not None and node.step.options.pin is None:
        why = _why_cached(subject.commit)
    return _explanation(subjects, subject, old, action=row.action, why=why, notes=row.notes)


def _why_cached(commit: Served) -> str:
    inputs = len(commit.record.inputs)
    still = "its input still holds" if inputs == 1 else f"its {inputs} inputs still hold"
    read = f", and {still} what it read" if inputs else ""
    return f"{_origin(commit)}: it has this key{read}"


def _origin(commit: Served) -> str:
    by = commit.record.provenance
    if isinstance(commit, Built):
        return f"commit {commit.number}, built by {by.user} on {by.host} in launch {by.run}"
    return f"commit {commit.number}, adopted from {commit.source_directory} by {by.user}: {commit.reason}"


def _explain_output(subjects: Subjects, subject: Subject) -> Explanation:
    assert subject.commit is not None
    return _explanation(
        subjects, subject, _nearest_before(subjects, subject), action="stored", why=_origin(subject.commit)
    )


def _nearest_before(subjects: Subjects, subject: Subject) -> Subject | None:
    """The output of the same name, committed earlier, with the fewest differences; the later of two equally near."""
    history = History(store=subjects.store)
    found: list[tuple[int, float, Subject]] = []
    for directory in [d for d in history.outputs(subject.name) if d != subject.directory][:NEAREST_LIMIT]:
        other = subjects.of_output(directory)
        if other is not None and other.committed <= subject.committed:
            found.append((len(list(own_changes(other, subject))), -other.committed, other))
    return min(found, key=lambda item: item[:2])[2] if found else None


def _explanation(
    subjects: Subjects, subject: Subject, old: Subject | None, *, action: str, why: str, notes: tuple[str, ...] = ()
) -> Explanation:
    # A step that has a commit is compared with that: it is what would be served.
    commit = subject.commit if subject.node is not None else None
    reference = subject if commit is not None else old
    changes: list[str] = []
    if reference is not None and reference.commit is not None:
        changes = changed_parts(reference.commit.record.source.parts, subject.source_parts())
    return Explanation(
        name=subject.name,
        directory=subject.directory,
        key=subject.key,
        function=f"{subject.module}.{subject.function}, version {subject.version}",
        arguments={name: readable(form) for name, form in subject.arguments.items()},
        inputs=_inputs(subject),
        action=action,
        why=why,
        notes=notes,
        against=old.directory if old is not None else None,
        causes=tuple(subjects.causes(old, subject)) if old is not None else (),
        source_against=reference.directory if changes and reference is not None else None,
        source_changes=tuple(changes),
    )


def _inputs(subject: Subject) -> tuple[str, ...]:
    if subject.node is not None:
        references = [
            (argument, reference.step if isinstance(reference, StepPath) else reference)
            for argument, reference in subject.node.step.bound.inputs
        ]
        return tuple(f"{argument}: {step.name} ({step.directory})" for argument, step in references)
    uses = subject.commit.record.inputs if subject.commit is not None else ()
    return tuple(f"{argument}: {use.name} ({use.directory})" for use in uses for argument in use.arguments)
