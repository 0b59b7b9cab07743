"""What an output was made from and what was made from it, by the exact commits that records name."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from marin_storage import NotFound, Store

from marin_pipe.execution.errors import MissingOutput
from marin_pipe.execution.inventory import Inventory, Stored, directory_of, key_below
from marin_pipe.execution.layout import display_name
from marin_pipe.execution.observe import data_directory
from marin_pipe.execution.records import Adopted, FileUse, InputUse, Served, Withdrawn

Relation = Literal["input", "adopted from", "used by", "adopted by"]


@dataclass(frozen=True, order=True)
class Output:
    """One commit of one step directory; a pinned place outside this root has its URL and number 0."""

    directory: str
    commit: int

    def __str__(self) -> str:
        return f"{self.directory}, commit {self.commit}" if self.commit else self.directory


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A step from one output to a neighbour."""

    relation: Relation
    to: Output
    through: tuple[str, ...] = ()
    """The arguments that connect them."""
    is_same_work: bool = False
    """Of an adoption: both ends were made from equal inputs, so that one tells where the other comes from."""


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """A closed piece of the graph of outputs. `upstream` and `downstream` hold the edges of everything reached."""

    output: Output
    file: str | None
    """The file inside the output that was asked for, if one was."""
    upstream: Mapping[Output, tuple[Edge, ...]]
    downstream: Mapping[Output, tuple[Edge, ...]]
    files: Mapping[Output, tuple[FileUse, ...]]
    """Files from outside that an upstream output read."""
    notes: Mapping[Output, str]
    """What is to say of an output: that it was withdrawn, or that its record is gone."""


def find_output(store: Store, directory: str, *, path: str | None = None, commit: int | None = None) -> Output:
    """The commit that a step directory stands for; with `path` (a file inside it), the one whose data holds it.

    Raises:
        MissingOutput: there is no such commit.
    """
    stored = Inventory(store=store).look([directory])[directory]
    inside = key_below(store, path) if path is not None and ("://" in path or path.startswith("/")) else path
    if inside is not None and inside != directory:
        for candidate in reversed(stored.served):
            data = data_directory(directory, candidate)
            if inside == data or inside.startswith(f"{data}/"):
                return Output(directory, candidate.number)
        raise MissingOutput(
            f"{inside} is no file of a committed output",
            why=f"no commit of {directory} names the directory it lies in",
            next=f"`marin-pipe lineage {directory}` shows that of the current output",
        )
    number = commit if commit is not None else (stored.current.number if stored.current is not None else None)
    if number is None:
        raise MissingOutput(
            f"{directory} has no current output", why="nothing was committed, or it was withdrawn", next="run it first"
        )
    return Output(directory, number)


def trace(store: Store, output: Output, *, file: str | None = None) -> Lineage:
    """Everything upstream and downstream of an output. Downstream is what lies under the same root.

    Costs one look at every step directory of the root.
    """
    inventory = Inventory(store=store)
    everything = inventory.everything()
    files: dict[Output, tuple[FileUse, ...]] = {}
    notes: dict[Output, str] = {}
    upstream: dict[Output, tuple[Edge, ...]] = {}
    stack = [output]
    while stack:
        here = stack.pop()
        if here in upstream:
            continue
        commit = _commit(inventory, here, notes)
        upstream[here] = tuple(_above(store, commit)) if commit is not None else ()
        if commit is not None and commit.record.files:
            files[here] = commit.record.files
        stack.extend(edge.to for edge in upstream[here])
    below = _below(store, everything.values())
    downstream: dict[Output, tuple[Edge, ...]] = {}
    stack = [output]
    while stack:
        here = stack.pop()
        if here not in downstream:
            downstream[here] = tuple(sorted(below.get(here, ()), key=lambda edge: edge.to))
            stack.extend(edge.to for edge in downstream[here])
    for reached in downstream:
        stored = everything.get(reached.directory)
        if stored is not None and stored.highest > reached.commit:
            kind = "superseded" if stored.current is not None else "damaged" if stored.damage else "withdrawn"
            notes.setdefault(reached, f"{kind} by commit {stored.highest}")
    return Lineage(output=output, file=file, upstream=upstream, downstream=downstream, files=files, notes=notes)


def _commit(inventory: Inventory, output: Output, notes: dict[Output, str]) -> Served | None:
    if output.commit == 0:
        notes[output] = "pinned directory without a record"
        return None
    if "://" in output.directory or output.directory.startswith("/"):
        notes[output] = "pinned output of another root"
        return None
    try:
        commit = inventory.commit(output.directory, output.commit)
    except NotFound:
        notes[output] = "its record is gone"
        return None
    assert not isinstance(commit, Withdrawn), f"{output}: a tombstone was used as an input"
    return commit


def _above(store: Store, commit: Served) -> Iterator[Edge]:
    for use in commit.record.inputs:
        yield Edge(relation="input", to=_used(store, use), through=use.arguments)
    if isinstance(commit, Adopted):
        source = Output(commit.source_directory, commit.source_commit)
        yield Edge(relation="adopted from", to=source, is_same_work=_is_same_work(commit))


def _below(store: Store, everything: Iterable[Stored]) -> dict[Output, list[Edge]]:
    found: dict[Output, list[Edge]] = {}
    for stored in everything:
        for commit in stored.served:
            here = Output(stored.directory, commit.number)
            for use in commit.record.inputs:
                edge = Edge(relation="used by", to=here, through=use.arguments)
                found.setdefault(_used(store, use), []).append(edge)
            if isinstance(commit, Adopted):
                source = Output(commit.source_directory, commit.source_commit)
                edge = Edge(relation="adopted by", to=here, is_same_work=_is_same_work(commit))
                found.setdefault(source, []).append(edge)
    return found


def _is_same_work(commit: Adopted) -> bool:
    return sorted(use.output_digest for use in commit.record.inputs) == sorted(
        use.output_digest for use in commit.source_inputs
    )


def _used(store: Store, use: InputUse) -> Output:
    """The output an input was read from; a pin into this root is the output it points to."""
    directory = directory_of(store, use.directory) if use.commit else None
    return Output(directory or use.directory, use.commit)


def as_json(lineage: Lineage) -> dict[str, Any]:
    """The lineage as JSON: the outputs, and the edges from each to its neighbours."""

    def side(edges: Mapping[Output, tuple[Edge, ...]]) -> list[dict[str, Any]]:
        return [
            {
                "directory": here.directory,
                "commit": here.commit,
                "relation": edge.relation,
                "arguments": list(edge.through),
                "to": {"directory": edge.to.directory, "commit": edge.to.commit},
            }
            for here, neighbours in sorted(edges.items())
            for edge in neighbours
        ]

    return {
        "output": {
            "directory": lineage.output.directory,
            "commit": lineage.output.commit,
            "name": display_name(lineage.output.directory),
        },
        "file": lineage.file,
        "upstream": side(lineage.upstream),
        "downstream": side(lineage.downstream),
        "files": {str(output): [use.model_dump(mode="json") for use in uses] for output, uses in lineage.files.items()},
        "notes": {str(output): note for output, note in lineage.notes.items()},
    }
