"""Decontamination: the State of the Union addresses, 12 MB, against the 31,000 verses of the King James Bible as
evaluation items, documents in memory, every match verified, in one thread.

The baseline is the overlap as one writes it first: a Python set of the items' n-grams, and one look-up for each n-gram
of each size of a document.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from marin_corpus.dedup.contamination import ContaminationConfig, scan
from marin_corpus.dedup.contamination_index import EvaluationIndex, IndexConfig, build_index
from marin_corpus.output import LocalOutput

from tests.benchmarks.measure import Row, against
from tests.speeches import speeches, verses, write_documents

BASELINE_EVERY = 10
"""The baseline reads every tenth address."""


def ngrams(words: list[str], size: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(size)), strict=False)


def baseline(texts: list[str], known: set[tuple[str, ...]], sizes: list[int]) -> int:
    """Number of n-grams of documents that are n-grams of an item."""
    found = 0
    for text in texts:
        words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
        found += sum(ngram in known for size in sizes for ngram in ngrams(words, size))
    return found


def rows(runs: int) -> Iterator[Row]:
    texts, items, config = speeches(), verses(), IndexConfig()
    size_mb = sum(len(text.encode()) for text in texts) / 1e6
    some = texts[::BASELINE_EVERY]
    some_mb = sum(len(text.encode()) for text in some) / 1e6
    ours, theirs, building = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        documents = write_documents(folder / "items", items)
        for _ in range(runs):
            begin = time.process_time()
            build_index([documents], config, LocalOutput(folder / "index"))
            building.append(time.process_time() - begin)
        index = EvaluationIndex(str(folder / "index"))
        known: set[tuple[str, ...]] = set()
        for item in items:
            words = "".join(c if c.isalnum() else " " for c in item.lower()).split()
            if size := config.size_for(len(words)):
                known.update(ngrams(words, size))
        for _ in range(runs):
            begin = time.process_time()
            found = list(scan(texts, index, ContaminationConfig().threshold))
            ours.append(size_mb / (time.process_time() - begin))
            begin = time.process_time()
            baseline(some, known, index.sizes)
            theirs.append(some_mb / (time.process_time() - begin))
    num_contaminated = sum(any(match.contaminates for match in matches) for matches in found)
    name = f"contamination: {size_mb:.1f} MB against {len(items):,} items, verified"
    yield against(name, statistics.median(ours), "MB per CPU second", baseline=statistics.median(theirs), runs=runs)
    seconds = statistics.median(building)
    yield against(f"contamination: index of {len(items):,} items", seconds, "s", baseline=None, runs=runs)
    yield against("contamination: addresses that quote a verse", num_contaminated, "", baseline=None, runs=1)
