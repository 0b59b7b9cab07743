"""Translations of one text with chapter numbers: which texts are near-duplicates of which is known beforehand."""

import importlib
import re

import pytest


def chapters(translation: str, *, first_book: int = 1, last_book: int = 66) -> dict[tuple[int, int], str]:
    """The text of each (book, chapter) of "kjv", "ukjv" or "ylt"; skips the test if it is not installed."""
    pytest.importorskip(f"pythonbible_{translation}", reason=f"the package pythonbible-{translation} is not installed")
    bible = importlib.import_module(f"pythonbible_{translation}.plain_text_readers_bible").bible
    verses: dict[tuple[int, int], list[str]] = {}
    for number, start in bible.verse_start_indices.items():
        book, chapter = number // 1_000_000, number // 1000 % 1000
        if first_book <= book <= last_book:
            text = bible.scripture_content[start : bible.verse_end_indices[number]]
            verses.setdefault((book, chapter), []).append(text)
    # Brackets mark supplied words in some editions.
    return {place: re.sub(r"[\[\]]", "", "\n".join(parts)) for place, parts in verses.items()}
