"""What storage says about one step: one listing of its directory and one read of its highest commit."""

from dataclasses import dataclass

from marin_storage import NotFound, Store

from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.layout import ATTEMPT, attempt_directory, attempt_epoch, commit_key, commit_number, lease_key
from marin_pipe.execution.records import Commit, Ended, Lease, Served, Withdrawn, is_torn, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A step's directory at one moment."""

    highest: int = 0
    """Number of the highest commit; 0 if there is none."""
    commit: Served | None = None
    """The highest commit if it serves data."""
    withdrawn: Withdrawn | None = None
    has_lease: bool = False
    has_attempts: bool = False
    has_work: bool = False


NOTHING = Observation()


def observe(store: Store, directory: str, *, key: str | None = None) -> Observation:
    """Look at a step directory. With `key`, check that the commit belongs to that full key."""
    listing = store.list_directory(directory)
    highest = 0
    has_lease = False
    for entry in listing.files:
        name = entry.key.rpartition("/")[2]
        if name == "lease.json":
            has_lease = True
            continue
        number = commit_number(name)
        if number is not None and number > highest:
            highest = number
    commit = read_commit(store, directory, highest) if highest else None
    if key is not None and commit is not None and not isinstance(commit, Withdrawn) and commit.record.key != key:
        raise RecordError(
            f"{directory}: its commit {highest} belongs to key {commit.record.key}, not {key}",
            why="two keys share their first 16 digits, or a directory was renamed by hand",
            next="give the step another name with .named(...)",
        )
    return Observation(
        highest=highest,
        commit=None if isinstance(commit, Withdrawn) else commit,
        withdrawn=commit if isinstance(commit, Withdrawn) else None,
        has_lease=has_lease,
        has_attempts="attempts" in listing.directories,
        has_work="work" in listing.directories,
    )


def read_commit(store: Store, directory: str, number: int) -> Commit:
    """Commit `number` of a step; NotFound if there is none."""
    key = commit_key(directory, number)
    commit: Commit = parse(Commit, store.read(key).data, key=key)
    return commit


def read_lease(store: Store, directory: str) -> tuple[Lease, str] | None:
    """The lease and its version, or None. One that a power failure tore reads as released."""
    key = lease_key(directory)
    try:
        blob = store.read(key)
    except NotFound:
        return None
    if is_torn(blob.data):
        return _released(newest_epoch(store, directory)), blob.version
    lease: Lease = parse(Lease, blob.data, key=key)
    return lease, blob.version


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
    key = f"{attempt_directory(directory, attempt)}/ended.json"
    try:
        blob = store.read(key)
    except NotFound:
        return None
    if is_torn(blob.data):
        return None
    ended: Ended = parse(Ended, blob.data, key=key)
    return ended


def _released(epoch: int) -> Lease:
    return Lease(
        epoch=epoch, commit=0, owner=None, host="", boot_id="", pid_namespace="", pid=0, pid_start="", ttl_s=0.0
    )


def data_directory(directory: str, commit: Served) -> str:
    """Where a commit's data files lie, relative to the root."""
    return f"{directory}/{commit.data}" if commit.kind == "built" else commit.source_data
