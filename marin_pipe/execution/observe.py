"""What storage says about one step: one listing of its directory and one read of its highest commit."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from marin_storage import Listing, NotFound, Store

from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.layout import (
    ATTEMPT,
    KEY_DIGITS,
    STEP_DIRECTORY,
    attempt_directory,
    attempt_epoch,
    commit_key,
    commit_number,
    display_name,
    lease_key,
)
from marin_pipe.execution.records import Commit, Ended, Lease, Served, Withdrawn, is_torn, parse

logger = logging.getLogger(__name__)

UNREADABLE = "unreadable"
"""Owner of a lease that does not parse: unknown, and believed alive until the lease has not changed for a while."""
UNREADABLE_TTL_S = 60.0
"""That while: what an owner has by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A step's directory at one moment."""

    highest: int = 0
    """Number of the highest commit; 0 if there is none."""
    commit: Served | None = None
    """The highest commit if it serves data."""
    withdrawn: Withdrawn | None = None
    damage: RecordError | None = None
    """What is wrong with the highest commit's record, if it cannot be read. Only a further commit helps."""
    has_lease: bool = False
    has_attempts: bool = False
    has_work: bool = False

    def served(self) -> Served | None:
        """The commit to serve, if there is one. RecordError if its record is damaged."""
        if self.damage is not None:
            raise self.damage
        return self.commit


NOTHING = Observation()


def observe(store: Store, directory: str, *, key: str | None = None) -> Observation:
    """Look at a step directory. With `key`, check that the commit belongs to that full key."""
    listing = store.list_directory(directory)
    highest = max(commit_numbers(listing), default=0)
    commit = find_commit(store, directory, highest) if highest else None
    damage = commit if isinstance(commit, RecordError) else None
    commit = None if isinstance(commit, RecordError) else commit
    if key is not None and commit is not None and not isinstance(commit, Withdrawn) and commit.record.key != key:
        raise RecordError(
            f"{directory}: its commit {highest} belongs to key {commit.record.key}, not {key}",
            why="two keys share their first 16 digits",
            next="give the step another name with .named(...)",
        )
    return Observation(
        highest=highest,
        commit=None if isinstance(commit, Withdrawn) else commit,
        withdrawn=commit if isinstance(commit, Withdrawn) else None,
        damage=damage,
        has_lease=any(entry.key.endswith("/lease.json") for entry in listing.files),
        has_attempts="attempts" in listing.directories,
        has_work="work" in listing.directories,
    )


def commit_numbers(listing: Listing) -> Iterator[int]:
    """Numbers of the commits in a step directory, in no order. A directory of such a name takes the number too."""
    for entry in listing.files:
        number = commit_number(entry.key.rpartition("/")[2])
        if number is not None:
            yield number
    for name in listing.directories:
        number = commit_number(name)
        if number is not None:
            yield number


def read_commit(store: Store, directory: str, number: int) -> Commit:
    """Commit `number` of a step; NotFound if there is none.

    Raises:
        RecordError: it does not validate, or is the commit of another number or key.
    """
    key = commit_key(directory, number)
    fix = _rebuild(directory)
    commit: Commit = parse(Commit, store.read(key).data, key=key, fix=fix)
    if commit.number != number:
        raise RecordError(
            f"{key}: the record is that of commit {commit.number}",
            why="it was copied or renamed after it was written",
            next=fix,
        )
    if not isinstance(commit, Withdrawn) and not _is_of_directory(commit, directory):
        raise RecordError(
            f"{key}: the record belongs to {commit.record.name}, key {commit.record.key[:KEY_DIGITS]}",
            why="it was copied here, or its directory was renamed",
            next=fix,
        )
    return commit


def _is_of_directory(commit: Served, directory: str) -> bool:
    """Whether the commit's key is that in the directory's name, if there is one."""
    if directory.endswith(commit.record.key[:KEY_DIGITS]):
        return True
    return STEP_DIRECTORY.match(directory.rpartition("/")[2]) is None


def find_commit(store: Store, directory: str, number: int) -> Commit | RecordError:
    """A commit that a listing shows, or what is wrong with its record: others go on without it."""
    try:
        return read_commit(store, directory, number)
    except RecordError as error:
        return error
    except NotFound as error:
        what = f"{commit_key(directory, number)}: the record is listed and cannot be read"
        return RecordError(what, why=str(error), next=_rebuild(directory))


def _rebuild(directory: str) -> str:
    return f"rebuild it with `run --force {display_name(directory)}`"


def read_lease(store: Store, directory: str) -> tuple[Lease, str] | None:
    """The lease and its version, or None. One that a power failure tore reads as released.

    One that does not parse has the owner `UNREADABLE`: somebody may hold it, so it is waited for like any other. A
    live owner finds at its next beat that it lost it.
    """
    key = lease_key(directory)
    try:
        blob = store.read(key)
    except NotFound:
        return None
    if is_torn(blob.data):
        return _stand_in(newest_epoch(store, directory)), blob.version
    try:
        lease: Lease = parse(Lease, blob.data, key=key)
    except RecordError:
        return _stand_in(newest_epoch(store, directory), owner=UNREADABLE), blob.version
    return lease, blob.version


def read_if_whole(store: Store, kind: Any, key: str) -> Any:
    """What is stored as `kind`, or None if it is absent, or damaged and can be done without: a warning names it."""
    try:
        data = store.read(key).data
    except NotFound:
        return None
    if is_torn(data):
        return None
    try:
        return parse(kind, data, key=key)
    except RecordError as error:
        logger.warning("%s. It is left out.", error.what)
        return None


def list_attempts(store: Store, directory: str) -> list[str]:
    """Names of a step's attempts, oldest first."""
    return _attempt_names(store, f"{directory}/attempts")


def newest_epoch(store: Store, directory: str) -> int:
    """The highest epoch that left an attempt; 0 if there is none."""
    return max(map(attempt_epoch, list_attempts(store, directory)), default=0)


def list_work(store: Store, directory: str) -> list[str]:
    """Names of the attempts that left resumable state, oldest first."""
    return _attempt_names(store, f"{directory}/work")


def _attempt_names(store: Store, prefix: str) -> list[str]:
    """What else somebody put there is no attempt."""
    return sorted(name for name in store.list_directory(prefix).directories if ATTEMPT.match(name))


def read_ended(store: Store, directory: str, attempt: str) -> Ended | None:
    """How a try ended, or None if it did not say."""
    ended: Ended | None = read_if_whole(store, Ended, f"{attempt_directory(directory, attempt)}/ended.json")
    return ended


def _stand_in(epoch: int, *, owner: str | None = None) -> Lease:
    return Lease(
        epoch=epoch,
        commit=0,
        owner=owner,
        host="",
        boot_id="",
        pid_namespace="",
        pid=0,
        pid_start="",
        ttl_s=UNREADABLE_TTL_S if owner else 0.0,
    )


def data_directory(directory: str, commit: Served) -> str:
    """Where a commit's data files lie, relative to the root."""
    return f"{directory}/{commit.data}" if commit.kind == "built" else commit.source_data
