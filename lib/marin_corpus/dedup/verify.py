"""Verification: of the documents of a bucket only those are duplicates that truly resemble one that is kept.

Clusters of candidates join documents that have nothing in common but a chain of others. So a document is dropped only
if its true Jaccard similarity to a kept document before it, with which it shares a bucket, is high enough: the outcome
of going through the documents in order. It is computed in rounds: a document that is the first undecided one in all of
its buckets is kept, the others are compared with the kept firsts of their buckets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marin_corpus.dedup.clusters import Buckets, first_of_run
from marin_corpus.dedup.shingles import jaccard


@dataclass(frozen=True)
class Verified:
    """What comparing showed. Legend: P compared pairs, D documents."""

    document_P: np.ndarray
    """int64; positions among the compared documents."""
    kept_P: np.ndarray
    """int64; comes before the document."""
    jaccard_P: np.ndarray
    """float64."""
    duplicate_of_D: np.ndarray
    """int64: the kept document that each is a duplicate of, itself if it is kept."""
    jaccard_D: np.ndarray
    """float64: similarity to that document, 1.0 to itself."""
    undecided: np.ndarray
    """int64: documents that are kept without comparison with all kept documents of their buckets."""


def verify(
    buckets: Buckets, shingles_D: Sequence[np.ndarray], *, min_jaccard: float, max_kept_in_bucket: int
) -> Verified:
    """Compare the documents of each bucket.

    Args:
        buckets: who is to be compared.
        shingles_D: the sorted set of shingles of each document.
        min_jaccard: documents at least so similar are duplicates.
        max_kept_in_bucket: a bucket in which more documents than this are kept is given up: the rest of its documents
            are `undecided`, unless other buckets show that they are duplicates. So m documents of a bucket take no
            more than m * max_kept_in_bucket comparisons.
    """
    num_documents = len(shingles_D)
    duplicate_of_D = np.arange(num_documents)
    jaccard_D = np.ones(num_documents)
    open_D = np.ones(num_documents, dtype=bool)
    given_up_D = np.zeros(num_documents, dtype=bool)
    num_kept = np.zeros(int(buckets.bucket_M.max(initial=-1)) + 1, dtype=np.int64)
    bucket_M, document_M = buckets.bucket_M, buckets.document_M
    pairs: list[tuple[int, int, float]] = []
    while len(document_M):
        head_M = document_M[first_of_run(bucket_M)]
        first_D = np.ones(num_documents, dtype=bool)
        first_D[document_M[head_M != document_M]] = False
        compare = np.flatnonzero((head_M != document_M) & first_D[head_M])
        # A pair as one number: several times faster than unique rows.
        pair_numbers = np.unique(document_M[compare] * num_documents + head_M[compare])
        for document, kept in zip(*(n.tolist() for n in np.divmod(pair_numbers, num_documents)), strict=True):
            similarity = jaccard(shingles_D[document], shingles_D[kept])
            pairs.append((document, kept, similarity))
            if similarity >= min_jaccard and duplicate_of_D[document] == document:
                duplicate_of_D[document], jaccard_D[document] = kept, similarity
                open_D[document] = False
        is_kept_head = first_D[document_M] & (head_M == document_M)
        num_kept[bucket_M[is_kept_head]] += 1
        open_D[document_M[is_kept_head]] = False
        full_M = num_kept[bucket_M] > max_kept_in_bucket
        given_up_D[document_M[full_M & open_D[document_M]]] = True
        going_on = open_D[document_M] & ~full_M
        bucket_M, document_M = bucket_M[going_on], document_M[going_on]
    columns = list(zip(*pairs, strict=True)) or [(), (), ()]
    return Verified(
        document_P=np.array(columns[0], dtype=np.int64),
        kept_P=np.array(columns[1], dtype=np.int64),
        jaccard_P=np.array(columns[2], dtype=np.float64),
        duplicate_of_D=duplicate_of_D,
        jaccard_D=jaccard_D,
        undecided=np.flatnonzero(given_up_D & (duplicate_of_D == np.arange(num_documents))),
    )
