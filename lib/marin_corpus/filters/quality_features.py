"""Texts as sparse vectors: hashed words and pairs of words, counted, of unit length.

The features of fastText's supervised baseline (Joulin et al., 2016, "Bag of tricks for efficient text classification").

Legend: D documents, F entries (distinct n-grams of a document, all documents back to back), B buckets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marin_corpus.mixing import mix
from marin_corpus.words import chunks, hash_words

_CHUNK_ENTRIES = 1 << 20


@dataclass(frozen=True)
class SparseRows:
    """`buckets_F` and `values_F`, of which document d has the entries `starts_D1[d]` to `starts_D1[d + 1]`."""

    buckets_F: np.ndarray
    """uint32."""
    values_F: np.ndarray
    """float32; the squares of a document's values sum to 1."""
    starts_D1: np.ndarray
    """int64, one more than documents."""

    @property
    def num_documents(self) -> int:
        return len(self.starts_D1) - 1

    def documents_F(self) -> np.ndarray:
        """The document of each entry."""
        return np.repeat(np.arange(self.num_documents), np.diff(self.starts_D1))

    def chunks(self) -> Iterator[tuple[slice, "SparseRows"]]:
        """Which documents, and those alone; together they have about a million entries, or one document."""
        begin = 0
        while begin < self.num_documents:
            last = int(np.searchsorted(self.starts_D1, self.starts_D1[begin] + _CHUNK_ENTRIES, side="right")) - 1
            end = max(begin + 1, last)
            entries = slice(self.starts_D1[begin], self.starts_D1[end])
            yield (
                slice(begin, end),
                SparseRows(
                    buckets_F=self.buckets_F[entries],
                    values_F=self.values_F[entries],
                    starts_D1=self.starts_D1[begin : end + 1] - self.starts_D1[begin],
                ),
            )
            begin = end


def concatenate_rows(rows: Sequence[SparseRows]) -> SparseRows:
    """All documents of all, in order."""
    lengths = [np.diff(row.starts_D1) for row in rows]
    return SparseRows(
        buckets_F=np.concatenate([row.buckets_F for row in rows]),
        values_F=np.concatenate([row.values_F for row in rows]),
        starts_D1=np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
    )


def hashed_ngrams(texts: Sequence[str], num_buckets: int) -> SparseRows:
    """Words and pairs of neighbouring words of each text, hashed into `num_buckets` (a power of two).

    A value is the number of times the n-grams of a bucket occur, divided by the vector's length. A text without words
    has no entries.
    """
    rows = [_chunk_rows(chunk, num_buckets) for chunk in chunks(texts)]
    return concatenate_rows(rows) if rows else _chunk_rows((), num_buckets)


def _chunk_rows(texts: Sequence[str], num_buckets: int) -> SparseRows:
    words_W, ends_D = hash_words(texts)
    width = num_buckets.bit_length() - 1
    # The high bits of a key are the document, the low ones the bucket: sorted, equal n-grams are neighbours. Half as
    # many bits sort in half the time, and are enough for a chunk of ordinary documents.
    bits = np.uint32 if len(ends_D) << width <= 1 << 32 else np.uint64
    high_D = (np.arange(len(ends_D), dtype=np.uint64) << np.uint64(width)).astype(bits)
    high_W = np.repeat(high_D, np.diff(ends_D, prepend=0))
    # A pair's hash depends on the order of its words; pairs across two documents are none.
    pairs_P = mix(words_W[:-1] * np.uint64(3) + words_W[1:])
    inside_P = high_W[:-1] == high_W[1:]
    mask = np.uint64(num_buckets - 1)
    keys = np.concatenate(
        [high_W | (words_W & mask).astype(bits), (high_W[:-1] | (pairs_P & mask).astype(bits))[inside_P]]
    )
    keys.sort()
    first_F = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
    counts_F = np.diff(first_F, append=len(keys)).astype(np.float64)
    keys_F = keys[first_F]
    document_F = (keys_F >> bits(width)).astype(np.int64)
    norms_D = np.sqrt(np.bincount(document_F, weights=counts_F * counts_F, minlength=len(ends_D)))
    return SparseRows(
        buckets_F=(keys_F & bits(num_buckets - 1)).astype(np.uint32),
        values_F=(counts_F / norms_D[document_F]).astype(np.float32),
        starts_D1=np.searchsorted(document_F, np.arange(len(ends_D) + 1)),
    )
