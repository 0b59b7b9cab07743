import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.dedup.shingles import ShingleConfig, jaccard, shingle_texts
from marin_corpus.errors import BadConfig

texts_of_few_words = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12).map(" ".join), max_size=6)


def plain_shingles(units, size):
    """The set of shingles as tuples; a text that is shorter is one shingle."""
    if not units:
        return set()
    return {tuple(units[k : k + size]) for k in range(max(1, len(units) - size + 1))}


def plain_jaccard(left, right):
    return len(left & right) / len(left | right) if left | right else 0.0


@given(texts_of_few_words, st.integers(1, 5))
def test_similarities_of_hashed_shingles_are_those_of_the_shingles_themselves(texts, size):
    shingles = shingle_texts(texts, ShingleConfig(size=size))
    plain = [plain_shingles(text.split(), size) for text in texts]
    hashed = [shingles.unique(document) for document in range(len(texts))]
    assert [len(found) for found in hashed] == [len(found) for found in plain]
    for left in range(len(texts)):
        for right in range(len(texts)):
            assert jaccard(hashed[left], hashed[right]) == plain_jaccard(plain[left], plain[right])


@given(texts_of_few_words, st.integers(1, 5))
def test_similarities_of_character_shingles(texts, size):
    shingles = shingle_texts(texts, ShingleConfig(unit="character", size=size))
    plain = [plain_shingles(text, size) for text in texts]
    for left in range(len(texts)):
        for right in range(len(texts)):
            found = jaccard(shingles.unique(left), shingles.unique(right))
            assert found == plain_jaccard(plain[left], plain[right])


def test_a_batch_and_a_single_text_give_the_same_shingles():
    texts = ["One two three four five six.", "", "seven", "Eight, nine ten eleven twelve thirteen fourteen"]
    together = shingle_texts(texts, ShingleConfig())
    for document, text in enumerate(texts):
        assert np.array_equal(together.unique(document), shingle_texts([text], ShingleConfig()).unique(0))


def test_case_punctuation_and_whitespace_do_not_count():
    shingles = shingle_texts(
        [
            "It was the best of times, it was the worst of times.",
            "it WAS the best\n\nof times (it was) the worst of times",
        ],
        ShingleConfig(size=3),
    )
    assert jaccard(shingles.unique(0), shingles.unique(1)) == 1.0


def test_only_the_beginning_of_a_giant_text_is_compared():
    words = [f"w{number}" for number in range(1000)]
    text = " ".join(words)
    config = ShingleConfig(size=2, max_characters=100)
    shingles = shingle_texts([text, text[:100] + "entirely different"], config)
    assert jaccard(shingles.unique(0), shingles.unique(1)) == 1.0
    assert len(shingles.unique(0)) == len(re.findall(r"\S+", text[:100])) - 1


@pytest.mark.parametrize("bad", [{"size": 0}, {"size": 1 << 70}, {"unit": "line"}, {"max_characters": 0}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(BadConfig, match=next(iter(bad))):
        ShingleConfig(**bad)
