"""A backend that fails at a chosen mutation, to sweep a protocol over every point where it can fail."""

import errno
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from marin_storage import Backend, Blob, Entry, Listing, OutOfSpace, PermissionDenied, StorageError, Transient

Result = TypeVar("Result")


class Fault(StrEnum):
    """What happens at the chosen mutation."""

    KILLED_BEFORE = "the process dies before the mutation"
    KILLED_AFTER = "the process dies after the mutation"
    FAILED = "nothing applied, and the error does not say so"
    REPLY_LOST = "applied, and the error does not say so"
    NO_SPACE = "the disk is full"
    DENIED = "permission denied"
    TOO_MANY_REQUESTS = "429, nothing applied"


KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


_ERRORS: dict[Fault, Callable[[str], Exception]] = {
    Fault.FAILED: Transient,
    Fault.REPLY_LOST: Transient,
    Fault.NO_SPACE: lambda text: OutOfSpace(errno.ENOSPC, text),
    Fault.DENIED: lambda text: PermissionDenied(errno.EACCES, text),
    Fault.TOO_MANY_REQUESTS: lambda text: Transient(text, applied=False),
}


class Killed(BaseException):
    """Stands for the death of the process: nothing below the caller may catch it."""


def _raise_killed() -> NoReturn:
    raise Killed


class FaultyBackend:
    """Passes everything to `inner`, but meets the mutations numbered in `faults` (from 1) with those faults.

    `mutations` counts them, so that a sweep knows when to end: when a run ends with fewer than the fault's number.
    After a kill every call dies; `kill` may end a process of its own. `before` sees each mutation's name and key.
    """

    def __init__(
        self,
        inner: Backend,
        faults: Mapping[int, Fault] | None = None,
        *,
        kill: Callable[[], NoReturn] = _raise_killed,
        before: Callable[[str, str], None] | None = None,
    ):
        self.inner = inner
        self.url = inner.url
        self.parallelism = inner.parallelism
        self.storage_options = inner.storage_options
        self.mutations = 0
        self.dead = False
        self._faults = faults or {}
        self._kill = kill
        self._before = before

    def read(self, key: str, *, version: str | None = None) -> Blob:
        return self._alive(self.inner.read)(key, version=version)

    def read_range(self, key: str, start: int, length: int, *, version: str | None = None) -> bytes:
        return self._alive(self.inner.read_range)(key, start, length, version=version)

    def stat(self, key: str) -> Entry:
        return self._alive(self.inner.stat)(key)

    def list_directory(self, prefix: str) -> Listing:
        return self._alive(self.inner.list_directory)(prefix)

    def list_files(self, prefix: str) -> list[Entry]:
        return self._alive(self.inner.list_files)(prefix)

    def digest(self, key: str) -> str:
        return self._alive(self.inner.digest)(key)

    def local_path(self, key: str) -> Path | None:
        return self.inner.local_path(key)

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        return self._mutate(self.inner.create, key, data, durable=durable)

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        return self._mutate(self.inner.replace, key, data, version=version, durable=durable)

    def write(self, key: str, data: bytes) -> str:
        return self._mutate(self.inner.write, key, data)

    def delete(self, key: str, *, version: str | None = None) -> None:
        self._mutate(self.inner.delete, key, version=version)

    def delete_tree(self, prefix: str) -> int:
        return self._mutate(self.inner.delete_tree, prefix)

    def upload(self, source: Path, key: str) -> None:
        self._mutate(lambda target: self.inner.upload(source, target), key, name="upload")

    def make_durable(self, prefix: str) -> None:
        self._alive(self.inner.make_durable)(prefix)

    def with_try_limit(self, try_s: float) -> "FaultyBackend":
        del try_s  # the faults and their count are shared
        return self

    def _alive(self, call: Callable[..., Result]) -> Callable[..., Result]:
        if self.dead:
            self._kill()
        return call

    def _mutate(self, call: Callable[..., Result], key: str, *args: Any, name: str = "", **kwargs: Any) -> Result:
        self._alive(call)
        self.mutations += 1
        what = f"{name or call.__name__} {key}"
        if self._before is not None:
            self._before(name or call.__name__, key)
        fault = self._faults.get(self.mutations)
        if fault is None:
            return call(key, *args, **kwargs)
        if fault in (Fault.KILLED_AFTER, Fault.REPLY_LOST):
            # A refusal is a reply too.
            with suppress(StorageError):
                call(key, *args, **kwargs)
        if fault in KILLS:
            self._die()
        raise _ERRORS[fault](f"injected at {what}: {fault}")

    def _die(self) -> NoReturn:
        self.dead = True
        self._kill()
