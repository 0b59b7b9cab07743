"""The first batch from a store behind 50 ms per request: opening, 64 random windows of 1,024 tokens; wall seconds.

The baseline is one request after another. The second row has fewer tokens, of which whole blocks are fetched.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from marin_corpus.store.read import TokenStore

from tests.benchmarks.measure import Row, against
from tests.benchmarks.random_reads import make_store
from tests.slow_store import slow_store

SECONDS_PER_REQUEST = 0.05
NUM_WINDOWS = 64
LENGTH = 1024


def rows(runs: int) -> Iterator[Row]:
    for num_tokens in (40_000_000, 2_000_000):
        with tempfile.TemporaryDirectory() as folder:
            make_store(Path(folder), num_parts=20, num_tokens=num_tokens)
            walls, requests, fetched = [], 0, 0.0
            for run in range(runs):
                starts = np.random.default_rng(run).integers(0, num_tokens - LENGTH, NUM_WINDOWS)
                with slow_store(Path(folder), seconds_per_request=SECONDS_PER_REQUEST) as slow:
                    begin = time.monotonic()
                    TokenStore.open(f"{slow.url}/train").read_windows(starts, LENGTH)
                    walls.append(time.monotonic() - begin)
                    requests, fetched = len(slow.requests.ranges), slow.requests.num_bytes / 1e6
            name = f"first-batch: {num_tokens // 1_000_000} M tokens, {SECONDS_PER_REQUEST * 1000:.0f} ms per request"
            one_by_one_s = requests * SECONDS_PER_REQUEST
            yield against(name, statistics.median(walls), "s", baseline=one_by_one_s, runs=runs)
            yield against(f"{name}: requests", requests, "requests", baseline=None, runs=1)
            yield against(f"{name}: fetched", fetched, "MB", baseline=None, runs=1)
