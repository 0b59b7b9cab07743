"""A step as something to explain or compare: from a graph's handle, or from a stored record."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_storage import NotFound, Store

from marin_pipe.execution.describe import file_uses
from marin_pipe.execution.difference import Change, difference
from marin_pipe.execution.graph import Node
from marin_pipe.execution.inventory import Inventory, directory_of
from marin_pipe.execution.records import FileUse, Served, Withdrawn
from marin_pipe.execution.source import fingerprint


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The identity of a step, and its commit if it has one."""

    name: str
    directory: str
    function: str
    module: str
    version: str
    key: str
    arguments: Mapping[str, Any]
    """Canonical form."""
    files: tuple[FileUse, ...]
    commit: Served | None
    committed: float = 0.0
    """When the commit was written, by the store's own time; 0 if that was not looked at."""
    node: Node | None = None

    def source_parts(self) -> Mapping[str, str]:
        """The first-party code as it is now for a step of a graph, as it was for a stored output."""
        if self.node is not None:
            step = self.node.step
            return fingerprint((step.function.fn, *step.bound.functions)).parts
        return self.commit.record.source.parts if self.commit is not None else {}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One reason why two steps have different keys.

    `trail` leads from the step to where the reason lies: argument, upstream step, its argument, upstream step, ...
    """

    trail: tuple[str, ...]
    change: Change
    note: str = ""

    def __str__(self) -> str:
        text = " -> ".join((*self.trail, str(self.change)))
        return f"{text} ({self.note})" if self.note else text


@dataclass(kw_only=True)
class Subjects:
    """Makes subjects, each commit read once."""

    store: Store
    _inventory: Inventory = field(init=False)

    def __post_init__(self) -> None:
        self._inventory = Inventory(store=self.store)

    def of_node(self, node: Node) -> Subject:
        step = node.step
        stored = self._inventory.look([node.directory])[node.directory]
        return Subject(
            name=node.name,
            directory=node.directory,
            function=step.function.name,
            module=step.function.module_name,
            version=step.version,
            key=step.key,
            arguments=step.bound.canonical,
            files=file_uses(step),
            commit=stored.current,
            committed=stored.committed.get(stored.highest, 0.0),
            node=node,
        )

    def of_commit(self, directory: str, commit: Served, *, committed: float = 0.0) -> Subject:
        record = commit.record
        return Subject(
            name=record.name,
            directory=directory,
            function=record.function,
            module=record.module,
            version=record.version,
            key=record.key,
            arguments=record.arguments,
            files=record.files,
            commit=commit,
            committed=committed,
        )

    def of_output(self, directory: str, number: int | None = None) -> Subject | None:
        """A stored output: its commit `number`, or the newest that serves or once served data."""
        stored = self._inventory.look([directory])[directory]
        commits = [c for c in stored.served if number is None or c.number == number]
        if not commits:
            return None
        return self.of_commit(directory, commits[-1], committed=stored.committed[commits[-1].number])

    def upstream(self, subject: Subject, key: str) -> Subject | None:
        """The input of `subject` that has this key; None if its record is gone or lies under another root."""
        if subject.node is not None:
            return next((self.of_node(i) for i in subject.node.inputs if i.step.key == key), None)
        uses = subject.commit.record.inputs if subject.commit is not None else ()
        use = next((use for use in uses if use.key == key), None)
        directory = directory_of(self.store, use.directory) if use is not None else None
        if use is None or directory is None:
            return None
        try:
            commit = self._inventory.commit(directory, use.commit)
        except NotFound:
            return None
        return None if isinstance(commit, Withdrawn) else self.of_commit(directory, commit)

    def causes(self, old: Subject, new: Subject) -> Iterator[Cause]:
        """Every reason why `new` has another key than `old`, followed upstream to where it lies; nearest first."""
        queue: deque[tuple[Subject, Subject, tuple[str, ...]]] = deque([(old, new, ())])
        seen: set[tuple[str, str]] = set()
        while queue:
            before, after, trail = queue.popleft()
            if (before.key, after.key) in seen or before.key == after.key:
                continue
            seen.add((before.key, after.key))
            for change in own_changes(before, after):
                if not change.is_input or change.old["$step"] == change.new["$step"]:
                    yield Cause(trail=trail, change=change)
                    continue
                above = self.upstream(before, change.old["$step"])
                below = self.upstream(after, change.new["$step"])
                if above is None or below is None:
                    yield Cause(
                        trail=trail, change=change, note="the record of an input is gone: no further reason known"
                    )
                    continue
                queue.append((above, below, (*trail, change.path, below.name)))


def own_changes(old: Subject, new: Subject) -> Iterator[Change]:
    """What differs between two identities: function, version, then arguments."""
    if old.function != new.function:
        yield Change(path="function", old=old.function, new=new.function)
    if old.version != new.version:
        yield Change(path="version", old=old.version, new=new.version)
    yield from difference(old.arguments, new.arguments)
