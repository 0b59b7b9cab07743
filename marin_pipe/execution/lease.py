"""The lease: one compare-and-swap object per step that saves duplicate work. It does not make commits safe; their
create-if-absent does. No wall clock is read: liveness is judged by watching the object change.
"""

import functools
import logging
import os
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from marin_storage import AlreadyExists, Conflict, Store

from marin_pipe.execution.layout import attempt_name, lease_key, new_nonce
from marin_pipe.execution.observe import UNREADABLE, Observation, newest_epoch, observe, read_lease
from marin_pipe.execution.records import Lease, encode

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LeaseTimes:
    """How long a silent owner is believed alive. The holder gives up earlier than a watcher takes over.

    GCS allows about one write a second to one object, so a beat is never more frequent than that matters.
    """

    ttl_s: float = 60.0

    @property
    def beat_s(self) -> float:
        return self.ttl_s / 6

    @property
    def give_up_s(self) -> float:
        return self.ttl_s * 2 / 3


@dataclass(frozen=True, kw_only=True)
class Held:
    """A lease this process holds: the body as stored, and its version."""

    directory: str
    lease: Lease
    version: str
    confirmed_s: float
    """`boottime()` just before the write that storage confirmed: no watcher began to count earlier."""

    @property
    def attempt(self) -> str:
        assert self.lease.owner is not None
        return attempt_name(self.lease.epoch, self.lease.owner)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Somebody else holds the lease."""

    lease: Lease
    version: str


@dataclass(frozen=True, kw_only=True)
class Newer:
    """A commit appeared since the step was last looked at."""

    observation: Observation


def boottime() -> float:
    """Seconds since boot, suspend included, so that a holder that slept knows it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True)
class Process:
    """This process as other processes of the host can recognise it."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    pid_start: str


def this_process() -> Process:
    return _process(os.getpid())


@functools.lru_cache(maxsize=2)
def _process(pid: int) -> Process:
    return Process(
        host=socket.gethostname(),
        boot_id=_read_text("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_read_link("/proc/self/ns/pid"),
        pid=pid,
        pid_start=process_start(pid) or "",
    )


def process_start(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None if it does not run (a zombie does not)."""
    text = _read_text(f"/proc/{pid}/stat")
    if not text:
        return None
    # The command name is in parentheses and may hold anything, also spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def owner_is_dead(lease: Lease) -> bool:
    """True if the owner is known to be dead: it ran on this host, in this process namespace, and runs no more."""
    me = this_process()
    same_place = (lease.host, lease.boot_id, lease.pid_namespace) == (me.host, me.boot_id, me.pid_namespace)
    if not me.boot_id or not same_place:
        return False
    return process_start(lease.pid) != lease.pid_start


class Watch:
    """Judges whether an owner is alive by how long its lease stays unchanged, by this process's own clock."""

    def __init__(self) -> None:
        self.dead_version: str | None = None
        """Version of the lease whose owner is believed dead."""
        self._version: str | None = None
        self._since = 0.0

    def expired(self, taken: Taken) -> bool:
        """True once `taken.version` was seen unchanged for its ttl, or its owner is known to be dead."""
        now = boottime()
        if taken.version != self._version:
            self._version, self._since = taken.version, now
        if owner_is_dead(taken.lease) or now - self._since >= taken.lease.ttl_s:
            self.dead_version = taken.version
            return True
        return False


def acquire(
    store: Store, directory: str, *, seen: Observation, times: LeaseTimes, expired: str | None = None
) -> Held | Taken | Newer:
    """Take the lease, or say who has it.

    Args:
        seen: the step as last observed.
        expired: version of a lease whose owner is believed dead (by `Watch`).
    """
    if not seen.has_lease:
        # No lease ever existed if this create succeeds, so nobody can have committed since `seen`.
        # What it left behind can only be there if a power failure took an unsynced lease.
        epoch = newest_epoch(store, directory) + 1 if seen.has_attempts else 1
        lease = _new_lease(epoch=epoch, commit=seen.highest + 1, times=times)
        confirmed_s = boottime()
        try:
            version = store.create(lease_key(directory), encode(lease))
            return Held(directory=directory, lease=lease, version=version, confirmed_s=confirmed_s)
        except AlreadyExists:
            pass
    while True:
        present = read_lease(store, directory)
        if present is None:
            raise Conflict(f"{lease_key(directory)} vanished: leases are never deleted while their step exists")
        current, version = present
        if current.owner is not None and version != expired and not owner_is_dead(current):
            return Taken(lease=current, version=version)
        # The order matters: lease, commits, swap. Who commits after this look changes the lease first.
        observation = observe(store, directory)
        if observation.highest > seen.highest:
            return Newer(observation=observation)
        lease = _new_lease(epoch=current.epoch + 1, commit=observation.highest + 1, times=times)
        confirmed_s = boottime()
        try:
            version = store.replace(lease_key(directory), encode(lease), version=version)
            if current.owner == UNREADABLE:
                logger.warning("%s was damaged, and did not change for a while: taken over", lease_key(directory))
            return Held(directory=directory, lease=lease, version=version, confirmed_s=confirmed_s)
        except Conflict:
            continue


