"""Repeated n-grams of many texts at once: how much of each text they cover, exactly and without hashing.

Legend: W words of all texts in order, D texts, C candidates (positions in W).
"""

from collections.abc import Sequence

import numpy as np


def repeated_ngram_coverage(
    codes_W: np.ndarray, sizes_W: np.ndarray, document_W: np.ndarray, *, top: Sequence[int], duplicate: Sequence[int]
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Characters of words within repeated n-grams, by text.

    Only an n-gram whose first n-1 words and last n-1 words are repeated can itself be repeated, so each n looks at what
    is left of the one before: in clean text that is soon next to nothing.

    Args:
        codes_W: int64, from 0: the same number for the same word.
        sizes_W: int64, characters of each word.
        document_W: int64, which text a word belongs to; ascending.
        top: values of n of the first result.
        duplicate: values of n of the second.

    Returns:
        For each n of `top`, int64[D'] the characters in occurrences of the text's most frequent n-gram (of several, the
        one whose occurrences cover most characters); 0 if none occurs twice.
        For each n of `duplicate`, int64[D'] the characters in occurrences of n-grams that occurred earlier in the text.
        A character counts once however many occurrences overlap there. D' is the last text's number plus one.
    """
    num_words = len(codes_W)
    num_documents = int(document_W[-1]) + 1 if num_words else 0
    tops = {n: np.zeros(num_documents, dtype=np.int64) for n in top}
    duplicates = {n: np.zeros(num_documents, dtype=np.int64) for n in duplicate}
    last = max([*top, *duplicate])
    num_codes = int(codes_W.max()) + 1 if num_words else 0
    candidates_C = np.arange(num_words)
    # Exact, not hashed: (text, word), then (group of the first n-1 words, last word), each below 2**62.
    keys_C = document_W * num_codes + codes_W
    groups_C = keys_C
    repeated_W = np.zeros(num_words + last, dtype=bool)
    for n in range(1, last + 1):
        if n > 1:
            # An n-gram of the same text whose two (n-1)-grams are both repeated.
            ends_C = candidates_C + n - 1
            inside_C = ends_C < num_words
            inside_C[inside_C] = document_W[ends_C[inside_C]] == document_W[candidates_C[inside_C]]
            inside_C &= repeated_W[candidates_C + 1]
            candidates_C, keys_C = candidates_C[inside_C], groups_C[inside_C]
            keys_C = keys_C * num_codes + codes_W[candidates_C + n - 1]
        order_C = np.argsort(keys_C)
        starts = np.flatnonzero(np.diff(keys_C[order_C], prepend=-1))
        counts = np.diff(starts, append=len(order_C))
        kept = counts > 1
        order_C = order_C[np.repeat(kept, counts)]
        counts = counts[kept]
        # Back to the order of the text, in which all that follows is a scan.
        groups_C = np.empty(len(keys_C), dtype=np.int64)
        groups_C[order_C] = np.repeat(np.arange(len(counts)), counts)
        kept_C = np.zeros(len(keys_C), dtype=bool)
        kept_C[order_C] = True
        candidates_C, groups_C = candidates_C[kept_C], groups_C[kept_C]
        repeated_W[:] = False
        repeated_W[candidates_C] = True
        if not len(candidates_C):
            break
        if n in duplicates:
            first = np.full(len(counts), num_words, dtype=np.int64)
            np.minimum.at(first, groups_C, candidates_C)
            later_C = candidates_C[first[groups_C] != candidates_C]
            duplicates[n] = _covered(later_C, n, sizes_W, document_W, num_documents)
        if n in tops:
            tops[n] = _top(candidates_C, groups_C, counts, n, sizes_W, document_W, num_documents)
    return tops, duplicates


def _covered(
    starts_C: np.ndarray, n: int, sizes_W: np.ndarray, document_W: np.ndarray, num_documents: int
) -> np.ndarray:
    """By text, the characters of words that some n-gram beginning at one of `starts_C` covers."""
    depth = np.zeros(len(sizes_W) + 1, dtype=np.int64)
    depth[starts_C] += 1
    np.subtract.at(depth, starts_C + n, 1)
    covered_W = np.cumsum(depth[:-1]) > 0
    return np.bincount(
        document_W[covered_W], weights=sizes_W[covered_W].astype(np.float64), minlength=num_documents
    ).astype(np.int64)


def _top(
    candidates_C: np.ndarray,
    groups_C: np.ndarray,
    counts: np.ndarray,
    n: int,
    sizes_W: np.ndarray,
    document_W: np.ndarray,
    num_documents: int,
) -> np.ndarray:
    """By text, the most characters that one of the most frequent n-grams covers."""
    most = np.zeros(num_documents, dtype=np.int64)
    documents_C = document_W[candidates_C]
    np.maximum.at(most, documents_C, counts[groups_C])
    winning_C = counts[groups_C] == most[documents_C]
    candidates_C, groups_C = candidates_C[winning_C], groups_C[winning_C]
    # Occurrences of one n-gram side by side, in the order of the text.
    order_C = np.argsort(groups_C, kind="stable")
    candidates_C, groups_C = candidates_C[order_C], groups_C[order_C]
    # Of an occurrence that begins inside the one before, only what reaches beyond that counts.
    new_C = np.full(len(candidates_C), n, dtype=np.int64)
    step_C = np.diff(candidates_C)
    same_C = groups_C[1:] == groups_C[:-1]
    new_C[1:] = np.where(same_C, np.minimum(step_C, n), n)
    ends_C = candidates_C + n
    total_W = np.concatenate([[0], np.cumsum(sizes_W)])
    characters_C = total_W[ends_C] - total_W[ends_C - new_C]
    sums = np.bincount(groups_C, weights=characters_C.astype(np.float64), minlength=len(counts)).astype(np.int64)
    covered = np.zeros(num_documents, dtype=np.int64)
    np.maximum.at(covered, document_W[candidates_C], sums[groups_C])
    return covered
