"""`normalise`: what it unifies, that it does so once and for all, and that whitespace of any length is no trouble."""

import re
import unicodedata
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from marin_corpus.documents.read import DocumentSet
from marin_corpus.errors import BadConfig
from marin_corpus.output import LocalOutput
from marin_corpus.transform.normalise import NormaliseConfig, UnicodeForm, normalise, normalise_text
from speeches import speeches, write_documents

ODD = "aA\u0301\u0308\u00e9\ufb01\u00b4\u00a0\u3000\u212b\uac00\u11a8 \t\n\r\x0b\x0c\x00\x7f\x85\x9f\u2028\u200b\ufeff"
TEXTS = st.text(st.sampled_from(ODD), max_size=60) | st.text(max_size=60)
CONFIGS = st.builds(
    NormaliseConfig,
    unicode_form=st.sampled_from(get_args(UnicodeForm)),
    max_spaces=st.integers(1, 4),
    max_blank_lines=st.integers(0, 3),
)


@given(TEXTS, CONFIGS)
@example("a\x00\u0301", NormaliseConfig())
@example("\r\x00\n", NormaliseConfig(max_blank_lines=0))
@example("a \u00b4", NormaliseConfig(unicode_form="NFKC", max_spaces=1))
def test_the_form_holds_and_lasts(text, config) -> None:
    found = normalise_text(text, config)
    assert normalise_text(found, config) == found
    if config.unicode_form != "none":
        assert unicodedata.is_normalized(config.unicode_form, found)
    assert not [c for c in found if unicodedata.category(c) == "Cc" and c not in "\t\n"]
    assert "\n" * (config.max_blank_lines + 2) not in found
    lines = found.split("\n")
    assert all(line == line.rstrip(" \t") for line in lines)
    assert max(len(run) for line in lines for run in re.split(r"[^ \t]", line)) <= config.max_spaces
    assert lines == [""] or (lines[0] and lines[-1])
    if config.unicode_form == "none":
        # Nothing but whitespace and control characters goes.
        visible = re.compile("[\x00-\x20\x7f-\x9f]")
        assert visible.sub("", found) == visible.sub("", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\r\ntwo\rthree\x0cfour\x85", "one\ntwo\nthree\nfour"),
        ("cafe\u0301", "caf\u00e9"),
        ("\ufb01ne", "\ufb01ne"),
        ("a\x00b\x1b[0m\ufffd", "ab[0m\ufffd"),
        ("def f():\n\treturn 1  \n", "def f():\n\treturn 1"),
        ("\n\n   indented\n\n\n\n\n\nend\n \t\n", "   indented\n\n\nend"),
        ("a" + " " * 100 + "b", "a" + " " * 64 + "b"),
        ("\n \r\n\x00", ""),
    ],
)
def test_defaults(text, expected) -> None:
    assert normalise_text(text, NormaliseConfig()) == expected


def test_compatibility_form() -> None:
    assert normalise_text("\ufb01ne\u00a0\uff21", NormaliseConfig(unicode_form="NFKC")) == "fine A"


@pytest.mark.parametrize("run", [" ", "\t", "\n", " \n", "\r\n", "\x00", "\x00 ", " \t"])
def test_long_runs_take_linear_time(run) -> None:
    # Quadratic time would be hours.
    text = "a" + run * 3_000_000 + "b"
    for config in (NormaliseConfig(), NormaliseConfig(max_spaces=1_000_000)):
        assert len(normalise_text(text, config)) <= config.max_spaces + 2


def test_prose_stays_and_empty_texts_are_dropped(tmp_path) -> None:
    texts = [normalise_text(text, NormaliseConfig()) for text in speeches(1990, 1995)]
    documents = write_documents(tmp_path / "in", [*texts, " \r\n\x00"])
    result = normalise(documents, NormaliseConfig(), LocalOutput(tmp_path / "out"))
    assert result.dropped == {"no text": 1}
    before, after = documents.parts[0], DocumentSet.open(tmp_path / "out").parts[0]
    assert (after.num_documents, after.text_bytes) == (len(texts), before.text_bytes - 4)


def test_marks_without_end_are_dropped_and_counted(tmp_path) -> None:
    # Ordering a megabyte of them would take minutes.
    texts = ["a" + "\u0315\u0300" * 500_000, "a" + "\u0315\x00\u0300" * 500_000, "a" + "\u0315\u0300" * 500]
    documents = write_documents(tmp_path / "in", texts)
    result = normalise(documents, NormaliseConfig(), LocalOutput(tmp_path / "out"))
    assert result.dropped == {"too many combining marks in a row": 2}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unicode_form", "NFD"),
        ("max_spaces", 0),
        ("max_blank_lines", -1),
        ("max_spaces", 1 << 40),
        ("max_blank_lines", 1 << 40),
    ],
)
def test_settings_that_cannot_be(name, value) -> None:
    with pytest.raises(BadConfig, match=name):
        NormaliseConfig(**{name: value})
