"""Whole loader batches of 64 x 1,024 tokens from a local token store in the page cache; the order alone.

The baseline is written by hand: a permutation made in advance, one gather from a memory map, the same two int32 arrays.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from marin_corpus.loader.config import ComponentConfig, LoaderConfig
from marin_corpus.loader.loader import Loader
from marin_corpus.order.epochs import BlockShuffle
from marin_corpus.store.read import TokenStore

from tests.benchmarks.measure import Row, against
from tests.benchmarks.random_reads import make_store

BATCH = 64
LENGTH = 1024
_UNIT = "M tokens per CPU second"
_STEPS = 500
WEIGHTS = {"a": 5.0, "b": 3.0, "c": 2.0}


def rows(runs: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder), num_parts=1)
        by_hand = _shuffle_and_gather(Path(folder) / "train" / "part-00000.tok")
        variants: dict[str, tuple[int, dict[str, Any]]] = {
            "one store": (1, {}),
            "mixture of three": (3, {}),
            "mixture of three, block shuffle": (3, {"shuffle": BlockShuffle()}),
            "mixture of three, segments": (3, {"segments": True}),
            "mixture of three, packed documents": (3, {"packing": "documents"}),
        }
        for name, (num_components, options) in variants.items():
            loader = _loader(store, num_components, options)
            ours, theirs = [], []
            for _ in range(runs):
                ours.append(BATCH * LENGTH / _seconds(loader.batch) / 1e6)
                theirs.append(BATCH * LENGTH / _seconds(by_hand) / 1e6)
            yield against(
                f"loader: batches of {BATCH} x {LENGTH}, {name}",
                statistics.median(ours),
                _UNIT,
                baseline=statistics.median(theirs),
                runs=runs,
            )
        loader = _loader(store, 3, {})
        order = [_seconds(lambda step: loader.order.locate(loader.indices(step))) for _ in range(runs)]
        yield against(
            f"loader: order of a batch of {BATCH}, mixture of three",
            1e3 * statistics.median(order),
            "CPU ms",
            baseline=None,
            runs=runs,
        )


def _loader(store: TokenStore, num_components: int, options: dict[str, Any]) -> Loader:
    weights = dict(list(WEIGHTS.items())[:num_components])
    components = tuple(ComponentConfig(name=name, weight=weight) for name, weight in weights.items())
    config = LoaderConfig(sequence_length=LENGTH, global_batch_size=BATCH, components=components, **options)
    return Loader(dict.fromkeys(weights, store), config)


def _seconds(batch: Callable[[int], object]) -> float:
    """CPU seconds a step, of all threads."""
    for step in range(20):
        batch(step)
    begin = time.process_time()
    for step in range(20, 20 + _STEPS):
        batch(step)
    return (time.process_time() - begin) / _STEPS


def _shuffle_and_gather(path: Path) -> Callable[[int], object]:
    tokens = np.memmap(path, np.uint16, "r")
    windows = np.lib.stride_tricks.sliding_window_view(tokens, LENGTH + 1)
    starts = np.random.default_rng(0).permutation((len(tokens) - 1) // LENGTH) * LENGTH

    def batch(step: int) -> object:
        found = windows[starts[step * BATCH : (step + 1) * BATCH]]
        return found[:, :-1].astype(np.int32), found[:, 1:].astype(np.int32)

    return batch
