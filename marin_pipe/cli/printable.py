"""Text that a program printed, made safe for a terminal."""

import re

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
"""Colours and cursor movements, titles and links: of use only to the terminal they were printed on."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of text."""


def printable(line: str) -> str:
    """One line without escape sequences, what a progress bar overwrote, and control characters in the open."""
    plain = _SEQUENCE.sub("", line).rstrip("\r").rpartition("\r")[2]
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), plain)
