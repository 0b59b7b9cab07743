"""Published quality rules, as expressions over the columns of `heuristics`, to give to `consolidate` as `drop`.

Each is a tuple of (reason, expression): a document for which the expression holds is dropped. Join and change them as
you like: `drop=(*GOPHER, ("not English", "language <> 'en' OR language_score < 0.65"))`.
"""

from typing import TypeAlias

DropRules: TypeAlias = tuple[tuple[str, str], ...]
"""(reason, expression) in the order in which they are tried."""

GOPHER_QUALITY: DropRules = (
    ("gopher: too few or too many words", "num_words < 50 OR num_words > 100000"),
    ("gopher: mean word length", "mean_word_length < 3 OR mean_word_length > 10"),
    ("gopher: symbols", "hash_to_word_ratio > 0.1 OR ellipsis_to_word_ratio > 0.1"),
    ("gopher: bullet lines", "bullet_line_fraction > 0.9"),
    ("gopher: ellipsis lines", "ellipsis_line_fraction > 0.3"),
    ("gopher: words without letters", "alphabetic_word_fraction < 0.8"),
    ("gopher: stop words", "num_distinct_stop_words < 2"),
)
"""Rae et al. 2021, section A.1.1, "Quality Filtering". For English: the stop words are."""

GOPHER_REPETITION: DropRules = (
    ("gopher: duplicate lines", "duplicate_line_fraction > 0.30 OR duplicate_line_character_fraction > 0.20"),
    (
        "gopher: duplicate paragraphs",
        "duplicate_paragraph_fraction > 0.30 OR duplicate_paragraph_character_fraction > 0.20",
    ),
    (
        "gopher: top n-gram",
        "top_2gram_character_fraction > 0.20 OR top_3gram_character_fraction > 0.18"
        " OR top_4gram_character_fraction > 0.16",
    ),
    (
        "gopher: duplicate n-grams",
        "duplicate_5gram_character_fraction > 0.15 OR duplicate_6gram_character_fraction > 0.14"
        " OR duplicate_7gram_character_fraction > 0.13 OR duplicate_8gram_character_fraction > 0.12"
        " OR duplicate_9gram_character_fraction > 0.11 OR duplicate_10gram_character_fraction > 0.10",
    ),
)
"""Rae et al. 2021, table A1, "Repetition Removal"."""

GOPHER: DropRules = (*GOPHER_QUALITY, *GOPHER_REPETITION)

C4: DropRules = (
    ("c4: lorem ipsum", "contains_lorem_ipsum"),
    ("c4: curly brace", "num_curly_braces > 0"),
    ("c4: too few sentences", "num_sentences < 3"),
)
"""Raffel et al. 2020, section 2.2: the rules that drop pages, save the one with a list of words. Those that
remove single lines are no drops.

A curly brace says "code" there; leave that rule out for a corpus which is to hold code.
"""

FINEWEB: DropRules = (
    ("fineweb: lines without terminal punctuation", "terminal_punctuation_line_fraction <= 0.12"),
    ("fineweb: duplicate lines", "duplicate_line_character_fraction >= 0.1"),
    ("fineweb: short lines", "short_line_fraction >= 0.67"),
)
"""Penedo et al. 2024, "Developing additional heuristic filters": these three come on top of those of Gopher and C4."""
