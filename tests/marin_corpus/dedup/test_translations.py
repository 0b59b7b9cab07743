"""Near-duplicates on texts whose truth is known: three translations, chapter by chapter."""

import re

import pytest
from marin_corpus.dedup.minhash import MinHashConfig
from marin_corpus.dedup.near import NearDuplicateConfig, find_near_duplicates
from marin_corpus.dedup.shingles import ShingleConfig
from marin_corpus.dedup.signatures import SignatureSet, write_signatures
from marin_corpus.documents.attributes import AttributeSet, read_attributes
from marin_corpus.output import LocalOutput
from speeches import write_documents
from translations import chapters

# Chapters of kjv and ukjv are 0.77 alike (median; least 0.38), those of kjv and ylt 0.16 (at most 0.28).
MIN_JACCARD = 0.35
# Genesis and Exodus: 90 chapters of each.
LAST_BOOK = 2
MINHASH = MinHashConfig(shingles=ShingleConfig(size=3), num_permutations=112, num_bands=56)


def word_triples(text):
    words = re.findall(r"[a-z0-9]+", re.sub("['’]", "", text.lower()))  # noqa: RUF001
    return set(zip(words, words[1:], words[2:], strict=False))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """(translation, book, chapter) of each document, its triples, and what was found for it."""
    folder = tmp_path_factory.mktemp("translations")
    names, texts = [], []
    for translation in ("kjv", "ukjv", "ylt"):
        for place, text in chapters(translation, last_book=LAST_BOOK).items():
            names.append((translation, *place))
            texts.append(text)
    documents = write_documents(folder / "documents", texts, num_parts=3)
    write_signatures(documents, MINHASH, LocalOutput(folder / "signatures"))
    statistics = find_near_duplicates(
        documents,
        SignatureSet.open(folder / "signatures"),
        NearDuplicateConfig(min_jaccard=MIN_JACCARD),
        LocalOutput(folder / "found"),
    )
    ids = [row.as_py() for part in documents.parts for row in _column(part.url)]
    rows = [row for part in AttributeSet.open(folder / "found").parts for row in read_attributes(part).to_pylist()]
    kept = [names[ids.index(row["near_duplicate_of"])] if row["near_duplicate"] else None for row in rows]
    triples = dict(zip(names, map(word_triples, texts), strict=True))
    return triples, dict(zip(names, zip(kept, rows, strict=True), strict=True)), statistics


def _column(url):
    import pyarrow.parquet as pq

    return pq.read_table(url, columns=["id"])["id"]


def similarity(left, right):
    return len(left & right) / len(left | right)


def test_chapters_of_the_updated_translation_are_found_and_those_of_the_other_kept(found):
    _, kept, _ = found
    updated = {place[1:]: of for place, (of, _) in kept.items() if place[0] == "ukjv"}
    assert len(updated) == 90
    assert updated == {place: ("kjv", *place) for place in updated}
    assert not any(of for place, (of, _) in kept.items() if place[0] != "ukjv")


def test_nothing_is_dropped_that_is_not_similar_and_nearly_all_that_is(found):
    """Against all pairs compared one by one: precision is 1, and recall what the bands promise."""
    triples, kept, statistics = found
    for place, (of, row) in kept.items():
        if of is not None:
            assert row["near_duplicate_jaccard"] == pytest.approx(similarity(triples[place], triples[of]))
            assert row["near_duplicate_jaccard"] >= MIN_JACCARD
    names = list(triples)
    similar = {
        later
        for number, later in enumerate(names)
        for earlier in names[:number]
        if min(len(triples[later]), len(triples[earlier]))
        >= MIN_JACCARD * max(len(triples[later]), len(triples[earlier]))
        and similarity(triples[later], triples[earlier]) >= MIN_JACCARD
    }
    dropped = {place for place, (of, _) in kept.items() if of is not None}
    assert dropped <= similar
    assert len(dropped) >= 0.99 * len(similar)
    assert statistics.num_duplicates == len(dropped)
    # Bands that miss nothing propose many that differ: the two other translations are compared, and kept.
    assert statistics.num_rejected_pairs > 50
    assert statistics.num_spared > 50
