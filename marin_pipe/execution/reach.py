"""What must be kept under a root: everything that launches, labels and live leases reach through records.

Reachability is a matter of step directories, not of single commits: of a directory that is reached, every commit keeps
its data, because a launch in progress reads the commits it resolved at its start.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from marin_storage import Entry, Store

from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.inventory import Stored, directory_of, key_below, sources
from marin_pipe.execution.labels import list_labels
from marin_pipe.execution.layout import PROJECT, lease_key
from marin_pipe.execution.lease import owner_is_dead
from marin_pipe.execution.observe import read_lease
from marin_pipe.execution.records import Launch, Lease, parse

ABANDONED_S = 7 * 86_400.0
"""A lease silent for so long by the store's own times belongs to nobody."""


@dataclass(frozen=True, kw_only=True)
class Launches:
    """Launch records, divided. Keys are relative to the root."""

    kept: tuple[str, ...]
    expired: tuple[Entry, ...]


def launch_records(store: Store) -> list[Entry]:
    """The launch records of all experiments."""
    return [entry for entry in store.list_files(f"{PROJECT}/experiments") if entry.key.endswith(".json")]


def divide_launches(store: Store, *, keep_runs: int, older_than_s: float, now: float) -> Launches:
    """Keep the last `keep_runs` of each experiment and all that are younger than `older_than_s`.

    Args:
        now: by the clock that the store's own times are of, in seconds since the epoch.
    """
    by_experiment: dict[str, list[Entry]] = {}
    for entry in launch_records(store):
        by_experiment.setdefault(entry.key.rpartition("/")[0], []).append(entry)
    kept, expired = [], []
    for entries in by_experiment.values():
        entries.sort(key=lambda entry: (entry.modified, entry.key), reverse=True)
        for index, entry in enumerate(entries):
            if index < keep_runs or now - entry.modified < older_than_s:
                kept.append(entry.key)
            else:
                expired.append(entry)
    return Launches(kept=tuple(kept), expired=tuple(expired))


def named_by_launches(store: Store, keys: Iterable[str], *, damaged: list[RecordError]) -> dict[str, str]:
    """Directories that launch records name, each with the launch as the reason.

    Args:
        damaged: gets what is wrong with the records that cannot be read.
    """
    reasons: dict[str, str] = {}
    keys = list(keys)
    for key, blob in zip(keys, store.read_many(keys), strict=True):
        try:
            launch: Launch = parse(Launch, blob.data, key=key)
        except RecordError as error:
            damaged.append(error)
            continue
        why = f"launch {launch.run} of {launch.experiment}"
        for step in launch.steps:
            for directory in (step.directory, *step.inputs):
                reasons.setdefault(directory, why)
            pinned = directory_of(store, step.pin) if step.pin is not None else None
            if pinned is not None:
                reasons.setdefault(pinned, f"pinned by {why}")
    return reasons


def named_by_labels(store: Store, *, damaged: list[RecordError]) -> dict[str, str]:
    """Directories that labels name.

    Args:
        damaged: gets what is wrong with the labels that cannot be read.
    """
    return {label.directory: f"label {label.label}" for label in list_labels(store, damaged=damaged)}


def live_leases(store: Store, stored: Iterable[Stored], *, now: float) -> dict[str, Lease]:
    """The leases among `stored` whose owner may be alive, by directory."""
    candidates = [s for s in stored if s.lease_beat is not None and now - s.lease_beat < ABANDONED_S]
    found: dict[str, Lease] = {}
    for s, present in zip(candidates, store.map(lambda s: read_lease(store, s.directory), candidates), strict=True):
        if present is not None and present[0].owner is not None and not owner_is_dead(present[0]):
            found[s.directory] = present[0]
    return found


def abandoned(store: Store, directory: str, *, now: float) -> str | None:
    """The version of a step's lease if its owner has been silent for too long to be alive."""
    present = read_lease(store, directory)
    # Read before its time is: a lease that changes in between is seen to be young.
    if present is None or now - store.stat(lease_key(directory)).modified < ABANDONED_S:
        return None
    return present[1]


def _listed_as(store: Store, directory: str) -> str | None:
    """The name under which a directory is listed that a link on the way leads to: a listing has each once."""
    local = store.local_path(directory)
    return key_below(store, os.path.realpath(local)) if local is not None and local.exists() else None


def reach(store: Store, stored: Mapping[str, Stored], roots: Mapping[str, str]) -> dict[str, str]:
    """Everything that `roots` reach through recorded inputs and adoptions, themselves included, with the reason.

    Args:
        roots: directory -> why it is kept.
    """
    kept = dict(roots)
    stack = list(roots)
    while stack:
        directory = stack.pop()
        here = stored.get(directory)
        if here is None:
            listed = _listed_as(store, directory)
            if listed is not None and listed in stored and listed not in kept:
                kept[listed] = kept[directory]
                stack.append(listed)
            continue
        for commit in here.served:
            for source in sources(store, commit):
                if source not in kept:
                    kept[source] = f"{directory} was made from it"
                    stack.append(source)
    return kept
