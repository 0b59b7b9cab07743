"""1,000 cached steps on a store where every request takes 30 ms, and the number of requests they make."""

import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

from marin_storage import Store, open_store

from marin_pipe import run
from tests.benchmarks.dag import chain_fan_join
from tests.benchmarks.measure import Row, against

LENGTH = 1000
DELAY_S = 0.030


class SlowBackend:
    """Another backend behind a delay, offering as many requests at once as an object store."""

    parallelism = 64

    def __init__(self, backend: Any):
        self._backend = backend
        self.url = backend.url
        self.requests = 0
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._backend, name)
        if name == "local_path":
            return method

        def delayed(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.requests += 1
            time.sleep(DELAY_S)
            return method(*args, **kwargs)

        return delayed


def rows(runs: int) -> Iterator[Row]:
    from marin_pipe.execution import run as run_module

    with tempfile.TemporaryDirectory(prefix="marin-bench-") as root:
        target = {"target": chain_fan_join(LENGTH)}
        assert run(target, root=root).ok
        walls, requests = [], 0
        for _ in range(runs):
            slow = SlowBackend(open_store(root).backend)
            with mock.patch.object(run_module, "open_store", return_value=Store(slow)):
                started = time.monotonic()
                report = run(target, root=root)
                walls.append(time.monotonic() - started)
            assert report.count("cached") == LENGTH
            requests = slow.requests
    walls.sort()
    yield against(
        f"storage-latency: {LENGTH} cached steps at 30 ms a request, wall",
        walls[runs // 2],
        "s",
        baseline=None,
        runs=runs,
    )
    yield against("storage-latency: requests per cached step", requests / LENGTH, "requests", baseline=None, runs=1)
