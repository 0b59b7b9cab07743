"""The words of texts, and their 64-bit hashes: what n-gram features and n-gram overlaps are made of.

A word is a run of letters and digits, in lower case, after NFKC; apostrophes vanish ("don't" is "dont"), everything
else separates. So neither case, punctuation, whitespace nor typographic quotes tell two texts apart. Scripts that write
no spaces give one word for each run of letters; combining marks that NFKC leaves alone separate.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import xxhash

_WORD = re.compile(r"[^\W_]+")
_SPACE = re.compile(r"\s")
_CACHED_WORDS = 1 << 20
_SEGMENT_CHARACTERS = 1 << 20
_CHUNK_CHARACTERS = 1 << 20
"""Text whose words are in memory at a time: a few arrays of 3 MB, which a core's cache nearly holds."""

# ASCII in one pass of `bytes.translate`: letters to lower case, all that is no letter or digit to a space.
_ASCII_TABLE = bytes(ord(chr(c).lower()) if chr(c).isalnum() and c < 128 else 32 for c in range(256))
# Typographic marks make most English text non-ASCII; without them the fast path takes it.
_TYPOGRAPHIC = {
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d\u2013\u2014\u2022\u2026\u00a0", " "),
}


def segments(text: str) -> Iterator[tuple[int, int]]:
    """Start and end, in characters, of pieces of about a million characters, cut at whitespace.

    The words of a text are those of its pieces, so a text of any size needs memory for one piece at a time.
    """
    begin = 0
    while begin < len(text):
        found = _SPACE.search(text, begin + _SEGMENT_CHARACTERS)
        end = found.start() if found else len(text)
        yield begin, end
        begin = end


def chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Runs of texts of about a million characters together, or one longer text: to be hashed at a time."""
    begin, size = 0, 0
    for end, text in enumerate(texts, 1):
        size += len(text)
        if size >= _CHUNK_CHARACTERS or end == len(texts):
            yield texts[begin:end]
            begin, size = end, 0


def split_words(text: str) -> list[bytes]:
    """The normalised words of a text in order, as UTF-8."""
    return _spaced_words(text).split()


def _spaced_words(text: str) -> bytes:
    """The normalised words in UTF-8, with spaces between them and perhaps around them."""
    if len(text) > _SEGMENT_CHARACTERS:
        return b" ".join(_spaced_segment(text[begin:end]) for begin, end in segments(text))
    return _spaced_segment(text)


def _spaced_segment(text: str) -> bytes:
    if not text.isascii():
        for mark, plain in _TYPOGRAPHIC.items():
            text = text.replace(mark, plain)
        if not text.isascii():
            folded = unicodedata.normalize("NFKC", text).lower().replace("'", "")
            return " ".join(_WORD.findall(folded)).encode()
    return text.encode().translate(_ASCII_TABLE, b"'")


def word_spans(text: str) -> Iterator[tuple[bytes, int, int]]:
    """The same words, each with the start and end, in characters of `text`, of the run without whitespace it is in."""
    for run in re.finditer(r"\S+", text):
        for word in _spaced_segment(run.group()).split():
            yield word, run.start(), run.end()


class _Hashes(dict[bytes, int]):
    """xxh3-64 by word with the spaces after it, computed once."""

    def __missing__(self, spaced: bytes) -> int:
        value = self[spaced] = xxhash.xxh3_64_intdigest(spaced.rstrip())
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
    forms = [_spaced_words(text) for text in texts]
    joined = b" ".join(forms)
    letters = np.frombuffer(joined, dtype=np.uint8) != ord(" ")
    begins = letters.copy()
    begins[1:] &= ~letters[:-1]
    begins_W = np.flatnonzero(begins)
    text_ends = np.cumsum([len(form) for form in forms], dtype=np.int64) + np.arange(len(forms))
    ends_T = np.searchsorted(begins_W, text_ends)
    if not len(begins_W):
        return np.zeros(0, dtype=np.uint64), ends_T
    # Each word with the spaces after it, in one Arrow array, of which only the different ones become Python objects:
    # twice as fast as a look-up for each word.
    offsets = pa.py_buffer(np.append(begins_W, len(joined)))
    spaced = pa.Array.from_buffers(pa.large_binary(), len(begins_W), [None, offsets, pa.py_buffer(joined)])
    encoded = spaced.dictionary_encode()
    different = [_hashes[word] for word in encoded.dictionary.to_pylist()]
    words_W: np.ndarray = np.array(different, dtype=np.uint64)[encoded.indices.to_numpy()]
    return words_W, ends_T
