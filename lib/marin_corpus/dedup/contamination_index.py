"""The n-grams of evaluation sets, by hash: built once, read by every worker that looks for them in documents.

An item of an evaluation set is a document: its `source` is the name of the set. Words are those of
`marin_corpus.words`, so neither case, punctuation nor whitespace matter. How an item of m words is looked for, with the
defaults:

    m < 5           not at all: so few words occur by chance (counted as too short)
    5 <= m < 8      as a whole
    8 <= m < 13     by its 8-word n-grams, all of which a document must hold
    13 <= m < 39    by its 8-word n-grams
    39 <= m         by its 13-word n-grams (the length of Brown et al., 2020, "Language models are few-shot learners")

An n-gram weighs 1 / (the number of items that have it), so that what many items share - instructions, answer options -
counts for next to nothing, and what is an item's own decides. One that more than 1,000 items have is left out. An item
whose n-grams together weigh less than `boilerplate_items` allows is not looked for, and counted as boilerplate. Items
of the same words are one: the first. N-grams across the border between a prompt and a question are the item's own too,
and a document that holds the question alone lacks them: give items without prompts.

Files: `index.json`; `ngrams.u64` (sorted hashes of the distinct n-grams), `starts.i64` and `items.u32` (the items that
have n-gram g are `items[starts[g]:starts[g + 1]]`); `items.parquet` (the items, in order). Little-endian.

Legend: W words, N n-grams of all documents, G distinct n-grams, P pairs of an n-gram and an item, I items.
"""

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.files import read_whole
from marin_corpus.manifest import encode_manifest, read_manifest
from marin_corpus.mixing import GOLDEN, mix
from marin_corpus.output import Output
from marin_corpus.words import hash_words, split_words

