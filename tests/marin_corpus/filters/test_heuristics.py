"""Each statistic against a plain reading of its definition, one text and one word at a time."""

import random
import re
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marin_corpus.documents.attributes import AttributeSet, read_attributes
from marin_corpus.filters.heuristics import SCHEMA, heuristics_batch, measure_heuristics
from marin_corpus.filters.ngrams import repeated_ngram_coverage
from marin_corpus.output import LocalOutput
from speeches import files_of, speeches, verses, write_documents

# Unicode's White_Space. (Python's own has four separators more.)
SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
CLOSING = "\"'”\u2019»)]"
BULLETS = "•‣◦\u2043∙●○▪■□·*-"


def fraction(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def ends_sentence(text: str) -> bool:
    return text.rstrip(CLOSING).endswith((".", "!", "?", "…"))


def repeats(pieces: list[str]) -> list[str]:
    return [piece for index, piece in enumerate(pieces) if piece in pieces[:index]]


def covered(words: list[str], starts: list[int], n: int) -> int:
    return sum(len(words[i]) for i in {start + offset for start in starts for offset in range(n)})


def reference(text: str) -> dict[str, float]:
    words = [word for word in re.split(f"[{SPACE}]+", text) if word]
    lines = [line.strip(SPACE) for line in text.split("\n") if line.strip(SPACE)]
    paragraphs: list[str] = []
    block: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.strip(SPACE):
            block.append(line)
        elif block:
            paragraphs.append("\n".join(block).strip(SPACE))
            block = []
    size = sum(map(len, words))
    bare = {re.sub(r"^[\W_]+|[\W_]+$", "", word.lower()) for word in words}
    facts: dict[str, float] = {
        "num_characters": len(text),
        "num_words": len(words),
        "mean_word_length": fraction(size, len(words)),
        "hash_to_word_ratio": fraction(text.count("#"), len(words)),
        "ellipsis_to_word_ratio": fraction(text.count("...") + text.count("…"), len(words)),
        "newline_to_word_ratio": fraction(text.count("\n"), len(words)),
        "alphabetic_word_fraction": fraction(sum(any(map(str.isalpha, word)) for word in words), len(words)),
        "num_distinct_stop_words": len(bare & {"the", "be", "to", "of", "and", "that", "have", "with"}),
        "num_sentences": sum(map(ends_sentence, words)),
        "num_curly_braces": text.count("{") + text.count("}"),
        "contains_lorem_ipsum": "lorem ipsum" in text.lower(),
        "num_lines": len(lines),
        "num_javascript_lines": sum("javascript" in line.lower() for line in lines),
        "num_policy_lines": sum(
            any(p in line.lower() for p in ("terms of use", "privacy policy", "cookie policy", "use cookies"))
            or any(p in line.lower() for p in ("uses cookies", "use of cookies"))
            for line in lines
        ),
        "bullet_line_fraction": fraction(sum(line[0] in BULLETS for line in lines), len(lines)),
        "ellipsis_line_fraction": fraction(sum(line.endswith(("...", "…")) for line in lines), len(lines)),
        "terminal_punctuation_line_fraction": fraction(sum(map(ends_sentence, lines)), len(lines)),
        "short_line_fraction": fraction(sum(len(line) < 30 for line in lines), len(lines)),
        "num_paragraphs": len(paragraphs),
    }
    for name, pieces in (("line", lines), ("paragraph", paragraphs)):
        facts[f"duplicate_{name}_fraction"] = fraction(len(repeats(pieces)), len(pieces))
        facts[f"duplicate_{name}_character_fraction"] = fraction(sum(map(len, repeats(pieces))), sum(map(len, pieces)))
    for n in range(2, 11):
        where: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for start in range(len(words) - n + 1):
            where[tuple(words[start : start + n])].append(start)
        if n < 5:
            most = max(map(len, where.values()), default=0)
            top = max((covered(words, s, n) for s in where.values() if len(s) == most > 1), default=0)
            facts[f"top_{n}gram_character_fraction"] = fraction(top, size)
        else:
            later = [start for starts in where.values() for start in starts[1:]]
            facts[f"duplicate_{n}gram_character_fraction"] = fraction(covered(words, later, n), size)
    return facts


def measured(texts: list[str]) -> list[dict[str, float]]:
    columns = heuristics_batch(pa.record_batch({"text": pa.array(texts, pa.large_string())}))
    assert sorted(columns) == sorted(SCHEMA.names)
    lists = {name: pa.array(values, SCHEMA.field(name).type).to_pylist() for name, values in columns.items()}
    return [{name: values[row] for name, values in lists.items()} for row in range(len(texts))]


def check(texts: list[str]) -> None:
    for text, found in zip(texts, measured(texts), strict=True):
        assert found == pytest.approx(reference(text), abs=1e-12), text


PIECES = [
    *("a", "b", "the", "The", "(of)", "and,", "that", "with", "have", "be", "42", "#", "...", "…", "é", "中文", "🙂"),
    *(".", "!", '?"', "{", "}", "Lorem ipsum", "JavaScript", "terms of use", "We use cookies.", "- ", "* ", "• "),
    *(" ", " ", " ", " ", "\n", "\n", "\n\n", "\t", "\r\n", "\xa0", "\u2028", "\x1f", "\x00"),
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), max_size=5))
@settings(max_examples=150)
def test_random_texts(texts: list[str]) -> None:
    check(texts)


