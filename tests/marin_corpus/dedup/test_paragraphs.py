import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.dedup.hashes import HashConfig, HashSet, NormalForm, write_hashes
from marin_corpus.dedup.paragraphs import find_repeated_paragraphs
from marin_corpus.documents.attributes import AttributeSet, read_attributes
from marin_corpus.errors import Mismatch
from marin_corpus.output import LocalOutput
from speeches import files_of, write_documents


def find(folder, texts, *, num_parts=1, workers=1, **config):
    documents = write_documents(folder / "documents", texts, num_parts=num_parts)
    write_hashes(documents, HashConfig(unit="paragraph", **config), LocalOutput(folder / "hashes", workers=workers))
    find_repeated_paragraphs(documents, HashSet.open(folder / "hashes"), LocalOutput(folder / "found", workers=workers))
    found = AttributeSet.open(folder / "found")
    found.check_made_for(documents)
    return [row for part in found.parts for row in read_attributes(part).to_pylist()]


def apply(text, row):
    """The text after its edits."""
    for span in reversed(row["repeated_paragraph_spans"]):
        text = text[: span["start"]] + span["replacement"] + text[span["end"] :]
    return text


def test_the_first_paragraph_of_the_whole_set_is_kept(tmp_path):
    texts = [
        "Terms of use apply.\n\nAn article.\n\nSubscribe now!",
        "Terms of use apply.\n\nAnother article.\n\nSubscribe  NOW!\n",
        "subscribe now!\n\nA third: naïve 🎉 text.\n\nTerms of use apply.",
    ]
    form = NormalForm(ignore_case=True, ignore_whitespace=True)
    rows = find(tmp_path, texts, num_parts=2, normal_form=form)
    edited = [apply(text, row) for text, row in zip(texts, rows, strict=True)]
    assert edited == [texts[0], "Another article.\n\n", "A third: naïve 🎉 text.\n\n"]
    assert [row["num_repeated_paragraphs"] for row in rows] == [0, 2, 2]
    for text, kept, row in zip(texts, edited, rows, strict=True):
        assert row["repeated_paragraph_characters"] == len(text) - len(kept)
        assert row["repeated_paragraph_fraction"] == (len(text) - len(kept)) / len(text)


def test_short_paragraphs_are_left_alone(tmp_path):
    rows = find(tmp_path, ["ab\nabc\nab\nabc"], min_characters=3)
    assert apply("ab\nabc\nab\nabc", rows[0]) == "ab\nabc\nab\n"


def test_neighbouring_paragraphs_are_one_edit(tmp_path):
    rows = find(tmp_path, ["a\nb\n\nc", "x\na\nb\ny\nc"])
    assert [(s["start"], s["end"]) for s in rows[1]["repeated_paragraph_spans"]] == [(2, 6), (8, 9)]


paragraphs = st.lists(st.sampled_from(["aa", "b", " ", "ccc", "A a"]), max_size=6)


@given(st.lists(paragraphs, min_size=1, max_size=6), st.integers(1, 3))
def test_what_remains_is_each_paragraph_once_in_order(tmp_path_factory, documents, num_parts):
    texts = ["\n".join(document) for document in documents]
    rows = find(tmp_path_factory.mktemp("paragraphs"), texts, num_parts=num_parts)
    seen, expected = set(), []
    for document in documents:
        expected.append([p for p in document if p.isspace() or (p not in seen and not seen.add(p))])  # type: ignore[func-returns-value]
    remaining = [apply(text, row) for text, row in zip(texts, rows, strict=True)]
    assert [[p for p in text.split("\n") if p] for text in remaining] == expected


def test_bytes_do_not_depend_on_workers(tmp_path):
    texts = [f"same\nown {number}\nsame {number % 3}" for number in range(30)]
    for workers in (1, 2):
        find(tmp_path / str(workers), texts, num_parts=3, workers=workers)
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")


def test_hashes_of_whole_documents_are_refused(tmp_path):
    documents = write_documents(tmp_path / "documents", ["a"])
    write_hashes(documents, HashConfig(unit="document"), LocalOutput(tmp_path / "hashes"))
    with pytest.raises(Mismatch, match="hashes of each document, not of each paragraph"):
        find_repeated_paragraphs(documents, HashSet.open(tmp_path / "hashes"), LocalOutput(tmp_path / "found"))
