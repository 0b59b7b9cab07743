import json
import random

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.dedup.minhash import MinHashConfig
from marin_corpus.dedup.near import NearDuplicateConfig, find_near_duplicates
from marin_corpus.dedup.shingles import ShingleConfig
from marin_corpus.dedup.signatures import SignatureSet, write_signatures
from marin_corpus.documents.attributes import AttributeSet, read_attributes
from marin_corpus.documents.schema import document_id
from marin_corpus.errors import BadConfig, CorruptData, Mismatch
from marin_corpus.output import LocalOutput
from speeches import files_of, write_documents

# One row a band: every pair that has anything in common is compared, almost surely.
COMPARE_ALL = MinHashConfig(shingles=ShingleConfig(size=1), num_permutations=200, num_bands=200)


def find(folder, texts, *, num_parts=1, workers=1, minhash=MinHashConfig(), **config):  # noqa: B008  frozen
    documents = write_documents(folder / "documents", texts, num_parts=num_parts)
    write_signatures(documents, minhash, LocalOutput(folder / "signatures", workers=workers))
    statistics = find_near_duplicates(
        documents,
        SignatureSet.open(folder / "signatures"),
        NearDuplicateConfig(**config),
        LocalOutput(folder / "found", workers=workers),
    )
    found = AttributeSet.open(folder / "found")
    found.check_made_for(documents)
    return [row for part in found.parts for row in read_attributes(part).to_pylist()], statistics


def prose(seed, num_words=300):
    rng = random.Random(seed)
    return [f"word{rng.randrange(5000)}" for _ in range(num_words)]


def planted():
    """40 documents: 10 originals, each with a copy of it, a light edit, and one that shares its first third."""
    texts = []
    for seed in range(10):
        words = prose(seed)
        edited = [*words[:100], "changed", *words[101:]]
        texts += [" ".join(words), " ".join(words), " ".join(edited), " ".join(words[:100] + prose(seed + 100, 200))]
    random.Random(0).shuffle(texts)
    return texts


def naive_jaccard(left, right, size=5):
    def shingles(text):
        words = text.split()
        return {tuple(words[k : k + size]) for k in range(max(1, len(words) - size + 1))}

    left, right = shingles(left), shingles(right)
    return len(left & right) / len(left | right)


def in_order(texts, min_jaccard, size=5):
    """(is a duplicate, of what) by comparing each document with all kept ones before it."""
    kept: list[str] = []
    rows = []
    for text in texts:
        like = next((k for k in kept if naive_jaccard(text, k, size) >= min_jaccard), None)
        rows.append((like is not None, None if like is None else document_id(like)))
        if like is None:
            kept.append(text)
    return rows


def test_planted_copies_are_dropped_and_partial_ones_kept(tmp_path):
    texts = planted()
    rows, statistics = find(tmp_path, texts, num_parts=3)
    assert [(row["near_duplicate"], row["near_duplicate_of"]) for row in rows] == in_order(texts, 0.8)
    by_id = {document_id(text): text for text in texts}
    for text, row in zip(texts, rows, strict=True):
        if row["near_duplicate"]:
            expected = naive_jaccard(text, by_id[row["near_duplicate_of"]])
            assert row["near_duplicate_jaccard"] == pytest.approx(expected)
        else:
            assert row["near_duplicate_jaccard"] is None
    assert statistics.num_duplicates == 20
    assert statistics.cluster_sizes == {"3": 10}
    assert statistics.num_similar_pairs + statistics.num_rejected_pairs == statistics.num_pairs


words = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), max_size=8).map(" ".join)


@given(st.lists(words, max_size=10), st.integers(1, 3), st.integers(1, 30), st.sampled_from([0.4, 0.6, 0.9]))
def test_when_all_pairs_are_compared_nothing_is_missed(tmp_path_factory, texts, num_parts, group_shingles, min_jaccard):
    """However the clusters are dealt to groups, as long as none is cut."""
    rows, statistics = find(
        tmp_path_factory.mktemp("near"),
        texts,
        num_parts=num_parts,
        minhash=COMPARE_ALL,
        min_jaccard=min_jaccard,
        group_shingles=group_shingles,
    )
    if not statistics.num_in_cut_clusters:
        with_words = [text for text in texts if text]
        expected = iter(in_order(with_words, min_jaccard, size=1))
        flags = [next(expected)[0] if text else False for text in texts]
        assert [row["near_duplicate"] for row in rows] == flags
    assert statistics.num_without_shingles == texts.count("")
    assert statistics.num_duplicates == sum(row["near_duplicate"] for row in rows)


