"""A slow object store that counts: the fsspec file system `slow://`, whose objects are files of a local directory."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem


@dataclass
class Requests:
    """What was asked for, and how many requests were in flight at once."""

    ranges: list[tuple[str, int | None, int | None]] = field(default_factory=list)
    most_at_once: int = 0
    failures: list[Exception] = field(default_factory=list)
    """Raised by the next requests, one each."""
    gate: "threading.Barrier | None" = None
    """Where requests meet: each waits until as many as the barrier has parties are in flight."""
    at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def num_bytes(self) -> int:
        """Bytes asked for by ranges."""
        return sum(stop - start for _, start, stop in self.ranges if start is not None and stop is not None)


@dataclass
class SlowStore:
    """The directory behind `slow://store/`."""

    folder: Path
    seconds_per_request: float
    requests: Requests = field(default_factory=Requests)
    url: str = "slow://store"


_mounted: SlowStore | None = None


@contextmanager
def slow_store(folder: Path, *, seconds_per_request: float = 0.0) -> Iterator[SlowStore]:
    """Serve `folder` as `slow://store`."""
    global _mounted
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    _mounted = SlowStore(folder, seconds_per_request)
    try:
        yield _mounted
    finally:
        _mounted = None


class SlowFileSystem(AbstractFileSystem):
    """Whole objects and ranges of them, nothing else."""

    protocol = "slow"
    cachable = False

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        store = _mounted
        assert store is not None
        requests = store.requests
        name = self._strip_protocol(path).removeprefix("store/")
        with requests.lock:
            requests.ranges.append((name, start, end))
            failure = requests.failures.pop(0) if requests.failures else None
            requests.at_once += 1
            requests.most_at_once = max(requests.most_at_once, requests.at_once)
        try:
            if requests.gate is not None:
                requests.gate.wait(timeout=30)
            if store.seconds_per_request:
                time.sleep(store.seconds_per_request)
            if failure is not None:
                raise failure
            with open(store.folder / name, "rb") as file:
                file.seek(start or 0)
                return file.read() if end is None else file.read(end - (start or 0))
        finally:
            with requests.lock:
                requests.at_once -= 1
