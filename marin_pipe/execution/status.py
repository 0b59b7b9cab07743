"""What steps are doing, from storage alone: states are derived, never stored."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from marin_storage import Store

from marin_pipe.execution.graph import Graph
from marin_pipe.execution.layout import attempt_directory, attempt_name, display_name, lease_key
from marin_pipe.execution.lease import owner_is_dead
from marin_pipe.execution.observe import (
    UNREADABLE,
    Observation,
    list_attempts,
    observe,
    read_ended,
    read_if_whole,
    read_lease,
)
from marin_pipe.execution.records import Ended, Lease, Progress

State = Literal["SUCCEEDED", "RUNNING", "FAILED", "INTERRUPTED", "PREEMPTED", "LOST", "DAMAGED", "ABSENT", "BLOCKED"]
_BY_OUTCOME: Mapping[str, State] = {
    "failed": "FAILED",
    "interrupted": "INTERRUPTED",
    "preempted": "PREEMPTED",
    "lost": "LOST",
}
_BLOCKING = ("FAILED", "INTERRUPTED", "PREEMPTED", "LOST", "DAMAGED", "BLOCKED")


@dataclass(frozen=True, kw_only=True)
class StepStatus:
    """One step at one moment."""

    directory: str
    state: State
    commit: int | None = None
    """Number of the current commit."""
    lease: Lease | None = None
    """The lease, if somebody holds it."""
    beat_age_s: float | None = None
    """How long ago the owner's last beat was written, by the store's time of the lease and this machine's clock. For
    display only: nothing is decided by it."""
    progress: Progress | None = None
    """Of the attempt that runs or was lost."""
    attempt: str | None = None
    """The newest attempt."""
    ended: Ended | None = None
    """How the newest attempt ended, if it said so and there is no commit."""
    note: str = ""

    @property
    def name(self) -> str:
        return display_name(self.directory)


def step_statuses(store: Store, directories: Iterable[str]) -> list[StepStatus]:
    """The status of each directory, looked at many at a time."""
    return store.map(lambda directory: step_status(store, directory), directories)


def graph_statuses(store: Store, graph: Graph) -> dict[str, StepStatus]:
    """The status of each step of a graph by directory; one whose input ended without a commit is BLOCKED."""
    known = {s.directory: s for s in step_statuses(store, [node.directory for node in graph.nodes])}
    for node in graph.nodes:
        mine = known[node.directory]
        if node.step.options.pin is not None:
            known[node.directory] = replace(mine, state="SUCCEEDED", note=f"pinned to {node.step.options.pin.url}")
        elif mine.state not in ("SUCCEEDED", "RUNNING", "DAMAGED"):
            cause = next((i for i in node.inputs if known[i.directory].state in _BLOCKING), None)
            if cause is not None:
                known[node.directory] = replace(mine, state="BLOCKED", note=f"because of {cause.shown}")
    return known


def step_status(store: Store, directory: str) -> StepStatus:
    """Derive one step's state: a commit is SUCCEEDED; a live lease RUNNING; else how the newest attempt ended.

    A commit whose record cannot be read is DAMAGED.
    """
    seen = observe(store, directory)
    lease, beat_age_s = _owner(store, directory) if seen.has_lease else (None, None)
    known = StepStatus(
        directory=directory,
        state="ABSENT",
        commit=seen.highest if seen.commit is not None else None,
        lease=lease,
        beat_age_s=beat_age_s,
        attempt=_newest_attempt(store, directory, seen, lease),
    )
    if lease is not None:
        assert known.attempt is not None
        known = replace(known, progress=_progress(store, directory, known.attempt))
    if seen.commit is not None:
        note = f"{lease.holder} makes commit {lease.commit}" if lease is not None else ""
        return replace(known, state="SUCCEEDED", note=note)
    if lease is not None:
        return _held(known, lease)
    if seen.damage is not None:
        return replace(known, state="DAMAGED", note=f"{seen.damage.what}: {seen.damage.next}")
    withdrawn = f"withdrawn: {seen.withdrawn.reason}" if seen.withdrawn is not None else ""
    if known.attempt is None or seen.withdrawn is not None:
        return replace(known, note=withdrawn)
    ended = read_ended(store, directory, known.attempt)
    if ended is None:
        return replace(known, state="LOST", note="its lease was freed before it could say how it ended")
    return replace(known, state=_BY_OUTCOME[ended.outcome], ended=ended)


def _held(known: StepStatus, lease: Lease) -> StepStatus:
    """Somebody's lease: alive, known to be dead, or silent for too long to tell."""
    ago = f"last beat {known.beat_age_s:.0f} s ago" if known.beat_age_s is not None else ""
    if lease.owner == UNREADABLE:
        return replace(known, state="LOST", note=f"{lease.holder} holds it; {ago}")
    if owner_is_dead(lease):
        return replace(known, state="LOST", note=f"its process is gone; {ago}")
    if known.beat_age_s is not None and known.beat_age_s > lease.ttl_s:
        return replace(known, state="LOST", note=f"LOST? {ago}")
    cancel = f"; asked to stop by {lease.cancel}" if lease.cancel is not None else ""
    return replace(known, state="RUNNING", note=f"{ago}{cancel}")


def _owner(store: Store, directory: str) -> tuple[Lease | None, float | None]:
    present = read_lease(store, directory)
    if present is None or present[0].owner is None:
        return None, None
    return present[0], max(0.0, time.time() - store.stat(lease_key(directory)).modified)


def _newest_attempt(store: Store, directory: str, seen: Observation, lease: Lease | None) -> str | None:
    if lease is not None and lease.owner is not None:
        return attempt_name(lease.epoch, lease.owner)
    if seen.commit is not None and seen.commit.kind == "built":
        return seen.commit.attempt
    attempts = list_attempts(store, directory) if seen.has_attempts else []
    return attempts[-1] if attempts else None


def _progress(store: Store, directory: str, attempt: str) -> Progress | None:
    progress: Progress | None = read_if_whole(store, Progress, f"{attempt_directory(directory, attempt)}/progress.json")
    return progress
