import itertools
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.dedup.contamination_index import EvaluationIndex, IndexConfig, Ngrams, build_index
from marin_corpus.errors import BadConfig, BadInput, CorruptData, Mismatch
from marin_corpus.output import LocalOutput
from marin_corpus.words import hash_words, split_words
from speeches import verses, write_documents

WORDS = st.lists(st.sampled_from("abc"), max_size=14).map(" ".join)


@given(st.lists(WORDS, max_size=5), st.integers(1, 5))
def test_ngrams_have_one_hash_each_and_stay_within_a_document(texts: list[str], size: int) -> None:
    hashes, documents, first = Ngrams(*hash_words(texts)).of_size(size)
    expected, begin = [], 0
    for number, text in enumerate(texts):
        words = text.split()
        expected += [(number, begin + i, " ".join(words[i : i + size])) for i in range(max(0, len(words) - size + 1))]
        begin += len(words)
    assert list(zip(documents, first, strict=True)) == [(number, place) for number, place, _ in expected]
    hash_of = dict(zip((ngram for *_, ngram in expected), hashes.tolist(), strict=True))
    assert len(set(hash_of.values())) == len(hash_of)
    assert [hash_of[ngram] for *_, ngram in expected] == hashes.tolist()


def test_ngrams_of_different_sizes_differ() -> None:
    every = Ngrams(*hash_words(["a a a a a a a a"]))
    assert len({int(every.of_size(size)[0][0]) for size in range(1, 9)}) == 8


def test_size_of_ngrams_follows_from_the_number_of_words() -> None:
    sizes = [IndexConfig().size_for(count) for count in (0, 4, 5, 7, 8, 12, 38, 39, 500)]
    assert sizes == [0, 0, 5, 7, 8, 8, 8, 13, 13]


def test_index_finds_the_items_that_have_an_ngram(tmp_path: Path) -> None:
    """Against a dictionary of tuples of words."""
    texts = verses()[:600]
    facts = build_index([write_documents(tmp_path / "items", texts)], IndexConfig(), LocalOutput(tmp_path / "index"))
    index = EvaluationIndex(str(tmp_path / "index"))
    kept = list({tuple(split_words(text)): text for text in reversed(texts)}.values())[::-1]
    expected: dict[tuple[bytes, ...], set[int]] = defaultdict(set)
    for number, text in enumerate(kept):
        words = split_words(text)
        size = IndexConfig().size_for(len(words))
        assert index.item(number)["text"] == text
        for i in range(len(words) - size + 1 if size else 0):
            expected[tuple(words[i : i + size])].add(number)
    assert index.num_ngrams == facts["num_ngrams"] == len(expected)
    weights = np.zeros(len(kept))
    for ngram, owners in expected.items():
        hashes, _, _ = Ngrams(*hash_words([b" ".join(ngram).decode()])).of_size(len(ngram))
        (place,), (number,) = (found.tolist() for found in index.look_up(hashes))
        assert place == 0
        which, items, weight = index.items_of(np.array([number]))
        assert set(items.tolist()) == owners
        assert set(which.tolist()) == {0}
        assert weight.tolist() == [1 / len(owners)] * len(owners)
        weights[list(owners)] += 1 / len(owners)
    np.testing.assert_allclose(index.weights_I, weights)
    absent, _, _ = Ngrams(*hash_words(["words that no verse of the book has ever held together"])).of_size(8)
    assert not len(index.look_up(absent)[0])


def test_counts_of_a_set_add_up(tmp_path: Path) -> None:
    template = "answer the following question with yes or no and give your reason"
    sets = [
        write_documents(tmp_path / "a", [template + " number five", "too short", "Jesus wept."], source="a"),
        write_documents(
            tmp_path / "b",
            ["ANSWER the following question, with yes or no, and give your reason (number five)"],
            source="b",
        ),
        write_documents(tmp_path / "c", [f"{template} {i}" for i in range(30)] + [template], source="c"),
    ]
    facts = build_index(sets, IndexConfig(), LocalOutput(tmp_path / "index"))
    assert facts["sets"] == {
        "a": {"num_items": 3, "num_searched": 1, "num_repeated": 0, "num_too_short": 2, "num_boilerplate": 0},
        "b": {"num_items": 1, "num_searched": 0, "num_repeated": 1, "num_too_short": 0, "num_boilerplate": 0},
        "c": {"num_items": 31, "num_searched": 31, "num_repeated": 0, "num_too_short": 0, "num_boilerplate": 0},
    }
    for counts in facts["sets"].values():
        rest = Counter(counts)
        assert rest.pop("num_items") == rest.total()
    # Alone, the template weighs 5 of 32nds; that is less than one n-gram which three items share.
    strict = build_index(sets, IndexConfig(boilerplate_items=3), LocalOutput(tmp_path / "strict"))
    assert strict["sets"]["c"]["num_boilerplate"] == 1


def test_nothing_to_look_for_is_refused(tmp_path: Path) -> None:
    documents = write_documents(tmp_path / "items", ["too short", ""])
    with pytest.raises(BadInput, match="no item that can be looked for"):
        build_index([documents], IndexConfig(), LocalOutput(tmp_path / "index"))
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("name", ["ngrams.u64", "starts.i64", "items.u32", "items.parquet"])
def test_a_damaged_index_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Mismatch, match="contamination index"):
        EvaluationIndex(str(tmp_path))
    documents = write_documents(tmp_path / "items", verses()[:20])
    build_index([documents], IndexConfig(), LocalOutput(tmp_path / "index"))
    file = tmp_path / "index" / name
    data = file.read_bytes()
    for damaged in (data[:-8], data[:-1] + bytes([data[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.raises(CorruptData, match=name):
            EvaluationIndex(str(tmp_path / "index"))
    file.unlink()
    with pytest.raises(CorruptData, match="missing"):
        EvaluationIndex(str(tmp_path / "index"))


@pytest.mark.parametrize(
    "fields",
    [{"ngram_words": 7}, {"min_item_words": 0}, {"min_item_words": 9}, {"boilerplate_items": 0}],
    ids=lambda fields: "-".join(itertools.chain(fields)),
)
def test_wrong_settings_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(BadConfig, match=next(iter(fields))):
        IndexConfig(**fields)
