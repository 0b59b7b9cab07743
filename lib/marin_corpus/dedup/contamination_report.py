"""What a person reads about contamination: both texts side by side, and counts by evaluation set.

`matches.jsonl` has a line for each shown match; `report.md` shows the same, after tables of counts.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from marin_corpus.dedup.contamination_index import EvaluationIndex
from marin_corpus.output import Output
from marin_corpus.words import segments, split_words, word_spans

REPORT = "report.md"
MATCHES = "matches.jsonl"
_CONTEXT_WORDS = 8
_PASSAGE_CHARACTERS = 1000
_MOST_FOUND = 20


@dataclass(frozen=True, kw_only=True)
class Contamination:
    """What was found in a set of documents."""

    num_documents: int
    num_contaminated: int
    contaminated_by_set: dict[str, int]
    """Contaminated documents by the evaluation set of the item that overlaps most: they sum to `num_contaminated`."""
    items_found_by_set: dict[str, int]
    """Items that contaminate any document."""


def describe_match(text: str, item: Mapping[str, Any], positions: Sequence[int]) -> dict[str, Any]:
    """The passage of a document that overlaps most with an item, and the item.

    Args:
        text: the document.
        item: `id`, `source`, `text`, `ngram_words`.
        positions: the numbers of the first words, in the document, of the n-grams that both have; at least one.

    Returns:
        Names of the item and its set; `passage`, which begins at character `start` of the document, and `item_text`;
        `marks` and `item_marks`, the [start, end) in the characters of both that are shared. Texts are cut to 1,000
        characters.
    """
    size = int(item["ngram_words"])
    run = _densest(sorted(positions), size)
    first, last = max(0, run[0] - _CONTEXT_WORDS), run[-1] + size + _CONTEXT_WORDS
    near = _words_between(text, first, last)
    begin = near[0][1]
    passage = text[begin : min(near[-1][2], begin + _PASSAGE_CHARACTERS)]
    covered = sorted({word - first for position in run for word in range(position, position + size)})
    shared = {tuple(word for word, _, _ in near[position - first : position - first + size]) for position in run}
    item_words = list(word_spans(item["text"]))
    item_covered = {
        word
        for i in range(len(item_words) - size + 1)
        if tuple(found for found, _, _ in item_words[i : i + size]) in shared
        for word in range(i, i + size)
    }
    item_text = item["text"][:_PASSAGE_CHARACTERS]
    return {
        "item": item["id"],
        "set": item["source"],
        "ngram_words": size,
        "start": begin,
        "passage": passage,
        "marks": _marks([near[word][1:] for word in covered], begin, begin + len(passage)),
        "item_text": item_text,
        "item_marks": _marks([item_words[word][1:] for word in sorted(item_covered)], 0, len(item_text)),
    }


def _words_between(text: str, first: int, last: int) -> list[tuple[bytes, int, int]]:
    """Words number `first` to `last` (not included) with their places; as many as there are."""
    found: list[tuple[bytes, int, int]] = []
    number = 0
    for begin, end in segments(text):
        count = len(split_words(text[begin:end]))
        if number + count > first:
            spans = word_spans(text[begin:end])
            found += [
                (word, begin + i, begin + j) for word, i, j in islice(spans, max(0, first - number), last - number)
            ]
        number += count
        if number >= last:
            break
    return found


def _densest(positions: Sequence[int], size: int) -> list[int]:
    """The run of n-grams with most of them; between two of a run, two more would fit at most."""
    best, run = [positions[0]], [positions[0]]
    for position in positions[1:]:
        run = [*run, position] if position - run[-1] <= 3 * size else [position]
        if len(run) > len(best):
            best = run
    return best


def _marks(spans: Sequence[tuple[int, int]], begin: int, end: int) -> list[list[int]]:
    """Spans within [begin, end), relative to it; those with only a character between them are one."""
    marks: list[list[int]] = []
    for start, stop in spans:
        if start < begin or stop > end:
            continue
        if marks and start - begin - marks[-1][1] <= 1:
            marks[-1][1] = max(marks[-1][1], stop - begin)
        else:
            marks.append([start - begin, stop - begin])
    return marks


def write_report(
    output: Output,
    index: EvaluationIndex,
    found: Contamination,
    threshold: float,
    items_found: Mapping[int, int],
    matches: Sequence[Mapping[str, Any]],
) -> None:
    """Write `matches.jsonl` and `report.md`.

    Args:
        output: where.
        index: what was looked for.
        found: the counts.
        threshold: least overlap.
        items_found: number of documents that an item contaminates, by item.
        matches: those to show, in order.
    """
    lines = [json.dumps(match, ensure_ascii=False) + "\n" for match in matches]
    output.write_file(MATCHES, "".join(lines).encode())
    sections = [
        f"# Contamination\n\n{found.num_contaminated:,} of {found.num_documents:,} documents hold an item of an "
        f"evaluation set (overlap of at least {threshold:g}; short items whole).\n",
        _set_table(index, found),
        _most_found(index, items_found),
        f"## Matches\n\n{len(matches):,} of {found.num_contaminated:,} contaminated documents, each with the item that "
        "overlaps most. What both share is marked.\n",
        *(_side_by_side(number, match) for number, match in enumerate(matches, 1)),
    ]
    output.write_file(REPORT, "\n".join(section for section in sections if section).encode())


def _set_table(index: EvaluationIndex, found: Contamination) -> str:
    rows = [
        "| set | items | looked for | repeated | too short | boilerplate | found | documents |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, counts in index.sets.items():
        cells = [
            counts[key] for key in ("num_items", "num_searched", "num_repeated", "num_too_short", "num_boilerplate")
        ]
        cells += [found.items_found_by_set[name], found.contaminated_by_set[name]]
        rows.append(f"| {_escape(name)} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _most_found(index: EvaluationIndex, items_found: Mapping[int, int]) -> str:
    """Items in many documents: perhaps common text, which says nothing about contamination."""
    often = sorted((-count, item) for item, count in items_found.items() if count > 1)
    if not often:
        return ""
    rows = ["## Items in most documents\n", "Text that is common in the corpus shows here.\n"]
    rows += ["| documents | set | item | text |", "| --- | --- | --- | --- |"]
    for count, number in often[:_MOST_FOUND]:
        item = index.item(number)
        rows.append(f"| {-count:,} | {_escape(item['source'])} | {item['id']} | {_escape(item['text'][:200])} |")
    return "\n".join(rows) + "\n"


def _side_by_side(number: int, match: Mapping[str, Any]) -> str:
    return (
        f"### {number}. overlap {match['overlap']:.3f}\n\n"
        f"| document {match['document']} of {_escape(match['source'])} ({_escape(match['part'])}, row {match['row']}) "
        f"| item {match['item']} of {_escape(match['set'])} |\n| --- | --- |\n"
        f"| {_marked(match['passage'], match['marks'])} | {_marked(match['item_text'], match['item_marks'])} |\n"
    )


def _marked(text: str, marks: Sequence[Sequence[int]]) -> str:
    pieces, end = [], 0
    for start, stop in marks:
        pieces += [_escape(text[end:start]), f"<mark>{_escape(text[start:stop])}</mark>"]
        end = stop
    return "".join([*pieces, _escape(text[end:])])


_MARKUP = str.maketrans({mark: f"&#{ord(mark)};" for mark in "\\|`*_[]<>&~"})


def _escape(text: str) -> str:
    """Foreign text as a cell of a table: no markup, no line breaks."""
    return re.sub(r"\s+", " ", text).translate(_MARKUP)
