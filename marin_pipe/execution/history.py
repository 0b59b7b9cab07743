"""Earlier outputs: finding them under a root, and the nearest one to a step that has none."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from marin_storage import Listing, PermissionDenied, Store

from marin_pipe.execution.difference import Change, difference
from marin_pipe.execution.handle import Step
from marin_pipe.execution.layout import PROJECT, STEP_DIRECTORY, is_name_part
from marin_pipe.execution.observe import NOTHING, Observation, observe
from marin_pipe.execution.records import Served

logger = logging.getLogger(__name__)

NEAREST_LIMIT = 64
"""Earlier outputs of one name that are compared: each costs two requests."""


def step_directories(store: Store, *, below: str = "", unreadable: list[str] | None = None) -> list[str]:
    """Every step directory under a root, sorted. Never looks inside one.

    What else lies there does not matter, nor do directories that this identity may not look into: a warning names
    them.

    Args:
        unreadable: gets those directories.
    """
    found: list[str] = []
    level = [below]
    while level:
        listings = store.map(lambda directory: _listing(store, directory), level)
        deeper = []
        for prefix, listing in zip(level, listings, strict=True):
            if listing is None:
                if unreadable is not None:
                    unreadable.append(prefix)
                continue
            for name in filter(is_name_part, listing.directories):
                path = f"{prefix}/{name}" if prefix else name
                if STEP_DIRECTORY.match(name):
                    found.append(path)
                elif path != PROJECT:
                    deeper.append(path)
        level = deeper
    return sorted(found)


def _listing(store: Store, directory: str) -> Listing | None:
    try:
        return store.list_directory(directory)
    except PermissionDenied as error:
        if not directory:
            raise
        logger.warning("what lies below %s is left out: %s", directory, error)
        return None


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """An earlier output of a step's name, and what differs from it."""

    directory: str
    commit: Served
    changes: tuple[Change, ...]
    """Differences of the function, version and arguments, old to new."""


@dataclass(kw_only=True)
class History:
    """Looks up earlier outputs; listings and commits are read once."""

    store: Store
    _outputs: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By parent directory: last part of a name -> its step directories."""
    _seen: dict[str, Observation] = field(default_factory=dict)

    def outputs(self, name: str) -> list[str]:
        """Step directories of the outputs named `name`."""
        parent, _, last = name.rpartition("/")
        if parent not in self._outputs:
            found = self._outputs[parent] = {}
            for directory in self.store.list_directory(parent).directories:
                match = STEP_DIRECTORY.match(directory)
                if match is not None:
                    found.setdefault(match["name"], []).append(f"{parent}/{directory}" if parent else directory)
        return self._outputs[parent].get(last, [])

    def observe(self, directory: str) -> Observation:
        if directory not in self._seen:
            self._seen[directory] = self._look(directory)
        return self._seen[directory]

    def _look(self, directory: str) -> Observation:
        try:
            return observe(self.store, directory)
        except PermissionDenied as error:
            # Somebody else's output: it is only compared with.
            logger.warning("%s is left out: %s", directory, error)
            return NOTHING

    def nearest(self, step: Step[Any]) -> Earlier | None:
        """The committed output of the same name with the fewest differences; the later built of two equally near."""
        found: list[tuple[int, float, Earlier]] = []
        candidates = [d for d in self.outputs(step.name) if d != step.directory][:NEAREST_LIMIT]
        missing = [directory for directory in candidates if directory not in self._seen]
        self._seen.update(zip(missing, self.store.map(self._look, missing), strict=True))
        for directory in candidates:
            commit = self._seen.get(directory, NOTHING).commit
            if commit is None:
                continue
            earlier = Earlier(directory=directory, commit=commit, changes=tuple(identity_changes(commit, step)))
            built = commit.record.usage.ended if commit.record.usage else 0.0
            found.append((len(earlier.changes), -built, earlier))
        return min(found, key=lambda item: item[:2])[2] if found else None


def identity_changes(commit: Served, step: Step[Any]) -> Iterator[Change]:
    """What differs between a recorded identity and a step's: function, version, then arguments."""
    record = commit.record
    if record.function != step.function.name:
        yield Change(path="function", old=record.function, new=step.function.name)
    if record.version != step.version:
        yield Change(path="version", old=record.version, new=step.version)
    yield from difference(record.arguments, step.bound.canonical)
