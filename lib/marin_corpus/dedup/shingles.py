"""Shingles: the set of short runs of words (or characters) of a text, by which texts are compared.

Legend: D documents, S shingles of all documents one after the other, W words or characters of all documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from marin_corpus.errors import BadConfig
from marin_corpus.mixing import GOLDEN, mix
from marin_corpus.words import hash_words

_BASE = np.uint64(GOLDEN)


@dataclass(frozen=True, kw_only=True)
class ShingleConfig:
    """Which runs are compared.

    Words are those of `marin_corpus.words`: without case and punctuation. Characters are those of the lower-cased text
    with runs of whitespace as one space: for scripts that write no spaces.
    """

    unit: Literal["word", "character"] = "word"
    size: int = 5
    """Words or characters in a shingle."""
    max_characters: int = 500_000
    """Only so much of the beginning of a text is compared. Texts that differ after it alone count as equal."""

    def __post_init__(self) -> None:
        if self.unit not in ("word", "character"):
            raise BadConfig(f"unit={self.unit!r} must be 'word' or 'character'")
        if not 1 <= self.size <= 10_000:
            raise BadConfig(f"size={self.size} must be from 1 to 10000")
        if self.max_characters < 1:
            raise BadConfig(f"max_characters={self.max_characters} must be at least 1")


@dataclass(frozen=True)
class Shingles:
    """64-bit hashes of the shingles of some documents; a shingle that occurs twice stands twice."""

    hashes_S: np.ndarray
    """uint64."""
    ends_D: np.ndarray
    """int64: the number of shingles up to the end of each document."""

    @property
    def counts_D(self) -> np.ndarray:
        """int64: number of shingles of each document, repetitions included."""
        return np.diff(self.ends_D, prepend=0)

    def unique(self, document: int) -> np.ndarray:
        """The sorted set of a document's shingles."""
        begin = self.ends_D[document - 1] if document else 0
        ordered = np.sort(self.hashes_S[begin : self.ends_D[document]])
        # Half the time of np.unique, which builds a hash table first.
        distinct = np.ones(len(ordered), dtype=bool)
        np.not_equal(ordered[1:], ordered[:-1], out=distinct[1:])
        return ordered[distinct]


def shingle_texts(texts: Sequence[str], config: ShingleConfig) -> Shingles:
    """Hash the shingles of some texts.

    A text shorter than a shingle has one: all of its words. A text without words has none, and is like no other.
    """
    texts = [text[: config.max_characters] for text in texts]
    units_W, ends_D = hash_words(texts) if config.unit == "word" else _hash_characters(texts)
    if not len(units_W):
        return Shingles(units_W, ends_D)
    num_units_D = np.diff(ends_D, prepend=0)
    begins_D = ends_D - num_units_D
    # Horner's rule over the units of a shingle, for all positions at once.
    rolling_W = np.zeros(len(units_W), dtype=np.uint64)
    last = len(units_W) - config.size + 1
    if last > 0:
        combined = units_W[:last].copy()
        for k in range(1, config.size):
            combined *= _BASE
            combined += units_W[k : last + k]
        rolling_W[:last] = mix(combined)
    for document in np.flatnonzero((num_units_D > 0) & (num_units_D < config.size)):
        begin = begins_D[document]
        combined = units_W[begin : begin + 1].copy()
        for k in range(begin + 1, ends_D[document]):
            combined *= _BASE
            combined += units_W[k]
        rolling_W[begin] = mix(combined)[0]
    counts_D = np.where(num_units_D < config.size, np.minimum(num_units_D, 1), num_units_D - config.size + 1)
    inside_W = np.arange(len(units_W)) < np.repeat(begins_D + counts_D, num_units_D)
    return Shingles(rolling_W[inside_W], np.cumsum(counts_D))


def _hash_characters(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    forms = [" ".join(text.lower().split()) for text in texts]
    codes_W = np.frombuffer("".join(forms).encode("utf-32-le"), dtype="<u4").astype(np.uint64)
    return mix(codes_W + _BASE), np.cumsum([len(form) for form in forms], dtype=np.int64)


def jaccard(left: np.ndarray, right: np.ndarray) -> float:
    """|intersection| / |union| of two sorted sets; 0.0 if both are empty."""
    if len(left) > len(right):
        left, right = right, left
    if not len(left):
        return 0.0
    places = np.searchsorted(right, left)
    places[places == len(right)] = 0
    common = int(np.count_nonzero(right[places] == left))
    return common / (len(left) + len(right) - common)
