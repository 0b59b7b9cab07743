"""Collection of outputs that nothing kept reaches, and of what attempts left behind.

Deleting goes on while others run, so it follows a protocol in which one of two always sees the other:

1. *Withdraw.* Under its lease each unreachable output gets a tombstone, a `withdrawn` commit with the next number. From
   then on nobody starts to use it. The build pointers to it are removed.
2. *Announce.* `gc.json` gets new bytes. A launch reads it before it looks at storage and again after its launch record
   is written: if it changed, the launch looks again.
3. *Look again* at launches, labels, records and adoptions. A launch that saw an output before its tombstone has either
   written its record by now, which is seen here, or reads `gc.json` after step 2. An adoption is either published by
   now, which is seen here, or its author, who looks at the build pointer again after publishing, finds it gone and
   withdraws the adoption (`commit.py`; `adoption.py` looks at the source's commits).
4. What has become reachable is *restored*: its last commit is made again under the number after the tombstone. If
   somebody else has taken that number, theirs stands.
5. Only then the attempts and `work/` of the others are *deleted*: by name, and only those older than this lease, so
   that an attempt which began after a slow collection lost its lease is never touched. Commits and leases stay: they
   are small, and the lease's epoch must go on growing.

Whoever deletes has written a tombstone of their own first, so of two collections at most one restores or deletes.
Without `delete` nothing is written. Ages are by the store's own times.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from marin_storage import AlreadyExists, Conflict, Entry, NotFound, Store

from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.inventory import Inventory, Stored
from marin_pipe.execution.layout import (
    GC_FILE,
    attempt_directory,
    build_key_file,
    commit_key,
    new_nonce,
    work_directory,
)
from marin_pipe.execution.lease import Held, LeaseTimes, Newer, Taken, acquire, release
from marin_pipe.execution.observe import Observation, list_attempts, list_work, read_ended
from marin_pipe.execution.reach import (
    Launches,
    abandoned,
    divide_launches,
    launch_records,
    live_leases,
    named_by_labels,
    named_by_launches,
    reach,
)
from marin_pipe.execution.records import BuildPointer, Built, Withdrawn, encode, parse

DAY_S = 86_400.0
_UNREACHED = "no kept launch, label or live lease reaches it"


@dataclass(frozen=True, kw_only=True)
class GcPolicy:
    """What is kept for its age or number."""

    keep_runs: int = 5
    """Launch records kept of each experiment, whatever their age."""
    older_than_s: float = 30 * DAY_S
    """Younger launch records, and outputs that no launch names, are kept."""
    leftovers_older_than_s: float = 7 * DAY_S
    """Younger attempts without a commit, and younger `work/` of committed steps, are kept."""

    def __post_init__(self) -> None:
        for name in ("keep_runs", "older_than_s", "leftovers_older_than_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Something that is (or would be) deleted. `key` is a directory relative to the root."""

    kind: Literal["output", "attempt", "work"]
    directory: str
    key: str
    num_files: int
    size_bytes: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """Something that looked collectable and stays."""

    directory: str
    why: str


@dataclass(frozen=True, kw_only=True)
class GcReport:
    """What was found, and deleted if `deleted`."""

    root: str
    deleted: bool
    removals: tuple[Removal, ...]
    launches: tuple[str, ...]
    """Keys of launch records that are neither among the last of their experiment nor young."""
    left: tuple[Left, ...]
    num_kept: int
    """Step directories that something kept reaches."""

    @property
    def size_bytes(self) -> int:
        return sum(removal.size_bytes for removal in self.removals)


def collect(store: Store, policy: GcPolicy, *, delete: bool, user: str, times: LeaseTimes | None = None) -> GcReport:
    """Find what nothing kept reaches, and with `delete` remove it.

    Args:
        user: who collects, for tombstones.
        times: of the leases taken while deleting.

    Raises:
        RecordError: a commit, label or launch record cannot be read. Nothing is deleted then: what it names is unknown.
    """
    collection = _Collection(store=store, policy=policy, user=user, times=times or LeaseTimes())
    return collection.run(delete=delete)


@dataclass(frozen=True, kw_only=True)
class _Doomed:
    """An output with its tombstone, under our lease."""

    held: Held
    stored: Stored
    """As it was before the tombstone."""
    removal: Removal


