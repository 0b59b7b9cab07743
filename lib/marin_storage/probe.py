"""Does this store keep its word? Some S3-compatible stores and emulators accept conditional writes and ignore the
condition; on such a store two runs would both believe that they own a step."""

import json
import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from marin_storage.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsuitable,
)
from marin_storage.store import Store

logger = logging.getLogger("marin_storage")

_FORMAT = 1
_OUTAGES = (Unavailable, PermissionDenied, OutOfSpace)


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What a probe saw: `problems` is empty for a store that can be shared by several runs."""

    url: str
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems


def probe(store: Store, *, prefix: str = ".probe") -> ProbeResult:
    """Try on a new object below `prefix` whether conditions are honoured; leaves nothing behind.

    An outage, a refused permission or a full disk is raised as such: they say nothing about the store's honesty. So is
    a place where nothing at all can be written, as `Unsuitable`.
    """
    directory = f"{prefix}/{secrets.token_hex(8)}" if prefix else secrets.token_hex(8)
    problems = []
    try:
        for problem in _problems(store, directory):
            problems.append(problem)
    except _OUTAGES:
        raise
    except StorageError as error:
        _require_plain_writes(store, directory)
        problems.append(f"it does not offer what conditional writes need ({error})")
    finally:
        store.delete_tree(directory)
    return ProbeResult(url=store.url, problems=tuple(problems))


def _require_plain_writes(store: Store, directory: str) -> None:
    try:
        store.write(f"{directory}/plain", b"plain")
    except _OUTAGES:
        raise
    except StorageError as error:
        raise Unsuitable(f"nothing can be written to {store.url} ({error})") from error


def ensure_writable(store: Store, record_key: str, *, single_writer: bool = False) -> ProbeResult:
    """Refuse a store whose conditional writes lie. Call before the first write of a process.

    A store that passed before, by the JSON object at `record_key`, is not probed again. Raises `Unsuitable` for one
    that fails, unless `single_writer` says that no other run uses this root meanwhile.
    """
    record = {"format": _FORMAT, "url": store.url, "conditional_writes": True}
    if _stored_record(store, record_key) == record:
        return ProbeResult(url=store.url, problems=())
    result = probe(store, prefix=record_key.rpartition("/")[0])
    if result.passed:
        store.write(record_key, json.dumps(record).encode())
        return result
    seen = "; ".join(result.problems)
    lost = (
        "two runs at once on this root may both do the work of one step, and the later one overwrites what the "
        "earlier one committed"
    )
    if not single_writer:
        raise Unsuitable(
            f"{store.url} cannot be shared by several runs: {seen}.\n"
            f"Use another store; or, if you are sure that one run at a time uses this root, pass --single-writer. "
            f"What is lost by that: {lost}."
        )
    logger.warning("%s is used by a single writer, because %s. Take care: %s.", store.url, seen, lost)
    return result


def _stored_record(store: Store, key: str) -> object:
    try:
        return json.loads(store.read(key).data)
    except NotFound:
        return None
    except ValueError:
        # Torn by a power failure, or by hand: asked again, the store answers the same.
        return None


def _problems(store: Store, directory: str) -> Iterator[str]:
    """One sentence for each promise that the store breaks, in the order of the checks; they build on each other."""
    key = f"{directory}/probe"
    nonce = secrets.token_hex(8)
    first, second, third, fourth = (f"{nonce} {number}".encode() for number in range(4))
    created = store.create(key, first)
    if not _refused(AlreadyExists, lambda: store.create(key, second)) or store.read(key).data != first:
        yield "a second create of one object was accepted: the later overwrote the earlier"
        created = store.read(key).version
    try:
        replaced = store.replace(key, third, version=created)
    except Conflict:
        yield "a replacement that named the present version was refused"
        return
    if not _refused(Conflict, lambda: store.replace(key, fourth, version=created)) or store.read(key).data != third:
        yield "a replacement that named an outdated version was accepted"
        replaced = store.read(key).version
    if [entry.key for entry in store.list_files(directory)] != [key]:
        yield "a new object is missing from the listing made after its creation"
    if not _refused(Conflict, lambda: store.delete(key, version=created)):
        yield "a deletion that named an outdated version was accepted"
    elif not _refused(NotFound, lambda: _delete_and_read(store, key, replaced)):
        yield "a deleted object can still be read"
    elif store.list_files(directory):
        yield "a deleted object is still listed"


def _delete_and_read(store: Store, key: str, version: str) -> None:
    store.delete(key, version=version)
    store.read(key)


def _refused(expected: type[StorageError], call: Callable[[], object]) -> bool:
    try:
        call()
    except expected:
        return True
    except _OUTAGES:
        raise
    except StorageError as error:
        logger.debug("the probe expected %s and saw: %s", expected.__name__, error)
        return False
    return False
