"""What lies under a root: every step directory with all its commits, for commands that look at outputs as a whole."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from marin_storage import Store

from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.history import step_directories
from marin_pipe.execution.layout import STEP_DIRECTORY, commit_number, display_name
from marin_pipe.execution.observe import commit_numbers, find_commit, read_commit
from marin_pipe.execution.records import Adopted, Commit, InputUse, Served, Withdrawn


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One step directory. Times are the store's own, in seconds since the epoch."""

    directory: str
    commits: Mapping[int, Commit]
    """Those whose records can be read."""
    damaged: Mapping[int, RecordError]
    """What is wrong with the others."""
    committed: Mapping[int, float]
    """When each commit was written."""
    lease_beat: float | None
    """When the lease was last written; None if there never was one."""
    has_attempts: bool
    has_work: bool

    @property
    def name(self) -> str:
        return display_name(self.directory)

    @property
    def highest(self) -> int:
        return max((*self.commits, *self.damaged), default=0)

    @property
    def current(self) -> Served | None:
        """The highest commit if it serves data. None if its record is damaged, see `damage`."""
        commit = self.commits.get(self.highest)
        return None if commit is None or isinstance(commit, Withdrawn) else commit

    @property
    def damage(self) -> RecordError | None:
        """What is wrong with the highest commit's record, if it cannot be read."""
        return self.damaged.get(self.highest)

    @property
    def served(self) -> list[Served]:
        """Every commit that serves or once served data, oldest first."""
        return [commit for _, commit in sorted(self.commits.items()) if not isinstance(commit, Withdrawn)]


def input_directory(store: Store, use: InputUse) -> str | None:
    """The step directory of this root that an input was read from; None for a pin to somewhere else."""
    return directory_of(store, use.directory)


def directory_of(store: Store, text: str) -> str | None:
    """The step directory that a key, an absolute path or a URL lies in; None if it lies in none of this root's."""
    key = key_below(store, text) if _is_absolute(text) else text
    parts = key.split("/") if key is not None else []
    for index, part in enumerate(parts):
        if STEP_DIRECTORY.match(part):
            return "/".join(parts[: index + 1])
    return None


def key_below(store: Store, text: str) -> str | None:
    """An absolute path or URL as a key relative to the root; None if it does not lie below the root."""
    root, path = _comparable(store.url), _comparable(text)
    if path == root:
        return ""
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else None


def _is_absolute(text: str) -> bool:
    return "://" in text or text.startswith("/")


def _comparable(url: str) -> str:
    for scheme, canonical in (("file://", ""), ("gcs://", "gs://"), ("s3a://", "s3://")):
        if url.startswith(scheme):
            url = canonical + url[len(scheme) :]
    return url.rstrip("/") if "://" in url else os.path.realpath(url)


@dataclass(kw_only=True)
class Inventory:
    """Looks at step directories, many at a time. Commits are immutable, so each is read once."""

    store: Store
    unreadable: list[str] = field(default_factory=list)
    """Directories that this identity may not look into, found by `everything`."""
    _commits: dict[tuple[str, int], Commit] = field(default_factory=dict)

    def everything(self, *, below: str = "") -> dict[str, Stored]:
        """Every step directory under the root, by directory, sorted."""
        return self.look(step_directories(self.store, below=below, unreadable=self.unreadable))

    def look(self, directories: Iterable[str]) -> dict[str, Stored]:
        """The named step directories as they are now: a listing each, and their commits if they are new."""
        names = list(directories)
        stored = self.store.map(self._look, names)
        return dict(zip(names, stored, strict=True))

    def commit(self, directory: str, number: int) -> Commit:
        """One commit; NotFound if there is none, RecordError if its record is damaged."""
        known = self._commits.get((directory, number))
        if known is None:
            known = self._commits[directory, number] = read_commit(self.store, directory, number)
        return known

    def _find(self, directory: str, number: int) -> Commit | RecordError:
        known = self._commits.get((directory, number)) or find_commit(self.store, directory, number)
        if not isinstance(known, RecordError):
            self._commits[directory, number] = known
        return known

    def _look(self, directory: str) -> Stored:
        listing = self.store.list_directory(directory)
        found = {number: self._find(directory, number) for number in sorted(commit_numbers(listing))}
        committed: dict[int, float] = {}
        lease_beat = None
        for entry in listing.files:
            name = entry.key.rpartition("/")[2]
            number = commit_number(name)
            if number is not None:
                committed[number] = entry.modified
            elif name == "lease.json":
                lease_beat = entry.modified
        return Stored(
            directory=directory,
            commits={number: commit for number, commit in found.items() if not isinstance(commit, RecordError)},
            damaged={number: error for number, error in found.items() if isinstance(error, RecordError)},
            committed=committed,
            lease_beat=lease_beat,
            has_attempts="attempts" in listing.directories,
            has_work="work" in listing.directories,
        )


def sources(store: Store, commit: Served) -> set[str]:
    """Directories of this root that a commit's record names: its inputs, and where an adopted output came from."""
    uses = [*commit.record.inputs]
    found: set[str] = set()
    if isinstance(commit, Adopted):
        found.add(commit.source_directory)
        uses.extend(commit.source_inputs)
    found.update(directory for use in uses if (directory := input_directory(store, use)) is not None)
    return found
