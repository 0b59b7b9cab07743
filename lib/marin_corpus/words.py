"""The words of texts, and their 64-bit hashes: what n-gram features and n-gram overlaps are made of.

A word is a run of letters and digits, in lower case, after NFKC; apostrophes vanish ("don't" is "dont"), everything
else separates. So neither case, punctuation, whitespace nor typographic quotes tell two texts apart. Scripts that write
no spaces give one word for each run of letters; combining marks that NFKC leaves alone separate.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np
import xxhash

_WORD = re.compile(r"[^\W_]+")
_CACHED_WORDS = 1 << 20

# ASCII in one pass of `bytes.translate`: letters to lower case, all that is no letter or digit to a space.
_ASCII_TABLE = bytes(ord(chr(c).lower()) if chr(c).isalnum() and c < 128 else 32 for c in range(256))
# Typographic marks make most English text non-ASCII; without them the fast path takes it.
_TYPOGRAPHIC = {
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d\u2013\u2014\u2022\u2026\u00a0", " "),
}


def split_words(text: str) -> list[bytes]:
    """The normalised words of a text in order, as UTF-8."""
    if not text.isascii():
        for mark, plain in _TYPOGRAPHIC.items():
            text = text.replace(mark, plain)
        if not text.isascii():
            folded = unicodedata.normalize("NFKC", text).lower().replace("'", "")
            return [word.encode() for word in _WORD.findall(folded)]
    return text.encode().translate(_ASCII_TABLE, b"'").split()


def word_spans(text: str) -> Iterator[tuple[bytes, int, int]]:
    """The same words, each with the start and end, in characters of `text`, of the run without whitespace it is in."""
    for run in re.finditer(r"\S+", text):
        for word in split_words(run.group()):
            yield word, run.start(), run.end()


class _Hashes(dict[bytes, int]):
    """xxh3-64 by word, computed once."""

    def __missing__(self, word: bytes) -> int:
        value = self[word] = xxhash.xxh3_64_intdigest(word)
        return value


_hashes = _Hashes()


def hash_words(texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hash all words of some texts.

    Returns:
        (words, ends): words[W] uint64, the xxh3-64 of each word of all texts, in order; ends[T] int64, the number of
        words up to the end of each text.
    """
    if len(_hashes) > _CACHED_WORDS:
        # Values do not depend on what is cached; the memory of a long run does.
        _hashes.clear()
    lookup = _hashes.__getitem__
    pieces, ends, total = [], [], 0
    for text in texts:
        words = split_words(text)
        pieces.append(np.fromiter(map(lookup, words), dtype=np.uint64, count=len(words)))
        total += len(words)
        ends.append(total)
    words_W = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.uint64)
    return words_W, np.array(ends, dtype=np.int64)


def mix(values: np.ndarray) -> np.ndarray:
    """Spread the bits of uint64 values evenly: the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    mixed: np.ndarray = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