@dataclass(kw_only=True)
class _Collection:
    store: Store
    policy: GcPolicy
    user: str
    times: LeaseTimes
    now: float = field(default_factory=time.time)
    """In seconds since the epoch: the store's own time once something is written, until then this machine's."""
    left: list[Left] = field(default_factory=list)

    def run(self, *, delete: bool) -> GcReport:
        if delete:
            self.now = self._announce()
        inventory = Inventory(store=self.store)
        stored = inventory.everything()
        damaged = _damaged(stored)
        launches = divide_launches(
            self.store, keep_runs=self.policy.keep_runs, older_than_s=self.policy.older_than_s, now=self.now
        )
        kept = self._kept(stored, launches, damaged)
        _refuse(damaged)
        _refuse_unreadable(inventory.unreadable, kept)
        unreachable = [s for directory, s in stored.items() if directory not in kept and _holds_something(s)]
        outputs = self._output_removals(unreachable)
        leftovers = self._leftovers([s for d, s in stored.items() if d in kept])
        if delete:
            outputs = self._delete_outputs(inventory, stored, outputs, launches)
            leftovers = self._delete_leftovers(stored, leftovers)
            for entry in launches.expired:
                self.store.delete(entry.key)
        return GcReport(
            root=self.store.url,
            deleted=delete,
            removals=(*outputs, *leftovers),
            launches=tuple(entry.key for entry in launches.expired),
            left=tuple(self.left),
            num_kept=sum(directory in kept for directory in stored),
        )

    def _announce(self) -> float:
        """Change `gc.json`; returns the store's own time of that."""
        body = {"user": self.user, "nonce": new_nonce(), "written": time.time()}
        self.store.write(GC_FILE, json.dumps(body).encode())
        return self.store.stat(GC_FILE).modified

    def _kept(self, stored: Mapping[str, Stored], launches: Launches, damaged: list[RecordError]) -> dict[str, str]:
        """Directories that must stay, with the reason; adds to `damaged` what is wrong with labels and launches."""
        roots = {
            **named_by_labels(self.store, damaged=damaged),
            **named_by_launches(self.store, launches.kept, damaged=damaged),
        }
        for directory, s in stored.items():
            if directory not in roots and self.now - _touched(s) < self.policy.older_than_s:
                roots[directory] = "it is young"
        kept = reach(self.store, stored, roots)
        rest = [s for directory, s in stored.items() if directory not in kept]
        live = live_leases(self.store, rest, now=self.now)
        return reach(self.store, stored, {**kept, **{d: f"{o.holder} works on it" for d, o in live.items()}})

    # --- outputs ------------------------------------------------------------------------------------------------------

    def _output_removals(self, unreachable: Iterable[Stored]) -> list[Removal]:
        candidates = list(unreachable)
        files = self.store.map(self._data_files, candidates)
        return [
            _removal("output", s.directory, s.directory, found, why=_why_unreachable(s))
            for s, found in zip(candidates, files, strict=True)
            if found or s.current is not None
        ]

    def _data_files(self, stored: Stored) -> list[Entry]:
        found: list[Entry] = []
        for present, part in ((stored.has_attempts, "attempts"), (stored.has_work, "work")):
            if present:
                found += self.store.list_files(f"{stored.directory}/{part}")
        return found

    def _delete_outputs(
        self, inventory: Inventory, stored: Mapping[str, Stored], removals: list[Removal], launches: Launches
    ) -> list[Removal]:
        doomed: dict[str, _Doomed] = {}

        def withdraw(removal: Removal) -> None:
            one = self._withdraw(stored[removal.directory], removal)
            if one is not None:
                doomed[removal.directory] = one

        try:
            self.store.map(withdraw, removals)
            if not doomed:
                return []
            self._announce()
            reached = self._reached_meanwhile(inventory, doomed, launches)
            for directory in doomed.keys() & reached.keys():
                self._restore(doomed[directory], why=reached[directory])
            gone = [doomed[directory] for directory in sorted(doomed.keys() - reached.keys())]
            self.store.map(self._delete_data, gone)
            return [one.removal for one in gone]
        finally:
            for one in doomed.values():
                self._release(one.held)

    def _withdraw(self, stored: Stored, removal: Removal) -> _Doomed | None:
        """Put a tombstone on an output; None if it is in use or was changed meanwhile."""
        held = self._acquire(stored)
        if held is None:
            return None
        if self._tombstone(held, reason=f"collected by {self.user}: {_UNREACHED}"):
            self._remove_pointers(stored)
            return _Doomed(held=held, stored=stored, removal=removal)
        self._release(held)
        self.left.append(Left(directory=stored.directory, why="somebody committed meanwhile"))
        return None

    def _acquire(self, stored: Stored) -> Held | None:
        seen = Observation(highest=stored.highest, has_lease=stored.lease_beat is not None)
        expired = abandoned(self.store, stored.directory, now=self.now) if seen.has_lease else None
        got = acquire(self.store, stored.directory, seen=seen, times=self.times, expired=expired)
        if isinstance(got, Taken):
            self.left.append(Left(directory=stored.directory, why=f"{got.lease.holder} works on it"))
            return None
        if isinstance(got, Newer):
            self.left.append(Left(directory=stored.directory, why="somebody committed meanwhile"))
            return None
        return got

    def _tombstone(self, held: Held, *, reason: str) -> bool:
        assert held.lease.owner is not None
        withdrawn = Withdrawn(number=held.lease.commit, owner=held.lease.owner, reason=reason)
        try:
            self.store.create(commit_key(held.directory, withdrawn.number), encode(withdrawn), durable=True)
        except AlreadyExists:
            return False
        return True

    def _remove_pointers(self, stored: Stored) -> None:
        for commit in stored.served:
            key = build_key_file(commit.record.build_key)
            if not isinstance(commit, Built) or not commit.record.build_key:
                continue
            try:
                blob = self.store.read(key)
                pointer: BuildPointer = parse(BuildPointer, blob.data, key=key)
                if pointer.directory == stored.directory and pointer.commit <= stored.highest:
                    self.store.delete(key, version=blob.version)
            except (NotFound, Conflict, RecordError):
                continue  # another build took its place, or it leads nowhere

    def _reached_meanwhile(
        self, inventory: Inventory, doomed: Mapping[str, _Doomed], before: Launches
    ) -> dict[str, str]:
        """What launches, labels and outputs outside `doomed` reach now."""
        stored = inventory.everything()
        expired = {entry.key for entry in before.expired}
        keys = [entry.key for entry in launch_records(self.store) if entry.key not in expired]
        damaged = _damaged(stored)
        roots = {
            **named_by_labels(self.store, damaged=damaged),
            **named_by_launches(self.store, keys, damaged=damaged),
        }
        if damaged:
            return dict.fromkeys(doomed, f"{damaged[0].what}, and nobody knows what it names")
        for directory, s in stored.items():
            if directory not in doomed and s.current is not None:
                roots.setdefault(directory, "it is an output that stays")
        return reach(self.store, stored, roots)

    def _restore(self, one: _Doomed, *, why: str) -> None:
        """Make the last commit again, under the number after the tombstone, with its build pointer."""
        directory = one.held.directory
        self.left.append(Left(directory=directory, why=f"it is needed since a moment ago: {why}"))
        commit = one.stored.current
        if commit is None:
            return
        number = one.held.lease.commit + 1
        again = commit.model_copy(update={"number": number, "owner": one.held.lease.owner})
        try:
            self.store.create(commit_key(directory, number), encode(again), durable=True)
        except AlreadyExists:
            return  # rebuilt, or collected by somebody else: theirs stands
        if isinstance(again, Built) and again.record.build_key and not again.record.resumed_sources:
            pointer = BuildPointer(directory=directory, commit=number, output_digest=again.output_digest)
            self.store.write(build_key_file(again.record.build_key), encode(pointer))

    def _delete_data(self, one: _Doomed) -> None:
        directory = one.held.directory
        names = [attempt_directory(directory, name) for name in list_attempts(self.store, directory)]
        names += [work_directory(directory, name) for name in list_work(self.store, directory)]
        older = [key for key in names if _epoch(key.rpartition("/")[2]) < one.held.lease.epoch]
        self.store.map(self.store.delete_tree, older)

    def _release(self, held: Held) -> None:
        try:
            release(self.store, held)
        except Conflict:
            return  # taken over after our silence; commits decide, not the lease

    # --- what attempts left behind ------------------------------------------------------------------------------------

    def _leftovers(self, kept: Iterable[Stored]) -> list[Removal]:
        """Attempts without a commit, and `work/` of committed steps, in directories that stay."""
        candidates = [s for s in kept if s.has_attempts or (s.has_work and s.current is not None)]
        found: list[Removal] = []
        suspects = []
        for s, keys in zip(candidates, self.store.map(self._leftover_keys, candidates), strict=True):
            suspects += [(s, kind, key) for kind, key in keys]
        files = self.store.map(lambda suspect: self.store.list_files(suspect[2]), suspects)
        old = [
            (suspect, entries)
            for suspect, entries in zip(suspects, files, strict=True)
            if entries and self.now - max(entry.modified for entry in entries) >= self.policy.leftovers_older_than_s
        ]
        live = live_leases(self.store, {s.directory: s for (s, _, _), _ in old}.values(), now=self.now)
        for (s, kind, key), entries in old:
            if s.directory in live:
                continue
            age = f"{(self.now - max(entry.modified for entry in entries)) / DAY_S:.0f} days old"
            why = f"attempt without a commit, {age}" if kind == "attempt" else f"work of a committed step, {age}"
            if kind == "attempt" and not self._cannot_commit(s, key) and s.current is not None:
                reason = f"{key}: its process, if it is only asleep, could still commit it"
                self.left.append(Left(directory=s.directory, why=reason))
                continue
            found.append(_removal(kind, s.directory, key, entries, why=why))
        return found

    def _leftover_keys(self, stored: Stored) -> list[tuple[Literal["attempt", "work"], str]]:
        found: list[tuple[Literal["attempt", "work"], str]] = []
        if stored.has_attempts:
            committed = {commit.attempt for commit in stored.served if isinstance(commit, Built)}
            names = list_attempts(self.store, stored.directory)
            found += [("attempt", attempt_directory(stored.directory, n)) for n in names if n not in committed]
        if stored.has_work and stored.current is not None:
            names = list_work(self.store, stored.directory)
            found += [("work", work_directory(stored.directory, n)) for n in names]
        return found

    def _cannot_commit(self, stored: Stored, key: str) -> bool:
        """Whether an attempt can no longer commit: it said how it ended, or the number it would use is taken.

        Numbers grow with epochs: an attempt older than the one of a commit would use that commit's number or a lower.
        """
        attempt = key.rpartition("/")[2]
        built = [commit.attempt for commit in stored.served if isinstance(commit, Built)]
        later = any(_epoch(name) > _epoch(attempt) for name in built)
        return later or read_ended(self.store, stored.directory, attempt) is not None

    def _delete_leftovers(self, stored: Mapping[str, Stored], removals: list[Removal]) -> list[Removal]:
        by_directory: dict[str, list[Removal]] = {}
        for removal in removals:
            by_directory.setdefault(removal.directory, []).append(removal)
        removed: list[Removal] = []
        for directory, group in by_directory.items():
            held = self._acquire(stored[directory])
            if held is None:
                continue
            try:
                removed += self._delete_group(held, stored[directory], group)
            finally:
                self._release(held)
        return removed

    def _delete_group(self, held: Held, stored: Stored, group: list[Removal]) -> list[Removal]:
        risky = [r for r in group if r.kind == "attempt" and not self._cannot_commit(stored, r.key)]
        if risky and not self._tombstone(held, reason=f"attempts removed by {self.user}; there was no output"):
            # Somebody commits at this moment.
            group = [removal for removal in group if removal not in risky]
        self.store.map(lambda removal: self.store.delete_tree(removal.key), group)
        return group


