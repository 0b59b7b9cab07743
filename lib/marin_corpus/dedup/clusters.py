"""Candidates: documents that share the key of a band, and the clusters that they form.

Legend: D documents, M memberships (a document in a bucket of at least two), E edges.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


class DisjointSets:
    """Union-find over 0 ... size - 1, for arrays of edges; the representative of a set is its smallest member."""

    def __init__(self, size: int) -> None:
        self._parent_D = np.arange(size, dtype=np.int64)

    def unite(self, left_E: np.ndarray, right_E: np.ndarray) -> None:
        """Join the sets of each pair."""
        while len(left_E):
            self._compress()
            left_E, right_E = self._parent_D[left_E], self._parent_D[right_E]
            apart = left_E != right_E
            left_E, right_E = left_E[apart], right_E[apart]
            # A root that is to hang below several others goes below the smallest; the other pairs get another turn.
            np.minimum.at(self._parent_D, np.maximum(left_E, right_E), np.minimum(left_E, right_E))

    def representatives(self) -> np.ndarray:
        """The representative of each member's set, int64."""
        self._compress()
        roots_D: np.ndarray = self._parent_D.copy()
        return roots_D

    def _compress(self) -> None:
        """Make every path one step long. Each turn halves all paths, so that a chain of a million takes twenty."""
        while not np.array_equal(above := self._parent_D[self._parent_D], self._parent_D):
            self._parent_D = above


@dataclass(frozen=True)
class Buckets:
    """Which documents share a band key: sorted by bucket, then by document; only buckets of two or more."""

    bucket_M: np.ndarray
    document_M: np.ndarray

    def clusters(self, num_documents: int) -> np.ndarray:
        """The smallest document of the cluster of each document, [D] int64: buckets that share a document join."""
        sets = DisjointSets(num_documents)
        sets.unite(self.document_M, self.document_M[first_of_run(self.bucket_M)])
        return sets.representatives()


def first_of_run(values_M: np.ndarray) -> np.ndarray:
    """The position at which the run of equal values begins that each position is in."""
    begins = np.ones(len(values_M), dtype=bool)
    begins[1:] = values_M[1:] != values_M[:-1]
    first_M: np.ndarray = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return first_M


def share_buckets(bands: Iterable[np.ndarray], has_shingles_D: np.ndarray) -> Buckets:
    """Collect the buckets of all bands, one band in memory at a time.

    Memory: about 40 bytes for each document, and 32 for each membership.

    Args:
        bands: for each band, its keys of all documents.
        has_shingles_D: documents for which it is false are in no bucket.
    """
    documents, buckets, num_buckets = [], [], 0
    candidates = np.flatnonzero(has_shingles_D)
    for keys_D in bands:
        keys = keys_D[candidates]
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        equal = ordered[1:] == ordered[:-1]
        shared = np.zeros(len(ordered), dtype=bool)
        shared[1:] |= equal
        shared[:-1] |= equal
        chosen = np.flatnonzero(shared)
        begins = np.ones(len(chosen), dtype=bool)
        begins[1:] = ordered[chosen][1:] != ordered[chosen][:-1]
        documents.append(candidates[order[chosen]])
        buckets.append(np.cumsum(begins) - 1 + num_buckets)
        num_buckets += int(begins.sum())
    nothing = [np.zeros(0, dtype=np.int64)]
    return Buckets(np.concatenate(buckets or nothing), np.concatenate(documents or nothing))
