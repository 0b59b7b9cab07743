"""`normalise`: one form for characters, line ends and whitespace."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.schema import Document
from marin_corpus.documents.write import Written
from marin_corpus.errors import BadConfig
from marin_corpus.output import Output
from marin_corpus.transform.map import NO_TEXT, Drop, map_documents

UnicodeForm = Literal["NFC", "NFKC", "none"]

# Vertical tab, form feed and NEL separate what stands before from what stands after: they become line ends.
_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85]")
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]+")

TOO_MANY_MARKS = "too many combining marks in a row"
_MAX_MARKS = 1000
_MOST_REPEATS = 1_000_000
"""More than that is no limit; `re` has one of its own."""
# Marks and control characters are among these; found many times as fast.
_LONG_RUN = re.compile(f"[^\t\n -~\xa0-\u02ff]{{{_MAX_MARKS}}}")


@dataclass(frozen=True, kw_only=True)
class NormaliseConfig:
    """What to unify. The defaults leave prose and indented code as they are."""

    unicode_form: UnicodeForm = "NFC"
    """NFC composes accents; NFKC also replaces ligatures, wide forms and the like; "none" leaves characters alone."""
    max_spaces: int = 64
    """Spaces and tabs in a row within a line, indentation included; what goes beyond is cut."""
    max_blank_lines: int = 2
    """Blank lines in a row."""

    def __post_init__(self) -> None:
        if self.unicode_form not in get_args(UnicodeForm):
            raise BadConfig(
                f"unicode_form={self.unicode_form!r} is unknown", next=f"use one of {', '.join(get_args(UnicodeForm))}"
            )
        if self.max_spaces < 1:
            raise BadConfig(f"max_spaces={self.max_spaces} must be at least 1: words would run together")
        if self.max_blank_lines < 0:
            raise BadConfig(f"max_blank_lines={self.max_blank_lines} must be at least 0")
        for name in ("max_spaces", "max_blank_lines"):
            if getattr(self, name) > _MOST_REPEATS:
                raise BadConfig(f"{name}={getattr(self, name)} must be at most {_MOST_REPEATS}")


def normalise(documents: DocumentSet, config: NormaliseConfig, output: Output) -> Written:
    """Write the documents with their texts normalised.

    Texts of which nothing is left are dropped and counted. So are those with more than a thousand combining marks in a
    row, which no language has: bringing marks into order takes quadratic time, minutes for a megabyte of them.
    """
    return map_documents(documents, _normalise_document, config, output=output)


def _normalise_document(document: Document, config: NormaliseConfig) -> str | Drop:
    if config.unicode_form != "none" and _LONG_RUN.search(document.text) and _many_marks().search(document.text):
        return Drop(TOO_MANY_MARKS)
    return normalise_text(document.text, config) or Drop(NO_TEXT)


@cache
def _many_marks() -> re.Pattern[str]:
    # Control characters between marks go before the marks are ordered. Higher code points than these are no marks.
    marks = "".join(chr(code) for code in range(0x20000) if unicodedata.combining(chr(code)))
    return re.compile(f"(?:[{marks}](?:{_CONTROL.pattern})?){{{_MAX_MARKS + 1}}}")


def normalise_text(text: str, config: NormaliseConfig) -> str:
    r"""The text in its one form; normalising that again changes nothing.

    Control characters go (tab and "\n" stay); line ends of any kind become "\n"; characters get the Unicode form; then
    whitespace at the end of lines, blank lines at both ends of the text, and what exceeds the runs allowed go. Takes
    time linear in the length for whitespace of any length.
    """
    # First what stands between characters, so that those that come together are composed.
    if _ODD.search(text):
        text = _LINE_END.sub("\n", _CONTROL.sub("", text))
    if config.unicode_form != "none" and not unicodedata.is_normalized(config.unicode_form, text):
        text = unicodedata.normalize(config.unicode_form, text)
    # By lines: a regular expression for the end of lines takes quadratic time for a long run elsewhere.
    text = "\n".join([line.rstrip(" \t") for line in text.split("\n")])
    # Looking for a fixed string is many times as fast as for a pattern.
    if "\t" in text or " " * (config.max_spaces + 1) in text:
        text = re.sub(rf"([ \t]{{{config.max_spaces}}})[ \t]++", r"\1", text)
    most = "\n" * (config.max_blank_lines + 1)
    if most + "\n" in text:
        text = re.sub(rf"\n{{{len(most) + 1},}}+", most, text)
    return text.strip("\n")