MANIFEST = "index.json"
KIND = "contamination index"
_MAX_ITEMS_OF_NGRAM = 1000
_BASE = np.uint64(GOLDEN)
_INVERSE = np.uint64(pow(GOLDEN, -1, 1 << 64))
_COUNTS = ("num_items", "num_searched", "num_repeated", "num_too_short", "num_boilerplate")
_ARRAYS = {"ngrams.u64": "<u8", "starts.i64": "<i8", "items.u32": "<u4"}


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """Which n-grams stand for an item; see the head of this file."""

    ngram_words: int = 13
    """For items of at least three times as many words; shorter items than one such n-gram are found whole only."""
    short_ngram_words: int = 8
    """For shorter items."""
    min_item_words: int = 5
    boilerplate_items: int = 10
    """An item is looked for if its n-grams together weigh at least one n-gram that this many items share."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_item_words <= self.short_ngram_words <= self.ngram_words:
            raise BadConfig(
                f"min_item_words={self.min_item_words}, short_ngram_words={self.short_ngram_words} and "
                f"ngram_words={self.ngram_words} must be at least 1 and in this order"
            )
        if self.boilerplate_items < 1:
            raise BadConfig(f"boilerplate_items={self.boilerplate_items} must be at least 1")

    def size_for(self, num_words: int) -> int:
        """Words in the n-grams of an item of so many; 0 if it is not looked for."""
        if num_words < self.min_item_words:
            return 0
        if num_words >= 3 * self.ngram_words:
            return self.ngram_words
        return min(num_words, self.short_ngram_words)


class Ngrams:
    """Hashes of all n-grams of some documents, of any size: polynomials over the words' hashes, modulo 2**64."""

    def __init__(self, words_W: np.ndarray, ends_D: np.ndarray) -> None:
        """See `hash_words`."""
        num_words = len(words_W)
        self._document_W = np.repeat(np.arange(len(ends_D)), np.diff(ends_D, prepend=0))
        powers = np.cumprod(np.full(num_words, _BASE))
        self._inverses = np.cumprod(np.full(num_words, _INVERSE))
        self._prefix = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(words_W * powers)])

    def of_size(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(hash, document, number of its first word among all words) of each n-gram that lies within a document."""
        document_W, count = self._document_W, max(0, len(self._document_W) - size + 1)
        hashes_N = (self._prefix[size:] - self._prefix[:count]) * self._inverses[:count]
        inside_N = np.flatnonzero(document_W[:count] == document_W[size - 1 :])
        if len(inside_N) < count:
            hashes_N = hashes_N[inside_N]
        # Sizes share one table.
        return mix(hashes_N + np.uint64(size)), document_W[inside_N], inside_N


@dataclass
class _Items:
    """The distinct items; and for each set, how many items it has and what becomes of them."""

    rows: dict[str, list[Any]]
    words: list[np.ndarray]
    sets: dict[str, dict[str, int]]


def build_index(evaluation: Sequence[DocumentSet], config: IndexConfig, output: Output) -> dict[str, Any]:
    """Write the index of the items of all sets; returns what `index.json` says.

    Memory: the items' text, and about 60 bytes for each n-gram of theirs: 0.6 GB for ten million.

    Raises:
        BadInput: there is no item at all, or none that can be looked for.
    """
    items = _read_items(evaluation)
    num_items = len(items.words)
    words_W = np.concatenate([np.zeros(0, dtype=np.uint64), *items.words])
    lengths_I = np.array([len(words) for words in items.words], dtype=np.int64)
    sizes_I = np.array([config.size_for(int(length)) for length in lengths_I], dtype=np.int64)
    ngrams = Ngrams(words_W, np.cumsum(lengths_I))
    hashes, owners = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for size in sorted(set(sizes_I.tolist()) - {0}):
        hash_N, item_N, _ = ngrams.of_size(size)
        mine = sizes_I[item_N] == size
        hashes.append(hash_N[mine])
        owners.append(item_N[mine])
    ngram_G, start_G1, item_P = _group(np.concatenate(hashes), np.concatenate(owners))
    counts_G = np.diff(start_G1)
    weights_I = np.bincount(item_P, weights=np.repeat(1.0 / counts_G, counts_G), minlength=num_items)
    searched_I = weights_I * config.boilerplate_items >= 1 - 1e-9
    for source, size, searched in zip(items.rows["source"], sizes_I, searched_I, strict=True):
        items.sets[source]["num_searched" if searched else "num_boilerplate" if size else "num_too_short"] += 1
    if not searched_I.any():
        raise BadInput(
            "the evaluation sets hold no item that can be looked for",
            why=f"{num_items} different items: {items.sets}",
            next=f"give items of at least min_item_words={config.min_item_words} words",
        )
    whole_I = lengths_I < config.ngram_words
    table = pa.table(
        {**items.rows, "ngram_words": sizes_I, "weight": weights_I, "searched": searched_I, "whole": whole_I}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", compression_level=3)
    files = {
        "ngrams.u64": ngram_G.astype("<u8").tobytes(),
        "starts.i64": start_G1.astype("<i8").tobytes(),
        "items.u32": item_P.astype("<u4").tobytes(),
        "items.parquet": buffer.getvalue(),
    }
    for name, data in files.items():
        output.write_file(name, data)
    facts = {
        "config": asdict(config),
        "num_items": num_items,
        "num_ngrams": len(ngram_G),
        "sets": items.sets,
        "files": {
            name: {"bytes": len(data), "xxh3_128": xxhash.xxh3_128_hexdigest(data)} for name, data in files.items()
        },
    }
    output.write_file(MANIFEST, encode_manifest(KIND, facts))
    return facts


def _read_items(evaluation: Sequence[DocumentSet]) -> _Items:
    items = _Items(rows={"id": [], "source": [], "text": []}, words=[], sets={})
    seen: set[bytes] = set()
    for documents in evaluation:
        for part in documents.parts:
            for batch in read_batches(part, ("id", "text", "source")):
                texts = batch["text"].to_pylist()
                words_W, ends_D = hash_words(texts)
                pieces = np.split(words_W, ends_D[:-1])
                for name, text, source, words in zip(
                    batch["id"].to_pylist(), texts, batch["source"].to_pylist(), pieces, strict=True
                ):
                    counts = items.sets.setdefault(source, dict.fromkeys(_COUNTS, 0))
                    counts["num_items"] += 1
                    digest = xxhash.xxh3_128_digest(words.tobytes())
                    if digest in seen and len(words):
                        counts["num_repeated"] += 1
                        continue
                    seen.add(digest)
                    for column, value in zip(items.rows.values(), (name, source, text), strict=True):
                        column.append(value)
                    items.words.append(words)
    return items


def _group(hash_N: np.ndarray, item_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct n-grams in order, and the items of each; n-grams that very many items have are left out."""
    order = np.lexsort((item_N, hash_N))
    hash_N, item_N = hash_N[order], item_N[order]
    new = np.ones(len(hash_N), dtype=bool)
    new[1:] = (hash_N[1:] != hash_N[:-1]) | (item_N[1:] != item_N[:-1])
    hash_P, item_P = hash_N[new], item_N[new]
    ngram_G, counts_G = np.unique(hash_P, return_counts=True)
    kept_G = counts_G <= _MAX_ITEMS_OF_NGRAM
    item_P = item_P[np.repeat(kept_G, counts_G)]
    return ngram_G[kept_G], np.concatenate([[0], np.cumsum(counts_G[kept_G])]), item_P


class EvaluationIndex:
    """An index as it is looked things up in. Local files are mapped, so that workers share their memory."""

    def __init__(self, url: str) -> None:
        """Raises `Mismatch`; `CorruptData` if a file is not the one that `index.json` names."""
        from upath import UPath

        folder = UPath(url)
        facts = read_manifest(folder, MANIFEST, kind=KIND)
        self.sets: dict[str, dict[str, int]] = facts["sets"]
        self.digest = index_digest(facts)
        arrays = [_read_array(str(folder / name), dtype, facts["files"][name]) for name, dtype in _ARRAYS.items()]
        self._ngram_G, self._start_G1, self._item_P = arrays
        data = _read_checked(str(folder / "items.parquet"), facts["files"]["items.parquet"])
        self._table = pq.read_table(io.BytesIO(data))
        self._sizes_I = self._table["ngram_words"].to_numpy()
        self.sizes = sorted(set(self._sizes_I.tolist()) - {0})
        """The sizes of n-grams that occur."""
        self.weights_I = self._table["weight"].to_numpy()
        self.searched_I = self._table["searched"].to_numpy()
        self.whole_I = self._table["whole"].to_numpy()
        # One byte of a table of 16 or more for each n-gram answers most look-ups, with "no".
        bits = min(27, max(12, len(self._ngram_G).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._maybe = np.zeros(1 << bits, dtype=bool)
        self._maybe[self._ngram_G >> self._shift] = True

    @property
    def num_items(self) -> int:
        return len(self._sizes_I)

    @property
    def num_ngrams(self) -> int:
        return len(self._ngram_G)

    def look_up(self, hash_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index into `hash_N`, number of the n-gram) of those that are n-grams of an item."""
        candidates = np.flatnonzero(self._maybe[hash_N >> self._shift])
        wanted = hash_N[candidates]
        ngrams = np.minimum(np.searchsorted(self._ngram_G, wanted), len(self._ngram_G) - 1)
        found = self._ngram_G[ngrams] == wanted
        return candidates[found], ngrams[found]

    def items_of(self, ngrams: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(index into `ngrams`, item, weight) for each item that has one of some n-grams."""
        begins, counts = self._start_G1[ngrams], self._start_G1[ngrams + 1] - self._start_G1[ngrams]
        which = np.repeat(np.arange(len(ngrams)), counts)
        # 0, 1, 2, ... within each n-gram.
        offsets = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        return which, self._item_P[begins[which] + offsets].astype(np.int64), (1.0 / counts)[which]

    def item(self, number: int) -> dict[str, Any]:
        """Its `id`, `source`, `text`, `ngram_words`."""
        row: dict[str, Any] = self._table.slice(number, 1).to_pylist()[0]
        return row

    def ngrams_of(self, number: int) -> frozenset[tuple[bytes, ...]]:
        """The true words of its n-grams."""
        words, size = split_words(self.item(number)["text"]), int(self._sizes_I[number])
        return frozenset(tuple(words[i : i + size]) for i in range(len(words) - size + 1))

    def ids(self) -> list[str]:
        """Of all items in order."""
        return list(self._table["id"].to_pylist())

    def sources(self) -> list[str]:
        """Of all items in order."""
        return list(self._table["source"].to_pylist())


def index_digest(facts: dict[str, Any]) -> str:
    """One name for all that an index holds."""
    return xxhash.xxh3_128_hexdigest("".join(file["xxh3_128"] for file in facts["files"].values()).encode())


def _read_checked(path: str, expected: dict[str, Any]) -> bytes:
    return read_whole(path, expected["bytes"], expected["xxh3_128"], next="build the index again")


def _read_array(path: str, dtype: str, expected: dict[str, Any]) -> np.ndarray:
    data = _read_checked(path, expected)
    if "://" in path or not data:
        return np.frombuffer(data, dtype=dtype)
    # Its digest was right a moment ago; mapped, all workers share the one copy.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
