"""`Store`: one root on any storage, with calls that either succeed, fail with a named error, or say they do not know.

A backend makes single tries. `Store` adds retries within a deadline, and settles writes whose reply was lost by
reading back: bodies of conditional writes are unique (they carry a nonce), so equal bytes are our own.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from marin_storage.backend import Backend, Blob, Entry, Listing, Transient
from marin_storage.errors import AlreadyExists, Conflict, NotFound, Unavailable, UnknownOutcome
from marin_storage.keys import check_key, check_prefix
from marin_storage.retry import RetryLog, RetryPolicy, Tries

if TYPE_CHECKING:
    from upath import UPath

P = ParamSpec("P")
Item = TypeVar("Item")
Result = TypeVar("Result")

_MUTATING = frozenset(("write", "delete", "delete_tree", "upload"))


class Store:
    """The objects below one root. Keys are relative to it; safe to use from several threads.

    Every method raises `PermissionDenied`, `OutOfSpace` and `Unavailable` where they apply; a key that breaks the
    grammar is a `ValueError`.
    """

    def __init__(self, backend: Backend, *, retry: RetryPolicy | None = None):
        self.backend = backend
        self.url = backend.url
        self.parallelism = backend.parallelism
        self._policy = retry or RetryPolicy()
        self._log = RetryLog(self._policy)

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def with_deadline(self, total_s: float) -> "Store":
        """The same store for calls that are worth nothing after `total_s` seconds (a heartbeat).

        A request may take a third of that, so that one without an answer leaves time for others.
        """
        policy = replace(self._policy, total_s=total_s, try_s=min(total_s / 3, self._policy.try_s))
        return Store(self.backend.with_try_limit(policy.try_s), retry=policy)

    def read(self, key: str, *, version: str | None = None) -> Blob:
        """The whole object; with `version`, exactly that version or `Conflict`. `NotFound` if absent."""
        check_key(key)
        return self._call("read", key, self.backend.read, key, version=version)

    def read_range(self, key: str, start: int, length: int, *, version: str | None = None) -> bytes:
        """Up to `length` bytes from `start`; fewer at the end of the object, none beyond it."""
        check_key(key)
        if start < 0 or length < 0:
            raise ValueError(f"start={start} and length={length} must not be negative")
        return self._call("read_range", key, self.backend.read_range, key, start, length, version=version)

    def read_many(self, keys: Sequence[str]) -> list[Blob]:
        """`read` of every key, many at a time on a remote store."""
        return self.map(self.read, keys)

    def stat(self, key: str) -> Entry:
        """Size, version and time of one object. `NotFound` if absent."""
        check_key(key)
        return self._call("stat", key, self.backend.stat, key)

    def list_directory(self, prefix: str) -> Listing:
        """One level below `prefix` ("" is the root), sorted; empty if there is nothing."""
        check_prefix(prefix)
        return self._call("list", prefix, self.backend.list_directory, prefix)

    def list_files(self, prefix: str) -> list[Entry]:
        """Every object below `prefix` at any depth, sorted by key."""
        check_prefix(prefix)
        return self._call("list", prefix, self.backend.list_files, prefix)

    def create(self, key: str, data: bytes, *, durable: bool = False) -> str:
        """Write `data` if nothing has this key; returns the version.

        Raises `AlreadyExists` if an object with other bytes is there (equal bytes are our own from a lost reply),
        and `UnknownOutcome` if the store never said and reading back did not tell.
        """
        check_key(key)
        started_s = self._policy.clock()
        try:
            return self.backend.create(key, data, durable=durable)
        except (Transient, AlreadyExists) as error:
            return self._settle("create", key, data, error, durable=durable, version=None, started_s=started_s)

    def replace(self, key: str, data: bytes, *, version: str, durable: bool = False) -> str:
        """Compare-and-swap: write `data` if the object's version is `version`; returns the new version.

        Raises `Conflict` if it has another version or is gone, `UnknownOutcome` as `create` does.
        """
        check_key(key)
        started_s = self._policy.clock()
        try:
            return self.backend.replace(key, data, version=version, durable=durable)
        except (Transient, Conflict) as error:
            return self._settle("replace", key, data, error, durable=durable, version=version, started_s=started_s)

    def write(self, key: str, data: bytes) -> str:
        """Write whatever is there; returns the version. For objects with one writer."""
        check_key(key)
        return self._call("write", key, self.backend.write, key, data)

    def delete(self, key: str, *, version: str | None = None) -> None:
        """Remove an object; one that is absent already is no error.

        With `version`, raises `Conflict` if another version is there.
        """
        check_key(key)
        self._call("delete", key, self.backend.delete, key, version=version)

    def delete_tree(self, prefix: str) -> int:
        """Remove everything below `prefix`; returns the number of objects removed by the last try."""
        check_key(prefix)
        return self._call("delete_tree", prefix, self.backend.delete_tree, prefix)

    def digest(self, key: str) -> str:
        """`"sha256:<hex>"` or `"md5:<hex>"` of the content."""
        check_key(key)
        return self._call("digest", key, self.backend.digest, key)

    def upload(self, source: Path, key: str) -> None:
        """Copy a local file to `key`, replacing what is there."""
        check_key(key)
        self._call("upload", key, self.backend.upload, source, key)

    def upload_tree(self, local_directory: Path, prefix: str) -> int:
        """Copy every file below `local_directory` to the same relative name below `prefix`; returns their number."""
        check_key(prefix)
        sources = [
            os.path.join(folder, name)
            for folder, _, names in os.walk(local_directory, onerror=_raise, followlinks=True)
            for name in sorted(names)
        ]

        def upload_one(source: str) -> None:
            self.upload(Path(source), f"{prefix}/{os.path.relpath(source, local_directory).replace(os.sep, '/')}")

        self.map(upload_one, sources)
        return len(sources)

    def make_durable(self, prefix: str) -> None:
        """Return once everything below `prefix` would survive a power failure (object stores promise it anyway)."""
        check_prefix(prefix)
        self.backend.make_durable(prefix)

    def local_path(self, key: str) -> Path | None:
        """Where the object lies on this machine; None on a remote store."""
        check_prefix(key)
        return self.backend.local_path(key)

    def path(self, key: str) -> "UPath":
        """The object as a `UPath`, for libraries that read and write through fsspec."""
        from upath import UPath

        check_prefix(key)
        local = self.backend.local_path(key)
        if local is not None:
            path: UPath = UPath(local)
        else:
            path = UPath(f"{self.url}/{key}" if key else self.url, **self.backend.storage_options)
        return path

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """`[function(item) for item in items]`, `parallelism` at a time. The first error stops the rest."""
        items = list(items)
        if self.parallelism == 1 or len(items) < 2:
            return [function(item) for item in items]
        from concurrent.futures import ThreadPoolExecutor

        # A pool per call: a shared one would deadlock when `function` itself calls `map`.
        with ThreadPoolExecutor(min(self.parallelism, len(items)), thread_name_prefix="marin_storage") as pool:
            futures = [pool.submit(function, item) for item in items]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _call(
        self, operation: str, key: str, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Run a call that may safely be repeated."""
        started_s = self._policy.clock()
        try:
            return function(*args, **kwargs)
        except Transient as error:
            failure = error
        tries = Tries(self._policy, self._log, f"{operation} {self.url}/{key}", started_s)
        while True:
            tries.pause(failure, mutates=operation in _MUTATING)
            try:
                return function(*args, **kwargs)
            except Transient as error:
                failure = error

    def _settle(
        self,
        operation: str,
        key: str,
        data: bytes,
        failure: Exception,
        *,
        durable: bool,
        version: str | None,
        started_s: float,
    ) -> str:
        """Find out what became of a conditional write that did not plainly succeed, and repeat it if that is right.

        Also a first refusal is read back: the clients' own retries turn a lost reply into a refusal by our own bytes.
        """
        tries = Tries(self._policy, self._log, f"{operation} {self.url}/{key}", started_s)
        while True:
            if not (isinstance(failure, Transient) and failure.applied is False):
                present = self._read_back(operation, key, failure)
                if present is not None and present.data == data:
                    if durable:
                        self.backend.make_durable(key)
                    return present.version
                if not isinstance(failure, Transient):
                    raise failure
                if present is not None and version is None:
                    raise AlreadyExists(f"{self.url}/{key} exists with other bytes") from failure
                if version is not None and (present is None or present.version != version):
                    raise Conflict(f"{self.url}/{key} no longer has version {version}") from failure
            tries.pause(failure, mutates=True)
            try:
                if version is None:
                    return self.backend.create(key, data, durable=durable)
                return self.backend.replace(key, data, version=version, durable=durable)
            except (Transient, AlreadyExists, Conflict) as error:
                failure = error

    def _read_back(self, operation: str, key: str, failure: Exception) -> Blob | None:
        try:
            return self._call("read", key, self.backend.read, key)
        except NotFound:
            return None
        except Unavailable as error:
            raise UnknownOutcome(
                f"{operation} {self.url}/{key}: {failure}; and it could not be read back: {error} "
                f"Read the object before deciding anything, and delete nothing that it may name."
            ) from error


def _raise(error: OSError) -> None:
    raise error
