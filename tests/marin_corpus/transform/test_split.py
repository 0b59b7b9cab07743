"""`split_documents`: nothing is lost, no piece is too long, and cuts fall where a reader would make them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.documents.schema import document_id
from marin_corpus.errors import BadConfig
from marin_corpus.output import LocalOutput
from marin_corpus.transform.split import SplitConfig, split_documents, split_text
from speeches import speeches, write_documents


@given(st.text(st.sampled_from("ab \t\n\u3000\U0001f600"), max_size=80) | st.text(max_size=80), st.integers(1, 30))
def test_pieces_are_the_text(text, max_characters) -> None:
    pieces = split_text(text, max_characters)
    assert "".join(pieces) == text
    assert all(len(piece) <= max_characters for piece in pieces)
    assert all(len(piece) > max_characters // 2 for piece in pieces[:-1])
    assert all(pieces) or pieces == [""]
    if len(text) <= max_characters:
        assert pieces == [text]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("one two\n\nthree\nfour five", ["one two\n\n", "three\nfour ", "five"]),
        ("one two\nthree four", ["one two\n", "three four"]),
        ("one two three four five", ["one two ", "three four ", "five"]),
        ("x\n\nabcdefghijklmnop", ["x\n\nabcdefghi", "jklmnop"]),
        ("one\u3000two\u3000three\u3000four", ["one\u3000two\u3000", "three\u3000four"]),
        ("a" * 25, ["a" * 12, "a" * 12, "a"]),
        ("a" * 11 + "e\u0301\u0302" + "b" * 5, ["a" * 11, "e\u0301\u0302" + "b" * 5]),
        ("a" * 11 + "\U0001f469\u200d\U0001f680" + "b" * 5, ["a" * 11, "\U0001f469\u200d\U0001f680" + "b" * 5]),
        ("a" * 11 + "\r\n" + "b" * 5, ["a" * 11, "\r\n" + "b" * 5]),
        ("a" + "\u0301" * 15, ["a" + "\u0301" * 11, "\u0301" * 4]),
    ],
)
def test_where_cuts_fall(text, pieces) -> None:
    assert split_text(text, 12) == pieces


def test_speeches_are_cut_at_paragraphs() -> None:
    text = "\n\n".join("\n\n".join(line for line in speech.split("\n") if line) for speech in speeches(1950, 2000))
    pieces = split_text(text, 50_000)
    assert len(pieces) > 10
    assert all(piece.endswith("\n\n") for piece in pieces[:-1])


def test_documents(tmp_path) -> None:
    long, short = "word " * 5, "short"
    documents = write_documents(tmp_path / "in", [short, long])
    split_documents(documents, SplitConfig(max_characters=10), LocalOutput(tmp_path / "out"))
    (part,) = DocumentSet.open(tmp_path / "out").parts
    rows = [row for batch in read_batches(part) for row in batch.to_pylist()]
    parent = document_id(long)
    assert [(row["text"], json.loads(row["meta"])) for row in rows] == [
        (short, {}),
        ("word word ", {"piece": 0, "num_pieces": 3, "split_from": parent}),
        ("word word ", {"piece": 1, "num_pieces": 3, "split_from": parent}),
        ("word ", {"piece": 2, "num_pieces": 3, "split_from": parent}),
    ]


def test_long_texts_without_any_place_to_cut() -> None:
    pieces = split_text("x" * 5_000_000, 1_000_000)
    assert [len(piece) for piece in pieces] == [1_000_000] * 5


def test_length_that_cannot_be() -> None:
    with pytest.raises(BadConfig, match="max_characters=0"):
        SplitConfig(max_characters=0)
