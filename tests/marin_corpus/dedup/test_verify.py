import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.dedup.clusters import Buckets
from marin_corpus.dedup.verify import verify

SIZE = 9


def as_buckets(buckets):
    rows = sorted((number, document) for number, bucket in enumerate(buckets) for document in bucket)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return Buckets(columns[:, 0], columns[:, 1])


def in_order(buckets, sets, min_jaccard):
    """The documents one goes through in order: dropped if like a kept one of a bucket of theirs."""
    kept: list[int] = []
    for document in range(SIZE):
        similar = [
            other
            for other in kept
            if any({document, other} <= bucket for bucket in buckets)
            and len(sets[document] & sets[other]) / len(sets[document] | sets[other]) >= min_jaccard
        ]
        if not similar:
            kept.append(document)
    return kept


@given(
    st.lists(st.sets(st.integers(0, SIZE - 1), min_size=2), max_size=5),
    st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=SIZE, max_size=SIZE),
    st.sampled_from([0.3, 0.5, 0.75, 1.0]),
)
def test_the_outcome_is_that_of_going_through_the_documents_in_order(buckets, sets, min_jaccard):
    shingles = [np.array(sorted(one), dtype=np.uint64) for one in sets]
    verified = verify(as_buckets(buckets), shingles, min_jaccard=min_jaccard, max_kept_in_bucket=SIZE)
    kept = np.flatnonzero(verified.duplicate_of_D == np.arange(SIZE)).tolist()
    assert kept == in_order(buckets, sets, min_jaccard)
    assert not len(verified.undecided)
    for document, of in enumerate(verified.duplicate_of_D.tolist()):
        similarity = len(sets[document] & sets[of]) / len(sets[document] | sets[of])
        assert of in kept
        assert of <= document
        assert verified.jaccard_D[document] == similarity >= min_jaccard
    pairs = list(zip(verified.document_P.tolist(), verified.kept_P.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert all(any(set(pair) <= bucket for bucket in buckets) for pair in pairs)


def test_a_document_is_not_dropped_because_another_resembles_both():
    """0 is like 1 and 1 like 2, but 2 is not like 0: dropping 1 leaves nothing that 2 resembles."""
    sets = [np.arange(0, 10), np.arange(2, 12), np.arange(4, 14)]
    verified = verify(as_buckets([{0, 1, 2}]), sets, min_jaccard=0.6, max_kept_in_bucket=9)
    assert verified.duplicate_of_D.tolist() == [0, 0, 2]


def test_a_bucket_of_many_different_documents_is_given_up_and_said():
    sets = [np.array([number, 1000]) for number in range(50)]
    sets[49] = sets[0]
    sets[48] = sets[30]
    verified = verify(as_buckets([set(range(50))]), sets, min_jaccard=0.9, max_kept_in_bucket=5)
    assert len(verified.jaccard_P) <= 50 * 6
    assert verified.duplicate_of_D[49] == 0
    assert verified.duplicate_of_D[48] == 48
    assert 48 in verified.undecided
    assert 49 not in verified.undecided
    assert set(verified.undecided.tolist()) == set(range(6, 49))


def test_a_thousand_copies_take_one_comparison_each():
    same = np.arange(20)
    verified = verify(as_buckets([set(range(1000))] * 14), [same] * 1000, min_jaccard=0.8, max_kept_in_bucket=100)
    assert len(verified.jaccard_P) == 999
    assert not verified.duplicate_of_D.any()