def renew(store: Store, held: Held) -> Held:
    """A further epoch of a lease this process holds, for another try. Conflict if it was lost."""
    lease = held.lease.model_copy(update={"epoch": held.lease.epoch + 1, "owner": new_nonce(), "beat": 0})
    return _swap(store, held, lease)


def beat(store: Store, held: Held) -> Held:
    """Show that the owner is alive. Conflict if the lease was lost."""
    return _swap(store, held, held.lease.model_copy(update={"beat": held.lease.beat + 1}))


def release(store: Store, held: Held) -> None:
    """Give the lease up; it is never deleted. Conflict if it was lost."""
    _swap(store, held, held.lease.model_copy(update={"owner": None, "cancel": None, "beat": held.lease.beat + 1}))


def still_held(store: Store, held: Held) -> bool:
    """Whether storage still names this process as the owner."""
    present = read_lease(store, held.directory)
    return present is not None and _same_owner(present[0], held.lease)


def _swap(store: Store, held: Held, lease: Lease) -> Held:
    version = held.version
    while True:
        confirmed_s = boottime()
        try:
            version = store.replace(lease_key(held.directory), encode(lease), version=version)
            return replace(held, lease=lease, version=version, confirmed_s=confirmed_s)
        except Conflict:
            # Somebody may only have asked for a cancel, which leaves the owner as it is.
            present = read_lease(store, held.directory)
            if present is None or not _same_owner(present[0], held.lease):
                raise
            current, version = present
            if lease.owner is not None:
                lease = lease.model_copy(update={"cancel": current.cancel})
            lease = lease.model_copy(update={"beat": max(lease.beat, current.beat + 1)})


def request_cancel(store: Store, directory: str, *, by: str) -> Lease | None:
    """Ask the owner to stop, through the lease. Returns the lease, or None if nobody holds it."""
    while True:
        present = read_lease(store, directory)
        if present is None or present[0].owner is None:
            return None
        lease, version = present
        asked = lease.model_copy(update={"cancel": by, "beat": lease.beat + 1})
        try:
            store.replace(lease_key(directory), encode(asked), version=version)
            return asked
        except Conflict:
            continue


def force_release(store: Store, directory: str, *, owner: str) -> Lease:
    """Free the lease of `owner`, named by its nonce so that one can only unlock what one saw. Conflict otherwise."""
    present = read_lease(store, directory)
    if present is None or present[0].owner != owner:
        holder = None if present is None else present[0].owner
        raise Conflict(f"{lease_key(directory)} is held by {holder}, not by {owner}")
    lease, version = present
    freed = lease.model_copy(update={"owner": None, "cancel": None, "beat": lease.beat + 1})
    store.replace(lease_key(directory), encode(freed), version=version)
    return lease


def _same_owner(current: Lease, mine: Lease) -> bool:
    return current.owner == mine.owner and current.epoch == mine.epoch


def _new_lease(*, epoch: int, commit: int, times: LeaseTimes) -> Lease:
    me = this_process()
    return Lease(
        epoch=epoch,
        commit=commit,
        owner=new_nonce(),
        host=me.host,
        boot_id=me.boot_id,
        pid_namespace=me.pid_namespace,
        pid=me.pid,
        pid_start=me.pid_start,
        ttl_s=times.ttl_s,
    )


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        # Absent on systems without /proc: the owner is then judged by its beats alone.
        return ""


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