@given(st.lists(st.text(max_size=40), max_size=3))
@settings(max_examples=60)
def test_any_text(texts: list[str]) -> None:
    for text, found in zip(texts, measured(texts), strict=True):
        expected = reference(text)
        # What a letter is, Python's isalpha and Unicode's Alphabetic (numerals, vowel signs) do not quite agree on.
        assert found.pop("alphabetic_word_fraction") >= expected.pop("alphabetic_word_fraction")
        assert found == pytest.approx(expected, abs=1e-12)


def test_real_texts() -> None:
    psalms = "\n".join(verses()[14_000:14_100])
    check([*(speech[:20_000] for speech in speeches(1861, 1870)), psalms, psalms.replace("the LORD", "...\n- #\n\n")])


def test_texts_of_a_batch_do_not_meet() -> None:
    texts = ["a b a b a b", "", "a b", "a b", " \n ", "b a b a b a b a b a b a b", ""]
    assert measured(texts) == [measured([text])[0] for text in texts]


def test_known_values() -> None:
    (facts,) = measured(["- one two...\n- one two...\n\n# Three. (Four!) \u201cFive?\u201d\n"])
    assert (facts["num_words"], facts["num_lines"], facts["num_paragraphs"]) == (10, 3, 2)
    assert (facts["bullet_line_fraction"], facts["ellipsis_line_fraction"]) == (2 / 3, 2 / 3)
    assert facts["terminal_punctuation_line_fraction"] == 1
    assert facts["duplicate_line_fraction"] == 1 / 3
    assert facts["num_sentences"] == 5
    assert facts["top_2gram_character_fraction"] == 18 / 41


@given(st.lists(st.lists(st.integers(0, 2), max_size=40), min_size=1, max_size=4))
@settings(max_examples=100)
def test_repeated_ngrams_of_any_n(documents: list[list[int]]) -> None:
    sizes = [1, 10, 100]
    codes = np.array([code for document in documents for code in document], dtype=np.int64)
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    all_n = range(1, 8)
    top, duplicate = repeated_ngram_coverage(
        codes, np.array(sizes)[codes], owners, top=list(all_n), duplicate=list(all_n)
    )
    for index, document in enumerate(documents):
        words = ["x" * sizes[code] for code in document]
        for n in all_n:
            grams = [tuple(document[i : i + n]) for i in range(len(document) - n + 1)]
            counts = Counter(grams)
            later = [i for i, gram in enumerate(grams) if gram in grams[:i]]
            best = max((c for c in counts.values() if c > 1), default=0)
            tops = [[i for i, g in enumerate(grams) if g == gram] for gram, c in counts.items() if c == best]
            expected = (max((covered(words, s, n) for s in tops), default=0), covered(words, later, n))
            found = [int(result[n][index]) if index < len(result[n]) else 0 for result in (top, duplicate)]
            assert tuple(found) == expected


def test_columns_of_a_set_whatever_the_workers(tmp_path) -> None:
    rng = random.Random(0)
    texts = [" ".join(rng.choices(["one", "two", "three.\n"], k=rng.randrange(40))) for _ in range(60)]
    documents = write_documents(tmp_path / "documents", texts, num_parts=3)
    for workers in (1, 2):
        summaries = measure_heuristics(documents, LocalOutput(tmp_path / f"{workers}", workers=workers))
        assert sum(summary["sums"]["num_words"] for summary in summaries) == sum(len(text.split()) for text in texts)
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
    attributes = AttributeSet.open(tmp_path / "1")
    attributes.check_made_for(documents)
    words = [count for part in attributes.parts for count in read_attributes(part)["num_words"].to_pylist()]
    assert words == [len(text.split()) for text in texts]
