"""Dealing clusters of candidates to groups that are compared one at a time, each in the memory of a worker.

Legend: D documents, M memberships of documents in buckets.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from marin_corpus.dedup.clusters import Buckets


@dataclass(frozen=True)
class Group:
    """Some documents of a set, and their buckets."""

    positions: np.ndarray
    """Ascending int64: where the documents are in the whole set."""
    buckets: Buckets
    """Of positions within `positions`."""


def deal(
    buckets: Buckets, cluster_D: np.ndarray, num_shingles_D: np.ndarray, group_shingles: int
) -> tuple[list[Group], int]:
    """Groups of candidates that are compared together, and the number of documents in clusters that had to be cut.

    Clusters come in the order of their first documents; a group ends when the next cluster would exceed it. A cluster
    of more than `group_shingles` shingles is cut into runs of documents in order, each up to a document more than that.
    """
    candidates = np.unique(buckets.document_M)
    order = candidates[np.argsort(cluster_D[candidates], kind="stable")]
    begins = np.flatnonzero(np.diff(cluster_D[order], prepend=-1))
    group_of_candidate = np.zeros(len(order), dtype=np.int64)
    sizes = np.add.reduceat(num_shingles_D[order], begins) if len(order) else begins
    num_groups, room, num_cut = 0, 0, 0
    for begin, end, size in zip(begins.tolist(), [*begins[1:].tolist(), len(order)], sizes.tolist(), strict=False):
        if size > group_shingles:
            runs = (np.cumsum(num_shingles_D[order[begin:end]]) - 1) // group_shingles
            _, run = np.unique(runs, return_inverse=True)
            group_of_candidate[begin:end] = num_groups + run
            num_groups += int(run[-1]) + 1
            num_cut += end - begin
            room = 0
            continue
        if size > room:
            num_groups += 1
            room = group_shingles
        group_of_candidate[begin:end] = num_groups - 1
        room -= size
    group_D = np.full(len(cluster_D), -1, dtype=np.int64)
    group_D[order] = group_of_candidate
    return list(_gather(buckets, candidates, group_D, num_groups)), num_cut


def _gather(buckets: Buckets, candidates: np.ndarray, group_D: np.ndarray, num_groups: int) -> Iterator[Group]:
    # Stable sorts: within a group documents stay ascending, and memberships sorted by bucket and document.
    members = candidates[np.argsort(group_D[candidates], kind="stable")]
    member_ends = np.cumsum(np.bincount(group_D[candidates], minlength=num_groups))
    group_M = group_D[buckets.document_M]
    order = np.argsort(group_M, kind="stable")
    ends = np.cumsum(np.bincount(group_M, minlength=num_groups))
    for number in range(num_groups):
        positions = members[member_ends[number - 1] if number else 0 : member_ends[number]]
        chosen = order[ends[number - 1] if number else 0 : ends[number]]
        _, bucket_M = np.unique(buckets.bucket_M[chosen], return_inverse=True)
        yield Group(positions, Buckets(bucket_M, np.searchsorted(positions, buckets.document_M[chosen])))