def _damaged(stored: Mapping[str, Stored]) -> list[RecordError]:
    return [error for s in stored.values() for _, error in sorted(s.damaged.items())]


def _refuse(damaged: list[RecordError]) -> None:
    """RecordError that names every record that cannot be read: what it names must not be collected."""
    if not damaged:
        return
    raise RecordError(
        "nothing is collected, since records cannot be read: " + "; ".join(error.what for error in damaged),
        why="each may name outputs that must be kept",
        next="restore them; or rebuild or label anew what is still needed, then move the damaged files out of the root",
    )


def _refuse_unreadable(unreadable: Iterable[str], kept: Iterable[str]) -> None:
    """RecordError if something that must be kept lies where this identity may not look; others are not ours."""
    for prefix in unreadable:
        inside = next((directory for directory in kept if directory.startswith(f"{prefix}/")), None)
        if inside is not None:
            raise RecordError(
                f"nothing is collected, since {prefix} may not be read, where {inside} lies",
                why="its records may name outputs that must be kept",
                next="collect as a user who may read it",
            )


def _holds_something(stored: Stored) -> bool:
    return stored.current is not None or stored.has_attempts or stored.has_work


def _touched(stored: Stored) -> float:
    """When something was last committed or somebody last worked there, by the store's times."""
    return max(*stored.committed.values(), stored.lease_beat or 0.0, 0.0)


def _why_unreachable(stored: Stored) -> str:
    commit = stored.served[-1] if stored.served else None
    if commit is None:
        return f"never committed; {_UNREACHED}"
    by = commit.record.provenance
    made = f"{by.experiment}, launch {by.run}" if by.experiment else f"launch {by.run}"
    return f"made by {made} ({by.user}); {_UNREACHED}"


def _epoch(attempt: str) -> int:
    return int(attempt.partition("-")[0])


def _removal(
    kind: Literal["output", "attempt", "work"], directory: str, key: str, entries: Iterable[Entry], *, why: str
) -> Removal:
    files = list(entries)
    return Removal(
        kind=kind,
        directory=directory,
        key=key,
        num_files=len(files),
        size_bytes=sum(entry.size_bytes for entry in files),
        why=why,
    )
