"""What differs between two steps or outputs: identity, code, inputs, data, and the world they were made in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from marin_storage import Store

from marin_pipe.execution.difference import readable
from marin_pipe.execution.errors import MissingOutput
from marin_pipe.execution.finding import Found
from marin_pipe.execution.provenance import read_packages
from marin_pipe.execution.records import Record
from marin_pipe.execution.source import changed_parts
from marin_pipe.execution.subject import Subject, Subjects

Section = Literal["identity", "arguments", "source", "inputs", "files", "result", "environment", "packages"]
_NONE = "(none)"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that differs. `old` and `new` are for people; empty where `what` says it all."""

    section: Section
    what: str
    old: str = ""
    new: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.old} -> {self.new}" if self.old or self.new else self.what


def compare(subjects: Subjects, old: Subject, new: Subject) -> list[Difference]:
    """Differences from `old` to `new`, by section. Data and environment are compared if both have a commit."""
    found = [*_identity(old, new)]
    found += [Difference(section="arguments", what=str(cause)) for cause in subjects.causes(old, new)]
    found += [Difference(section="source", what=text) for text in changed_parts(old.source_parts(), new.source_parts())]
    if old.commit is None or new.commit is None:
        without = old if old.commit is None else new
        found.append(Difference(section="files", what=f"{without.directory} has no output yet"))
        return found
    before, after = old.commit.record, new.commit.record
    found += _mapping("inputs", _inputs(before), _inputs(after))
    found += _mapping(
        "files",
        {file.path: f"{file.size} bytes, {file.digest[:19]}" for file in old.commit.manifest},
        {file.path: f"{file.size} bytes, {file.digest[:19]}" for file in new.commit.manifest},
    )
    if before.result != after.result or before.result_type != after.result_type:
        found.append(
            Difference(section="result", what="result", old=readable(before.result), new=readable(after.result))
        )
    found += _mapping("environment", _environment(before), _environment(after))
    if before.provenance.packages != after.provenance.packages:
        packages = (read_packages(subjects.store, r.provenance.packages) for r in (before, after))
        found += _mapping("packages", *packages)
    return found


def compare_steps(store: Store, old: Found, new: Found) -> list[Difference]:
    """Compare what two texts were found to stand for.

    Raises:
        MissingOutput: one is no step of the graph and has no record.
    """
    subjects = Subjects(store=store)
    return compare(subjects, _subject(subjects, old), _subject(subjects, new))


def _subject(subjects: Subjects, found: Found) -> Subject:
    if found.node is not None and found.commit is None:
        return subjects.of_node(found.node)
    subject = subjects.of_output(found.directory, found.commit)
    if subject is None:
        raise MissingOutput(
            f"{found.directory} has no record to compare",
            why="nothing was committed there",
            next="run it first, or compare from the experiment that defines it",
        )
    return subject


def _identity(old: Subject, new: Subject) -> Iterator[Difference]:
    for what in ("name", "function", "module", "version", "key"):
        before, after = getattr(old, what), getattr(new, what)
        if before != after:
            yield Difference(section="identity", what=what, old=before, new=after)


def _inputs(record: Record) -> dict[str, str]:
    return {
        argument: f"{use.directory}, commit {use.commit}, output {use.output_digest[:12]}"
        for use in record.inputs
        for argument in use.arguments
    }


def _environment(record: Record) -> dict[str, str]:
    by = record.provenance
    facts = {
        "python": by.python,
        "host": by.host,
        "user": by.user,
        "git commit": by.git_commit or _NONE,
        "uncommitted changes": (by.git_dirty_digest or _NONE)[:12],
        "resources": record.resources or _NONE,
    }
    return {
        **facts,
        **{f"variable {name}": value for name, value in record.environment.items()},
        **{f"runtime argument {name}": value for name, value in record.runtime.items()},
    }


def _mapping(section: Section, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, _NONE), new.get(name, _NONE)
        if before != after:
            yield Difference(section=section, what=name, old=before, new=after)
