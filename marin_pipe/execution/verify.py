"""Compare committed outputs with their manifests, byte by byte."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from marin_storage import Entry, NotFound, Store

from marin_pipe.execution.backends.loading import digest_like
from marin_pipe.execution.inventory import Stored
from marin_pipe.execution.layout import commit_key
from marin_pipe.execution.observe import data_directory
from marin_pipe.execution.records import FileEntry

Problem = Literal["missing", "short", "long", "changed", "extra", "damaged"]


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """One file that is not what its commit says."""

    directory: str
    """Step directory of the output."""
    key: str
    """The file, relative to the root."""
    problem: Problem
    detail: str


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The outcome for one output. `mismatches` is empty if it is intact."""

    directory: str
    commit: int
    name: str
    num_files: int
    size_bytes: int
    mismatches: tuple[Mismatch, ...]


def verify_outputs(store: Store, outputs: Iterable[Stored], *, digests: bool = True) -> list[Verified]:
    """Check the current commit of each output that has one; an adopted one where its data lies.

    A record that cannot be read, of a superseded commit too, is a mismatch.

    Args:
        digests: read every byte; else compare names and sizes only.
    """
    return [
        verify_output(store, stored, digests=digests)
        for stored in outputs
        if stored.current is not None or stored.damaged
    ]


def verify_output(store: Store, stored: Stored, *, digests: bool = True) -> Verified:
    """Check one output that has commits. Files are digested many at a time on a remote store."""
    damaged = tuple(
        Mismatch(
            directory=stored.directory, key=commit_key(stored.directory, number), problem="damaged", detail=error.what
        )
        for number, error in sorted(stored.damaged.items())
    )
    commit = stored.current
    if commit is None:
        return Verified(
            directory=stored.directory,
            commit=stored.highest,
            name=stored.name,
            num_files=0,
            size_bytes=0,
            mismatches=damaged,
        )
    prefix = data_directory(stored.directory, commit)
    present = {entry.key[len(prefix) + 1 :]: entry for entry in store.list_files(prefix)}
    found = size_mismatches(commit.manifest, present)
    if digests:
        suspects = [file for file in commit.manifest if file.path not in found]
        for file, problem in zip(
            suspects, store.map(lambda f: _digest_problem(store, f"{prefix}/{f.path}", f), suspects), strict=True
        ):
            if problem is not None:
                found[file.path] = problem
    return Verified(
        directory=stored.directory,
        commit=commit.number,
        name=commit.record.name,
        num_files=len(commit.manifest),
        size_bytes=sum(file.size for file in commit.manifest),
        mismatches=(
            *damaged,
            *(
                Mismatch(directory=stored.directory, key=f"{prefix}/{path}", problem=problem, detail=detail)
                for path, (problem, detail) in sorted(found.items())
            ),
        ),
    )


def size_mismatches(manifest: tuple[FileEntry, ...], present: Mapping[str, Entry]) -> dict[str, tuple[Problem, str]]:
    """Names and sizes alone: problem and detail by path.

    Args:
        present: what lies in the data directory, by path relative to it.
    """
    found: dict[str, tuple[Problem, str]] = {}
    for file in manifest:
        entry = present.get(file.path)
        if entry is None:
            found[file.path] = ("missing", f"{file.size} bytes are recorded")
        elif entry.size_bytes != file.size:
            problem: Problem = "short" if entry.size_bytes < file.size else "long"
            found[file.path] = (problem, f"{entry.size_bytes} bytes, {file.size} are recorded")
    for path in present.keys() - {file.path for file in manifest}:
        found[path] = ("extra", f"{present[path].size_bytes} bytes that no manifest names")
    return found


def _digest_problem(store: Store, key: str, file: FileEntry) -> tuple[Problem, str] | None:
    try:
        digest = digest_like(store, key, file.digest)
    except NotFound:
        return "missing", f"{file.size} bytes are recorded"
    return None if digest == file.digest else ("changed", f"{digest}, {file.digest} is recorded")
