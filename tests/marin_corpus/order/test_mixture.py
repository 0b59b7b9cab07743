"""Exact proportions per block."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.errors import BadConfig
from marin_corpus.order.mixture import MIXTURE_BLOCK, BlockMixture, block_counts
from naive_order import apportion

WEIGHTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(100, 9_999), min_size=1, max_size=12)


@given(WEIGHTS)
def test_counts_are_the_largest_remainder_apportionment(weights: dict[str, int]) -> None:
    exact = {name: Fraction(weight) for name, weight in weights.items()}
    counts = block_counts(exact)
    assert counts == apportion(exact)
    assert sum(counts.values()) == MIXTURE_BLOCK
    total = sum(weights.values())
    assert all(abs(counts[n] - w * MIXTURE_BLOCK / total) < 1 for n, w in weights.items())


def test_equal_weights_give_what_is_left_to_the_first_names() -> None:
    assert block_counts({name: Fraction(1) for name in "cab"}) == {"a": 683, "b": 683, "c": 682}


def test_a_share_that_is_never_drawn_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"'rare' has a share of 0\.0001") as caught:
        block_counts({"common": Fraction(9_999), "rare": Fraction(1)})
    assert "2048" in caught.value.why


@given(WEIGHTS, st.integers(0, 2**64 - 1), st.integers(0, 10**9))
def test_every_block_holds_each_component_exactly_as_often_in_rising_ordinals(
    weights: dict[str, int], key: int, block: int
) -> None:
    counts = block_counts({name: Fraction(weight) for name, weight in weights.items()})
    mixture = BlockMixture(components=tuple(range(len(counts))), counts=tuple(counts.values()), key=key)
    places = np.arange(block * MIXTURE_BLOCK, (block + 1) * MIXTURE_BLOCK)
    components, ordinals = mixture.locate(places)
    assert Counter(components.tolist()) == dict(enumerate(counts.values()))
    for component, count in enumerate(counts.values()):
        assert ordinals[components == component].tolist() == list(range(block * count, (block + 1) * count))
    # And back again.
    at = int(components[1_234]), int(ordinals[1_234])
    assert mixture.place_of(*at) == places[1_234]
    assert mixture.drawn_before(int(places[1_234]))[at[0]] == at[1]


def test_blocks_differ_and_mix_evenly() -> None:
    mixture = BlockMixture(components=(0, 1), counts=(1024, 1024), key=5)
    rows = np.stack([mixture.members(block)[0] for block in range(200)])
    assert len({row.tobytes() for row in rows}) == 200
    # Each place is a fair coin over the blocks: standard deviation of the mean 0.035.
    assert np.abs(rows.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(200)