def test_a_cluster_larger_than_a_group_is_cut_and_said(tmp_path):
    text = " ".join(prose(0))
    rows, statistics = find(tmp_path, [text] * 10, group_shingles=1000)
    assert statistics.num_in_cut_clusters == 10
    # 296 shingles each: a run ends with the document that reaches the limit.
    assert [number for number, row in enumerate(rows) if not row["near_duplicate"]] == [0, 3, 6]


def test_short_documents_are_one_shingle_and_empty_ones_like_no_other(tmp_path):
    texts = ["", "two words", "!!!", "", "Two words!", "two other words", "?", "words two"]
    rows, statistics = find(tmp_path, texts)
    assert [row["near_duplicate"] for row in rows] == [False] * 4 + [True] + [False] * 3
    assert statistics.num_without_shingles == 4


def test_a_chain_of_edits_does_not_drop_what_is_far_from_the_first(tmp_path):
    """Each document is like the next one, but the last has little in common with the first."""
    words = prose(1, 400)
    texts = [" ".join(words[20 * k : 20 * k + 200]) for k in range(8)]
    rows, statistics = find(
        tmp_path, texts, minhash=MinHashConfig(num_permutations=128, num_bands=64), min_jaccard=0.75
    )
    assert [row["near_duplicate"] for row in rows] == [flag for flag, _ in in_order(texts, 0.75)]
    assert 1 < statistics.num_duplicates < 7
    assert statistics.num_spared > 0
    assert statistics.candidate_cluster_sizes == {"8": 1}


def test_the_report_shows_the_borderline_and_every_comparison_is_on_file(tmp_path):
    texts = planted()
    _, statistics = find(tmp_path, texts, minhash=MinHashConfig(num_permutations=112, num_bands=56))
    report = json.loads((tmp_path / "found" / "report.json").read_text())
    assert report["statistics"]["num_pairs"] == statistics.num_pairs
    assert all(0.8 <= pair["jaccard"] <= 1 for pair in report["least_similar_duplicates"])
    rejected = report["most_similar_rejected"]
    assert rejected
    by_id = {document_id(text): text for text in texts}
    for pair in rejected:
        left, right = by_id[pair["id"]], by_id[pair["kept_id"]]
        assert pair["jaccard"] == pytest.approx(naive_jaccard(left, right), abs=1e-4)
        assert left.startswith(pair["begins"])
        assert right.startswith(pair["kept_begins"])
    pairs = pq.read_table(tmp_path / "found" / "pairs").to_pylist()
    assert len(pairs) == statistics.num_pairs
    assert sum(pair["similar"] for pair in pairs) == statistics.num_similar_pairs


def test_bytes_do_not_depend_on_workers(tmp_path):
    for workers in (1, 2):
        find(tmp_path / str(workers), planted(), num_parts=4, workers=workers, group_shingles=2000)
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
    assert len(list((tmp_path / "1" / "found" / "pairs").iterdir())) > 1


def test_signatures_of_other_documents_are_refused(tmp_path):
    documents = write_documents(tmp_path / "documents", planted())
    other = write_documents(tmp_path / "other", planted()[:-1])
    write_signatures(documents, MinHashConfig(), LocalOutput(tmp_path / "signatures"))
    signatures = SignatureSet.open(tmp_path / "signatures")
    with pytest.raises(Mismatch, match="not made for the documents"):
        find_near_duplicates(other, signatures, NearDuplicateConfig(), LocalOutput(tmp_path / "found"))
    file = tmp_path / "signatures" / "part-00000.parquet.bands"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptData, match=r"part-00000\.parquet\.bands ends before byte"):
        find_near_duplicates(documents, signatures, NearDuplicateConfig(), LocalOutput(tmp_path / "found"))
    file.unlink()
    with pytest.raises(CorruptData, match=r"part-00000\.parquet\.bands is missing"):
        find_near_duplicates(documents, signatures, NearDuplicateConfig(), LocalOutput(tmp_path / "found"))
    assert not (tmp_path / "found").exists()


def test_documents_that_are_gone_are_named(tmp_path):
    documents = write_documents(tmp_path / "documents", planted())
    write_signatures(documents, MinHashConfig(), LocalOutput(tmp_path / "signatures"))
    (tmp_path / "documents" / "part-00000.parquet").unlink()
    with pytest.raises(CorruptData, match=r"part-00000\.parquet is missing"):
        find_near_duplicates(
            documents,
            SignatureSet.open(tmp_path / "signatures"),
            NearDuplicateConfig(),
            LocalOutput(tmp_path / "found"),
        )


@pytest.mark.parametrize(
    "bad", [{"min_jaccard": 0}, {"min_jaccard": 1.1}, {"max_kept_in_bucket": 0}, {"group_shingles": 0}]
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(BadConfig, match=next(iter(bad))):
        NearDuplicateConfig(**bad)
