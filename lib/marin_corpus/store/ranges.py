"""Ranges of files on object stores and other servers, with time limits and retries for each request."""

from collections.abc import Callable
from typing import Any, Protocol

from marin_storage import RetryPolicy, Store, Transient, open_store
from marin_storage.retry import RetryLog, Tries

_RETRY = RetryPolicy(tries=6, total_s=180.0, try_s=20.0)
"""A request moves a few MB at most; one without an answer after `try_s` is asked again."""
_STORAGE_SCHEMES = frozenset(("gs", "gcs", "s3", "s3a", "memory"))


class RangeReader(Protocol):
    """Files below one URL. Raises `FileNotFoundError`, and other errors after retries. Safe to use from threads."""

    def read(self, name: str) -> bytes:
        """A whole file."""

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Bytes from `start`; fewer where the file ends."""


def open_ranges(url: str) -> RangeReader:
    """A reader for any URL: object stores by `marin_storage`, all else that fsspec knows by fsspec."""
    if url.partition("://")[0] in _STORAGE_SCHEMES:
        return _StorageRanges(open_store(url, retry=_RETRY))
    return _FsspecRanges(url, _RETRY)


class _StorageRanges:
    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, name: str) -> bytes:
        return self._store.read(name).data

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self._store.read_range(name, start, length)


class _FsspecRanges:
    def __init__(self, url: str, policy: RetryPolicy) -> None:
        import fsspec

        self._url = url
        self._filesystem, self._base = fsspec.core.url_to_fs(url)
        self._policy = policy
        self._log = RetryLog(policy)

    def read(self, name: str) -> bytes:
        return self._call(name, None, None)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self._call(name, start, start + length)

    def _call(self, name: str, start: int | None, stop: int | None) -> bytes:
        tries: Tries | None = None
        started_s = self._policy.clock()
        while True:
            try:
                return self._try(f"{self._base.rstrip('/')}/{name}", start, stop)
            except Exception as error:
                if not _may_pass(error):
                    raise
                if tries is None:
                    tries = Tries(self._policy, self._log, f"read {self._url}/{name}", started_s)
                tries.pause(Transient(f"{type(error).__name__}: {error}", applied=False))

    def _try(self, path: str, start: int | None, stop: int | None) -> bytes:
        if self._filesystem.async_impl:
            from fsspec.asyn import sync

            function: Callable[..., Any] = self._filesystem._cat_file
            data = sync(self._filesystem.loop, function, path, start=start, end=stop, timeout=self._policy.try_s)
        else:
            # A file system without asynchronous calls has its own time limits, if any.
            data = self._filesystem.cat_file(path, start=start, end=stop)
        return bytes(data)


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)):
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status in (408, 429) or status >= 500
    # aiohttp's errors of connections that broke are no OSError.
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] == "aiohttp"
