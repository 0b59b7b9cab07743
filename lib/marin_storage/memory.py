"""`memory://`: fsspec's in-process file system, so that libraries see the same objects, under a lock of our own.

fsspec's own `mode="create"` is a check followed by a write: two threads can both win it.
"""

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from marin_storage.backend import Blob, Entry, Listing
from marin_storage.errors import AlreadyExists, Conflict, NotFound

# One lock for the one in-process store.
_LOCK = threading.RLock()


class MemoryBackend:
    """Versions are content digests, as on local disk."""

    parallelism = 1
    storage_options: Mapping[str, Any] = {}

    def __init__(self, prefix: str):
        self.url = f"memory://{prefix}"
        self._filesystem = MemoryFileSystem()
        self._base = f"/{prefix}/" if prefix else "/"

    def read(self, key: str, *, version: str | None = None) -> Blob:
        data = self._data(key)
        found = _version_of(data)
        if version is not None and version != found:
            raise Conflict(f"{self.url}/{key} has version {found}, not {version}")
        return Blob(data, found)

    def read_range(self, key: str, start: int, length: int, *, version: str | None = None) -> bytes:
        return self.read(key, version=version).data[start : start + length]

    def stat(self, key: str) -> Entry:
        with _LOCK:
            return _entry(key, self._file(key))

    def list_directory(self, prefix: str) -> Listing:
        files: list[Entry] = []
        directories: set[str] = set()
        depth = len(prefix) + 1 if prefix else 0
        for entry in self.list_files(prefix):
            name, slash, _ = entry.key[depth:].partition("/")
            if slash:
                directories.add(name)
            else:
                files.append(entry)
        return Listing(files, sorted(directories))

    def list_files(self, prefix: str) -> list[Entry]:
        base = f"{self._base}{prefix}/" if prefix else self._base
        skip = len(self._base)
        with _LOCK:
            found = [(path, file) for path, file in self._filesystem.store.items() if path.startswith(base)]
            return sorted((_entry(path[skip:], file) for path, file in found), key=lambda entry: entry.key)

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        del durable  # nothing in memory survives its process
        with _LOCK:
            if self._base + key in self._filesystem.store:
                raise AlreadyExists(f"{self.url}/{key} exists")
            return self._put(key, data)

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        del durable
        with _LOCK:
            self._require_version(key, version)
            return self._put(key, data)

    def write(self, key: str, data: bytes) -> str:
        with _LOCK:
            return self._put(key, data)

    def delete(self, key: str, *, version: str | None = None) -> None:
        with _LOCK:
            if version is not None and self._base + key in self._filesystem.store:
                self._require_version(key, version)
            self._filesystem.store.pop(self._base + key, None)

    def delete_tree(self, prefix: str) -> int:
        base = f"{self._base}{prefix}/"
        with _LOCK:
            doomed = [path for path in self._filesystem.store if path.startswith(base)]
            for path in doomed:
                del self._filesystem.store[path]
            directories = self._filesystem.pseudo_dirs
            directories[:] = [path for path in directories if not f"{path}/".startswith(base)]
        return len(doomed)

    def digest(self, key: str) -> str:
        return "sha256:" + _version_of(self._data(key))

    def upload(self, source: Path, key: str) -> None:
        self.write(key, source.read_bytes())

    def with_try_limit(self, try_s: float) -> Self:
        del try_s
        return self

    def make_durable(self, prefix: str) -> None:
        del prefix

    def local_path(self, key: str) -> None:
        del key

    def _file(self, key: str) -> MemoryFile:
        file = self._filesystem.store.get(self._base + key)
        if file is None:
            raise NotFound(f"{self.url}/{key} does not exist")
        return file

    def _data(self, key: str) -> bytes:
        with _LOCK:
            data: bytes = self._file(key).getvalue()
        return data

    def _put(self, key: str, data: bytes) -> str:
        # A new file object: readers that hold the old one keep the old bytes.
        path = self._base + key
        self._filesystem.store[path] = MemoryFile(self._filesystem, path, data)
        return _version_of(data)

    def _require_version(self, key: str, version: str) -> None:
        if self._base + key not in self._filesystem.store:
            raise Conflict(f"{self.url}/{key} is gone; version {version} was expected")
        found = _version_of(self._data(key))
        if found != version:
            raise Conflict(f"{self.url}/{key} has version {found}, not {version}")


def _version_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _entry(key: str, file: MemoryFile) -> Entry:
    return Entry(key=key, size_bytes=file.getbuffer().nbytes, modified=file.modified.timestamp())
