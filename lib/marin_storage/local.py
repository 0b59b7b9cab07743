"""Local disk. Raw system calls: an engine step makes about ten of these calls, each of which must cost microseconds.

Temporary files and locks live in one directory at the root, never beside data, so that a listing of data needs no
filter and deleting data never deletes a lock. The root must therefore lie on one file system.
"""

import errno
import hashlib
import itertools
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from marin_storage.backend import Blob, Entry, Listing
from marin_storage.errors import AlreadyExists, Conflict, NotFound
from marin_storage.keys import CONTROL_DIRECTORY
from marin_storage.posix import (
    acquire_lock,
    discard,
    open_regular,
    raise_mapped,
    read_file,
    reraise,
    reraise_unless_absent,
    rmdir_if_present,
    sync_directory,
    sync_file,
    unlink_if_present,
)

LOCK_FILES = 256
"""Locks are shared by keys with equal hash, so their number stays bounded and none is ever removed."""

_TEMPORARY = "temporary"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_NO_HARD_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS))


class LocalBackend:
    """A directory. Versions are content digests: every control object carries a nonce, so no two bodies are equal."""

    parallelism = 1
    storage_options: Mapping[str, Any] = {}

    def __init__(self, root: str):
        self.url = root
        self._base = root.rstrip("/") + "/"
        self._control = self._base + CONTROL_DIRECTORY
        self._temporary_prefix = f"{self._control}/{_TEMPORARY}/"
        self._nonce = secrets.token_hex(4)
        self._sequence = itertools.count()

    def read(self, key: str, *, version: str | None = None) -> Blob:
        try:
            data = read_file(self._base + key)
        except OSError as error:
            raise_mapped(error, self._base + key)
        found = _version_of(data)
        if version is not None and found != version:
            raise Conflict(f"{self._base}{key} has version {found}, not {version}")
        return Blob(data, found)

    def read_range(self, key: str, start: int, length: int, *, version: str | None = None) -> bytes:
        path = self._base + key
        try:
            with open(path, "rb", opener=open_regular) as file:
                if version is not None:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
                    if found != version:
                        raise Conflict(f"{path} has version {found}, not {version}")
                file.seek(start)
                return file.read(length)
        except OSError as error:
            raise_mapped(error, path)

    def stat(self, key: str) -> Entry:
        path = self._base + key
        try:
            status = os.stat(path)
        except OSError as error:
            raise_mapped(error, path)
        if stat.S_ISDIR(status.st_mode):
            raise NotFound(f"{path} is a directory, not an object")
        return Entry(key=key, size_bytes=status.st_size, modified=status.st_mtime)

    def list_directory(self, prefix: str) -> Listing:
        files: list[Entry] = []
        directories: list[str] = []
        for entry in self._scan(prefix):
            if _is_directory(entry):
                if not (entry.is_symlink() and self._leads_here(entry.path)):
                    directories.append(entry.name)
            else:
                found = _entry(f"{prefix}/{entry.name}" if prefix else entry.name, entry)
                if found is not None:
                    files.append(found)
        files.sort(key=_key_of)
        directories.sort()
        return Listing(files, directories)

    def list_files(self, prefix: str) -> list[Entry]:
        files: list[Entry] = []
        pending: list[tuple[str, frozenset[tuple[int, int]]]] = [(prefix, frozenset())]
        while pending:
            directory, ancestors = pending.pop()
            for entry in self._scan(directory):
                key = f"{directory}/{entry.name}" if directory else entry.name
                if not _is_directory(entry):
                    found = _entry(key, entry)
                    if found is not None:
                        files.append(found)
                elif not entry.is_symlink():
                    pending.append((key, ancestors))
                else:
                    status = entry.stat()
                    identity = (status.st_dev, status.st_ino)
                    if identity in ancestors:
                        files.append(Entry(key=key, size_bytes=0))  # into a loop
                    else:
                        pending.append((key, ancestors | {identity}))
        files.sort(key=_key_of)
        return files

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        path = self._base + key
        temporary = self._write_temporary(data, durable)
        try:
            try:
                self._place(os.link, temporary, path)
            except FileExistsError as error:
                raise AlreadyExists(f"{path} exists") from error
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise_mapped(error, path)
                self._create_without_links(key, path, temporary)
        finally:
            discard(temporary)
        if durable:
            self._sync_directories(path)
        return _version_of(data)

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        path = self._base + key
        with self._lock(key):
            self._require_version(path, version)
            self._put(path, data, durable)
        if durable:
            self._sync_directories(path)
        return _version_of(data)

    def write(self, key: str, data: bytes) -> str:
        # Locked like `replace`: between its comparison and its rename another write would be lost.
        with self._lock(key):
            self._put(self._base + key, data, durable=False)
        return _version_of(data)

    def delete(self, key: str, *, version: str | None = None) -> None:
        path = self._base + key
        try:
            with self._lock(key):
                if version is not None and os.path.lexists(path):
                    self._require_version(path, version)
                unlink_if_present(path)
        except OSError as error:
            raise_mapped(error, path)

    def delete_tree(self, prefix: str) -> int:
        path = self._base + prefix
        removed = 0
        try:
            for folder, directories, names in os.walk(path, topdown=False, onerror=reraise_unless_absent):
                for name in names:
                    removed += unlink_if_present(f"{folder}/{name}")
                for name in directories:
                    target = f"{folder}/{name}"
                    if os.path.islink(target):
                        removed += unlink_if_present(target)
                    else:
                        rmdir_if_present(target)
            rmdir_if_present(path)
        except OSError as error:
            raise_mapped(error, path)
        return removed

    def digest(self, key: str) -> str:
        path = self._base + key
        try:
            with open(path, "rb", buffering=0, opener=open_regular) as file:
                return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise_mapped(error, path)

    def upload(self, source: Path, key: str) -> None:
        import shutil

        path = self._base + key
        temporary = self._temporary_name()
        try:
            try:
                shutil.copyfile(source, temporary)
            except FileNotFoundError:
                self._make_control_directory(_TEMPORARY)
                shutil.copyfile(source, temporary)
            with self._lock(key):
                self._place(os.replace, temporary, path)
        except OSError as error:
            raise_mapped(error, path)
        finally:
            discard(temporary)

    def with_try_limit(self, try_s: float) -> Self:
        del try_s
        return self

    def make_durable(self, prefix: str) -> None:
        path = self._base + prefix if prefix else self.url
        try:
            if os.path.isdir(path):
                for folder, _, names in os.walk(path, onerror=reraise):
                    for name in names:
                        sync_file(f"{folder}/{name}")
                    sync_directory(folder)
            else:
                sync_file(path)
        except OSError as error:
            raise_mapped(error, path)
        self._sync_directories(path)

    def local_path(self, key: str) -> Path:
        return Path(self._base + key)

    def _scan(self, prefix: str) -> Iterator[os.DirEntry[str]]:
        path = self._base + prefix
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if prefix or entry.name != CONTROL_DIRECTORY:
                        yield entry
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise_mapped(error, path)

    def _leads_here(self, path: str) -> bool:
        """Whether a link leads into this root or above it: what is listed anyway would be so twice, or for ever."""
        root, target = f"{os.path.realpath(self.url)}/", f"{os.path.realpath(path)}/"
        return target.startswith(root) or root.startswith(target)

    def _temporary_name(self) -> str:
        # Unique among hosts and containers that share the directory (nonce), forks (pid) and threads (counter).
        return f"{self._temporary_prefix}{self._nonce}-{os.getpid()}-{next(self._sequence)}"

    def _write_temporary(self, data: bytes, durable: bool) -> str:
        temporary = self._temporary_name()
        try:
            try:
                descriptor = os.open(temporary, _NEW_FILE, 0o666)
            except FileNotFoundError:
                self._make_control_directory(_TEMPORARY)
                descriptor = os.open(temporary, _NEW_FILE, 0o666)
            try:
                written = os.write(descriptor, data)
                while written < len(data):
                    written += os.write(descriptor, memoryview(data)[written:])
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            discard(temporary)
            raise_mapped(error, temporary)
        return temporary

    def _put(self, path: str, data: bytes, durable: bool) -> None:
        temporary = self._write_temporary(data, durable)
        try:
            self._place(os.replace, temporary, path)
        except OSError as error:
            discard(temporary)
            raise_mapped(error, path)

    def _place(self, place: Callable[[str, str], None], temporary: str, path: str) -> None:
        """`os.link` or `os.replace`, making the directory first if it is missing."""
        try:
            place(temporary, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            place(temporary, path)

    def _create_without_links(self, key: str, path: str, temporary: str) -> None:
        """Create-if-absent where the file system has no hard links: exclusive by lock, whole by rename."""
        try:
            with self._lock(key):
                if os.path.lexists(path):
                    raise AlreadyExists(f"{path} exists")
                self._place(os.replace, temporary, path)
        except OSError as error:
            raise_mapped(error, path)

    def _require_version(self, path: str, version: str) -> None:
        try:
            found = _version_of(read_file(path))
        except FileNotFoundError as error:
            raise Conflict(f"{path} is gone; version {version} was expected") from error
        except OSError as error:
            raise_mapped(error, path)
        if found != version:
            raise Conflict(f"{path} has version {found}, not {version}")

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        """Exclude other writers of `key`, in all processes. The lock's file is permanent: unlinking one that somebody
        waits for would let two holders in."""
        path = f"{self._control}/locks/{zlib.crc32(os.fsencode(key)) % LOCK_FILES:02x}"
        try:
            try:
                descriptor = os.open(path, _LOCK_FILE, 0o666)
            except FileNotFoundError:
                self._make_control_directory("locks")
                descriptor = os.open(path, _LOCK_FILE, 0o666)
        except OSError as error:
            raise_mapped(error, path)
        try:
            acquire_lock(descriptor, path)
            yield
        finally:
            os.close(descriptor)

    def _make_control_directory(self, name: str) -> None:
        """Make it and whatever is missing above, durably: nothing later looks above the root again."""
        directory = f"{self._control}/{name}"
        missing = []
        while not os.path.isdir(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        os.makedirs(f"{self._control}/{name}", exist_ok=True)
        for created in missing:
            sync_directory(os.path.dirname(created))

    def _sync_directories(self, path: str) -> None:
        """Make the entry of `path`, and of each directory above it, survive a crash.

        All the way to the root, since another process may have made any of them without syncing. The kernel knows
        which are clean, so those cost next to nothing.
        """
        directory = path
        try:
            while len(directory) >= len(self._base):
                directory = directory.rpartition("/")[0]
                sync_directory(directory or "/")
        except OSError as error:
            raise_mapped(error, directory)


def _version_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _key_of(entry: Entry) -> str:
    return entry.key


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that cannot be followed; `_entry` says more.
        return False


def _entry(key: str, entry: os.DirEntry[str]) -> Entry | None:
    """The listing entry; None if the file was deleted after its name was read.

    A link to nothing, and what is no regular file, is listed with no bytes: its name is taken, and nothing can be read
    from it.
    """
    try:
        status = entry.stat()
    except OSError as error:
        if entry.is_symlink():
            return Entry(key=key, size_bytes=0)
        if isinstance(error, FileNotFoundError):
            return None
        raise_mapped(error, entry.path)
    size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return Entry(key=key, size_bytes=size_bytes, modified=status.st_mtime)
