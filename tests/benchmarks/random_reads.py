"""Random windows of a local token store: 64 of 1,024 tokens a batch, from 40 million tokens in the page cache.

The baseline is one `os.pread` a window, from the same files.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from marin_corpus.output import LocalOutput
from marin_corpus.store.read import TokenStore
from marin_corpus.store.write import TokenWriter, write_store_manifest

from tests.benchmarks.measure import Row, against

NUM_TOKENS = 40_000_000
NUM_WINDOWS = 64
LENGTH = 1024
_BATCHES = 2000
_BATCHES_OF_MANY_PARTS = 500


def make_store(folder: Path, *, num_parts: int, num_tokens: int = NUM_TOKENS) -> TokenStore:
    """A store of random 16-bit tokens in documents of 500."""
    rng = np.random.default_rng(0)
    (folder / "train").mkdir(parents=True)
    summaries = []
    lengths = np.full(num_tokens // num_parts // 500, 500)
    for number in range(num_parts):
        path = folder / "train" / f"part-{number:05d}"
        with TokenWriter(path, vocab_size=50_000, has_mask=False) as writer:
            tokens = rng.integers(0, 50_000, int(lengths.sum()), dtype=np.uint16)
            ids = [f"{document:032x}" for document in range(len(lengths))]
            writer.add(tokens, lengths, ids, ["random"] * len(ids), text_bytes=0)
        summaries.append(writer.summary())
    output = LocalOutput(folder)
    write_store_manifest(output, "train", summaries, tokenizer="none", vocab_size=50_000, eos_id=0, has_mask=False)
    return TokenStore.open(folder / "train")


def rows(runs: int) -> Iterator[Row]:
    for num_parts, num_batches in ((1, _BATCHES), (100, _BATCHES_OF_MANY_PARTS)):
        with tempfile.TemporaryDirectory() as folder:
            store = make_store(Path(folder), num_parts=num_parts)
            rng = np.random.default_rng(1)
            starts = rng.integers(0, store.num_tokens - LENGTH, (num_batches, NUM_WINDOWS))
            ours, theirs = [], []
            for _ in range(runs):
                ours.append(_rate(lambda batch, store=store: store.read_windows(batch, LENGTH), starts))  # type: ignore[misc]
                theirs.append(_baseline(Path(folder) / "train", num_parts, starts))
            yield against(
                f"random-reads: {NUM_WINDOWS} windows of {LENGTH} tokens, parts: {num_parts}",
                statistics.median(ours),
                "M tokens per CPU second",
                baseline=statistics.median(theirs),
                runs=runs,
            )


def _rate(read: Callable[[np.ndarray], object], starts: np.ndarray) -> float:
    for batch in starts[: len(starts) // 10]:
        read(batch)
    begin = time.process_time()
    for batch in starts:
        read(batch)
    return starts.size * LENGTH / (time.process_time() - begin) / 1e6


def _baseline(folder: Path, num_parts: int, starts: np.ndarray) -> float:
    descriptors = [os.open(folder / f"part-{number:05d}.tok", os.O_RDONLY) for number in range(num_parts)]
    size = NUM_TOKENS // num_parts

    def read(batch: np.ndarray) -> np.ndarray:
        out = np.empty((NUM_WINDOWS, LENGTH), np.uint16)
        for row, start in enumerate(batch.tolist()):
            # A window that would leave its part is cut: close enough for a baseline.
            part, offset = divmod(start, size)
            data = os.pread(descriptors[part], 2 * LENGTH, 2 * min(offset, size - LENGTH))
            out[row] = np.frombuffer(data, np.uint16)
        return out

    try:
        return _rate(read, starts)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
