import re
import unicodedata

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus import words as words_module
from marin_corpus.words import hash_words, segments, split_words, word_spans

# Ordinary characters, typographic ones, and what normalisation changes.
TEXTS = st.text(
    st.one_of(
        st.sampled_from("aZ9 '\u2019\u2018\u201c\u2014\u2026\u00a0_-.\n\u00bd\ufb01\u0130\u03a3\u0301"),
        st.characters(codec="utf-8"),
    )
)


def by_character(text: str) -> list[bytes]:
    """The definition, a character at a time."""
    for quote in "\u2018\u2019":
        text = text.replace(quote, "'")
    folded = unicodedata.normalize("NFKC", text).lower().replace("'", "")
    return "".join(c if c.isalnum() else " " for c in folded).encode().split(b" ")


@given(TEXTS)
def test_words_are_runs_of_letters_and_digits_in_lower_case(text: str) -> None:
    assert split_words(text) == [word for word in by_character(text) if word]


@given(TEXTS)
def test_pieces_of_long_texts_have_the_same_words(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words_module, "_SEGMENT_CHARACTERS", 3)
        pieces = list(segments(text))
        assert "".join(text[begin:end] for begin, end in pieces) == text
        words, _ = hash_words([text])
        split = split_words(text)
    assert split == split_words(text)
    assert np.array_equal(words, hash_words([text])[0])


def test_quotes_case_hyphens_and_spaces_do_not_tell_texts_apart() -> None:
    one = split_words("\u201cWe don\u2019t   KNOW,\u201d he said\u2014twice.")
    assert one == split_words('"we don\'t know" he said - twice') == [b"we", b"dont", b"know", b"he", b"said", b"twice"]


@given(TEXTS)
def test_spans_name_the_same_words_and_where_they_are(text: str) -> None:
    spans = list(word_spans(text))
    assert [word for word, _, _ in spans] == split_words(text)
    for word, start, end in spans:
        assert word in split_words(text[start:end])
        assert not re.search(r"\s", text[start:end])


@given(st.lists(TEXTS))
def test_hashes_are_xxh3_of_each_word(texts: list[str]) -> None:
    words, ends = hash_words(texts)
    assert words.dtype == np.uint64
    begin = 0
    for text, end in zip(texts, ends, strict=True):
        assert words[begin:end].tolist() == [xxhash.xxh3_64_intdigest(word) for word in split_words(text)]
        begin = int(end)
    assert begin == len(words)
