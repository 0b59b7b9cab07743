import numpy as np
import pytest
from marin_corpus.dedup.minhash import MinHashConfig, band_keys, signatures
from marin_corpus.dedup.shingles import Shingles
from marin_corpus.errors import BadConfig

NUM_PAIRS = 1500


def random_sets(sets):
    return Shingles(np.concatenate(sets), np.cumsum([len(one) for one in sets]))


def pairs_of_similarity(similarity, size, rng):
    """Documents 2k and 2k + 1 are random sets of this Jaccard similarity."""
    common = round(2 * size * similarity / (1 + similarity))
    sets = []
    for _ in range(NUM_PAIRS):
        values = rng.integers(0, 2**64, 2 * size - common, dtype=np.uint64)
        sets.extend([values[:size], np.concatenate([values[:common], values[size:]])])
    return random_sets(sets), common / (2 * size - common)


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("shape", [(112, 14), (84, 21)])
def test_pairs_become_candidates_as_often_as_the_formula_says(similarity, shape):
    """Counts follow 1 - (1 - s^r)^b within 4.5 standard deviations, and so do the rows taken one by one."""
    num_permutations, num_bands = shape
    config = MinHashConfig(num_permutations=num_permutations, num_bands=num_bands)
    shingles, exact = pairs_of_similarity(similarity, 90, np.random.default_rng(round(100 * similarity)))
    minima = signatures(shingles, config)
    keys = band_keys(minima, config)
    candidates = (keys[:, ::2] == keys[:, 1::2]).any(axis=0).mean()
    expected = 1 - (1 - exact ** (num_permutations // num_bands)) ** num_bands
    assert abs(candidates - expected) < 4.5 * (expected * (1 - expected) / NUM_PAIRS) ** 0.5 + 1 / NUM_PAIRS
    equal = (minima[:, ::2] == minima[:, 1::2]).mean()
    assert abs(equal - exact) < 4.5 * (exact * (1 - exact) / (NUM_PAIRS * num_permutations)) ** 0.5


def test_minima_are_those_of_the_set_itself():
    """Against a plain loop, with documents of none, one, few and very many shingles."""
    rng = np.random.default_rng(0)
    sets = [rng.integers(0, 2**64, size, dtype=np.uint64) for size in (3, 0, 1, 40_000, 0, 7)]
    config = MinHashConfig(num_permutations=6, num_bands=2)
    together = signatures(random_sets(sets), config)
    for document, one in enumerate(sets):
        if len(one):
            image = np.stack(
                [signatures(random_sets([one[k : k + 1]]), config)[:, 0] for k in range(min(len(one), 50))]
            )
            assert (together[:, document] <= image.min(axis=0)).all()
            if len(one) < 50:
                assert np.array_equal(together[:, document], image.min(axis=0))
    assert (together[:, 1] == np.iinfo(np.uint64).max).all()


def test_order_and_repetition_of_shingles_do_not_count():
    values = np.random.default_rng(0).integers(0, 2**64, 100, dtype=np.uint64)
    minima = signatures(random_sets([values, np.concatenate([values[::-1], values])]), MinHashConfig())
    assert np.array_equal(minima[:, 0], minima[:, 1])


def test_another_seed_is_another_choice_of_permutations():
    values = random_sets([np.random.default_rng(0).integers(0, 2**64, 100, dtype=np.uint64)])
    first, second = (signatures(values, MinHashConfig(seed=seed)) for seed in (0, 1))
    assert not (first == second).any()


@pytest.mark.parametrize("bad", [{"num_bands": 15}, {"num_bands": 0}, {"num_permutations": 0}, {"seed": -1}])
def test_impossible_bands_are_refused(bad):
    with pytest.raises(BadConfig, match=next(iter(bad))):
        MinHashConfig(**bad)
