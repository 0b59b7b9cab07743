import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.dedup.clusters import DisjointSets, share_buckets


def reachable(size, edges):
    """The smallest vertex that each can reach, by searching the graph."""
    neighbours: dict[int, set[int]] = {vertex: set() for vertex in range(size)}
    for left, right in edges:
        neighbours[left].add(right)
        neighbours[right].add(left)
    smallest = [-1] * size
    for vertex in range(size):
        frontier = [vertex] if smallest[vertex] < 0 else []
        while frontier:
            found = frontier.pop()
            if smallest[found] < 0:
                smallest[found] = vertex
                frontier.extend(neighbours[found])
    return smallest


edges_of = st.integers(1, 40).flatmap(
    lambda size: st.tuples(
        st.just(size), st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=60)
    )
)


@given(edges_of, st.integers(0, 60))
def test_sets_are_the_connected_components_however_the_edges_come(graph, cut):
    size, edges = graph
    sets = DisjointSets(size)
    for some in (edges[:cut], edges[cut:]):
        left, right = np.array(some, dtype=np.int64).reshape(-1, 2).T
        sets.unite(left, right)
    assert sets.representatives().tolist() == reachable(size, edges)


def test_a_long_chain_is_one_set():
    size = 200_000
    sets = DisjointSets(size)
    sets.unite(np.arange(1, size), np.arange(size - 1))
    assert not sets.representatives().any()


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=12, max_size=12), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_buckets_hold_exactly_the_pairs_that_share_a_key_of_a_band(bands, has_shingles):
    keys = [np.array(band, dtype=np.uint64) for band in bands]
    buckets = share_buckets(keys, np.array(has_shingles))
    members: dict[int, list[int]] = {}
    for bucket, document in zip(buckets.bucket_M.tolist(), buckets.document_M.tolist(), strict=True):
        members.setdefault(bucket, []).append(document)
    expected = []
    for band in bands:
        for key in set(band):
            bucket = [d for d in range(12) if band[d] == key and has_shingles[d]]
            if len(bucket) > 1:
                expected.append(bucket)
    assert sorted(members.values()) == sorted(expected)
    joined = [(bucket[0], other) for bucket in expected for other in bucket]
    assert buckets.clusters(12).tolist() == reachable(12, joined)


def test_no_documents():
    buckets = share_buckets([np.zeros(0, dtype=np.uint64)] * 2, np.zeros(0, dtype=bool))
    assert len(buckets.document_M) == 0
    assert len(buckets.clusters(0)) == 0
