"""Computed permutations: bijective, unpredictable, and the same for ever."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.order.permutation import MAX_SIZE, key_of, permute, subkeys, unpermute


def shuffle(size: int, key: int) -> np.ndarray:
    return permute(np.arange(size), np.array([size]), np.array([key], np.uint64))


def chi_square_deviations(counts: np.ndarray) -> float:
    """How many standard deviations a chi-square statistic of equally likely cells is from its mean."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


def test_every_small_range_is_permuted() -> None:
    for size in range(1, 400):
        assert sorted(shuffle(size, key_of("k", size)).tolist()) == list(range(size))


@given(st.integers(1, 20_000), st.integers(0, 2**64 - 1))
def test_any_range_is_permuted_and_taken_back(size: int, key: int) -> None:
    found = shuffle(size, key)
    assert np.bincount(found, minlength=size).tolist() == [1] * size
    back = unpermute(found, np.array([size]), np.array([key], np.uint64))
    assert back.tolist() == list(range(size))


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, MAX_SIZE), st.integers(0)), min_size=1, max_size=20)
)
def test_elements_of_many_permutations_at_once_are_those_of_each_alone(
    rows: list[tuple[int, int, int]],
) -> None:
    keys, sizes = np.array([key for key, _, _ in rows], np.uint64), np.array([size for _, size, _ in rows])
    indices = np.array([index % size for _, size, index in rows])
    together = permute(indices, sizes, keys)
    alone = [int(permute(indices[[i]], sizes[[i]], keys[[i]])[0]) for i in range(len(rows))]
    assert together.tolist() == alone
    assert all(0 <= found < size for found, size in zip(alone, sizes.tolist(), strict=True))
    assert unpermute(together, sizes, keys).tolist() == indices.tolist()


def plain_permute(index: int, size: int, key: int) -> int:
    """The definition in unbounded integers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)

    def scramble(half: int, r: int) -> int:
        z = ((half ^ ((key + (r + 1) * golden) & mask)) * 0xBF58476D1CE4E5B9) & mask
        return (((z ^ (z >> 32)) * 0x94D049BB133111EB) & mask) >> 32

    while True:
        left, right = divmod(index, columns)
        for r in range(0, 8, 2):
            left = (left + scramble(right, r)) % rows
            right = (right + scramble(left, r + 1)) % columns
        index = left * columns + right
        if index < size:
            return index


@given(st.integers(1, MAX_SIZE), st.integers(0), st.integers(0, 2**64 - 1))
def test_permutation_equals_its_definition_in_unbounded_integers(size: int, index: int, key: int) -> None:
    found = permute(np.array([index % size]), np.array([size]), np.array([key], np.uint64))
    assert int(found[0]) == plain_permute(index % size, size, key)


@pytest.mark.parametrize("size", [6, 16, 37, 64])
def test_two_elements_land_on_any_two_places_equally_often(size: int) -> None:
    keys = subkeys(np.array([key_of("pairs")], np.uint64), np.arange(40_000))
    first = permute(np.zeros(len(keys), np.int64), np.array([size]), keys)
    second = permute(np.ones(len(keys), np.int64), np.array([size]), keys)
    cells = np.bincount(first * size + second, minlength=size * size).reshape(size, size)
    assert not np.diag(cells).any()
    assert abs(chi_square_deviations(cells[~np.eye(size, dtype=bool)])) < 4


def test_all_permutations_of_four_elements_occur_equally_often() -> None:
    counts = Counter(tuple(shuffle(4, key_of("four", k)).tolist()) for k in range(4_800))
    assert abs(chi_square_deviations(np.array([counts[p] for p in itertools.permutations(range(4))]))) < 4


def test_neighbours_are_parted() -> None:
    """In a random permutation of n, the number of neighbours kept is Poisson with mean 1."""
    kept = [int((np.diff(shuffle(10_000, key_of("n", k))) == 1).sum()) for k in range(50)]
    assert max(kept) < 8
    assert abs(sum(kept) - 50) < 4 * math.sqrt(50)


def test_permutations_of_different_keys_are_uncorrelated() -> None:
    shuffles = [shuffle(10_000, key) for key in (1, 2, 3, 1 << 63)]
    for a, b in itertools.combinations([np.arange(10_000), *shuffles], 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(10_000)


def test_permutations_are_a_format() -> None:
    """Literal values: training orders of earlier versions stay what they were."""
    assert key_of("epochs", 0, "wiki") == GOLDEN_KEY
    assert subkeys(np.array([0, 1], np.uint64), np.array([0, 5])).tolist() == GOLDEN_SUBKEYS
    assert shuffle(10, 7).tolist() == GOLDEN_TEN
    far = permute(np.array([0, 1, 10**12 - 1]), np.array([10**12]), np.array([2**64 - 1], np.uint64))
    assert far.tolist() == GOLDEN_FAR


GOLDEN_KEY = 12050883470584766849
GOLDEN_SUBKEYS = [16294208416658607535, 14072917602864530048]
GOLDEN_TEN = [9, 4, 2, 3, 5, 8, 6, 1, 0, 7]
GOLDEN_FAR = [641196334496, 445821759194, 586018072783]
