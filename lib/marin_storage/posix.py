"""System calls of the local backend, and what their errors mean."""

import errno
import fcntl
import logging
import os
import stat
import time
from contextlib import suppress
from typing import NoReturn

from marin_storage.backend import Transient
from marin_storage.errors import NotFound, OutOfSpace, PermissionDenied, StorageError

logger = logging.getLogger("marin_storage")

LOCK_WAIT_S = 10.0

_NO_DIRECTORY_FSYNC = frozenset((errno.EINVAL, errno.ENOTSUP, errno.EBADF))
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_DENIED = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))
_NO_FILE = frozenset((errno.ENXIO, errno.ELOOP))
"""A socket, and a link that leads back to itself."""
_MAY_PASS = frozenset((errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY))


def acquire_lock(descriptor: int, path: str) -> None:
    """`flock` with a bound: its holder may be a stopped process."""
    pause_s = 0.0005
    give_up_at = 0.0
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            now = time.monotonic()
            give_up_at = give_up_at or now + LOCK_WAIT_S
            if now > give_up_at:
                raise Transient(
                    f"{path} has been locked by another process for {LOCK_WAIT_S} s", applied=False
                ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Open for reading, never waiting for the writer of a pipe. `NotFound` if it is no regular file."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotFound(f"{path} is not a regular file, but a directory, pipe or device")
    return descriptor


def read_file(path: str) -> bytes:
    descriptor = open_regular(path)
    try:
        size_bytes = os.fstat(descriptor).st_size
        # One byte more than expected tells the end without another call.
        data = os.read(descriptor, size_bytes + 1)
        if len(data) == size_bytes:
            return data
        chunks = [data]
        while data:
            data = os.read(descriptor, 1 << 20)
            chunks.append(data)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def sync_file(path: str) -> None:
    descriptor = open_regular(path)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise_mapped(error, path)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_FSYNC:
            raise_mapped(error, path)
        logger.debug("%s: this file system cannot sync directories: %s", path, error)
    finally:
        os.close(descriptor)


def unlink_if_present(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def discard(path: str) -> None:
    """Remove a temporary file if that is possible: the outcome of what it was written for is the one to tell."""
    with suppress(OSError):
        os.unlink(path)


def rmdir_if_present(path: str) -> None:
    with suppress(FileNotFoundError):
        os.rmdir(path)


def reraise(error: OSError) -> NoReturn:
    raise error


def reraise_unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def raise_mapped(error: OSError, path: str) -> NoReturn:
    """Raise the storage error that `error` means. An I/O error is final: a later fsync would wrongly succeed."""
    if isinstance(error, StorageError):
        raise error  # some storage errors are OSErrors too, so that callers may catch either
    number = error.errno
    what = f"{path}: {error.strerror}"
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError) or number in _NO_FILE:
        raise NotFound(f"{path} does not exist or is no file ({error.strerror})") from error
    if number in _FULL:
        raise OutOfSpace(number, f"{error.strerror}. Free some space, then run again", path) from error
    if number in _DENIED:
        raise PermissionDenied(number, f"{error.strerror} (as user {os.geteuid()})", path) from error
    if number == errno.EXDEV:
        raise StorageError(f"{what}. A root and its step directories must lie on one file system.") from error
    if number in _MAY_PASS:
        raise Transient(what) from error
    raise StorageError(what) from error
