"""What a kind of storage must offer: single-try primitives that `Store` makes safe with retries and read-back.

A backend method makes one try and raises an error of `errors.py`; a failure that may pass (timeout, 429, 5xx, reset
connection) is raised as `Transient`. Keys are relative to the root, "/"-separated, without "." or ".." parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from marin_storage.errors import StorageError


class Transient(StorageError):
    """One try failed for a reason that may pass. `applied=None`: it is unknown whether a write took effect."""

    def __init__(self, message: str, *, applied: bool | None = None, retry_after_s: float | None = None):
        super().__init__(message)
        self.applied = applied
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Blob:
    """An object's bytes and the version they belong to."""

    data: bytes
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One object of a listing. `version` may be empty where a listing does not tell it (local disk).

    `modified` is by the store's own clock, in seconds since the epoch: for display only.
    """

    key: str
    size_bytes: int
    version: str = ""
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Listing:
    """One level below a prefix: the objects, and the names of the directories (without a trailing slash)."""

    files: Sequence[Entry]
    directories: Sequence[str]


class Backend(Protocol):
    """Single-try primitives over one root."""

    url: str
    parallelism: int
    """Requests worth keeping in flight: 1 on a local disk, 64 on an object store."""

    storage_options: Mapping[str, Any]
    """What fsspec needs to open the same store."""

    def read(self, key: str, *, version: str | None = None) -> Blob:
        """The whole object; with `version`, those bytes or `Conflict`."""
        ...

    def read_range(self, key: str, start: int, length: int, *, version: str | None = None) -> bytes: ...

    def stat(self, key: str) -> Entry: ...

    def list_directory(self, prefix: str) -> Listing:
        """One level; a prefix that holds nothing gives an empty listing."""
        ...

    def list_files(self, prefix: str) -> list[Entry]:
        """All objects below `prefix`, sorted by key."""
        ...

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        """Write if absent, atomically: readers see nothing or all of it. Returns the version."""
        ...

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        """Write if the present version is `version` (compare-and-swap), else (or if absent) `Conflict`."""
        ...

    def write(self, key: str, data: bytes) -> str:
        """Write whatever is there; readers see the old or the new bytes."""
        ...

    def delete(self, key: str, *, version: str | None = None) -> None:
        """Remove; absent is no error. With `version`, `Conflict` if another version is there."""
        ...

    def delete_tree(self, prefix: str) -> int:
        """Remove everything below `prefix`; returns the number of objects removed."""
        ...

    def digest(self, key: str) -> str:
        """`"<algorithm>:<hex>"` of the content: the store's checksum where it is one of the bytes, else sha256."""
        ...

    def upload(self, source: Path, key: str) -> None:
        """Copy a local file to `key` (overwrites)."""
        ...

    def make_durable(self, prefix: str) -> None:
        """Local disk: fsync every file and directory below `prefix` and its new parents. Elsewhere nothing."""
        ...

    def local_path(self, key: str) -> Path | None:
        """The file's path on this machine, or None."""
        ...

    def with_try_limit(self, try_s: float) -> "Backend":
        """The same root, with at most `try_s` seconds for one request (a disk knows no such limit)."""
        ...
