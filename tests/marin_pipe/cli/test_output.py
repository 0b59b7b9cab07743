"""Printing where nothing redraws."""

import io
import re
import sys

import pytest

from marin_pipe.cli.output import human_duration, human_size, print_error, print_json, print_table, show_path
from marin_pipe.execution.errors import ConfigurationError


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 * 2**30, "20.0 GiB"), (3 * 2**50, "3.0 PiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert human_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0004, "0 ms"),
        (0.007, "7 ms"),
        (0.0996, "0.1 s"),
        (0.34, "0.3 s"),
        (9.96, "10 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3600 * 5 + 60 * 12, "5 h 12 min"),
        (3600 * 24 - 1, "1 d 0 h"),
        (3600 * 76, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_a_plain_table_cuts_nothing_off_and_keeps_a_row_on_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table(("NAME", "N", "WHY"), [("a" * 30, "1", "one\ntwo"), ("b", "200", "")], right=("N",))
    assert capsys.readouterr().out.splitlines() == [
        "NAME" + " " * 26 + "    N  WHY",
        "a" * 30 + "    1  one two",
        "b" + " " * 29 + "  200",
    ]


def test_a_terminal_folds_long_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    print_table(("NAME", "WHY"), [("b", "w" * 50)])
    assert out.getvalue().count("w") == 50
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())  # bold is no colour
    assert max(len(line) for line in text.splitlines()) <= 30
    assert "\x1b[3" not in out.getvalue()  # NO_COLOR is set for all tests


def test_json_keeps_unicode(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "é"})
    assert capsys.readouterr().out == '{\n  "name": "é"\n}\n'


def test_an_error_is_three_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ConfigurationError("it broke", why="it was old", next="buy another"))
    assert capsys.readouterr() == ("", "error: it broke\n  why:  it was old\n  next: buy another\n")


def test_debug_puts_the_traceback_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ConfigurationError("it broke")
    except ConfigurationError as error:
        print_error(error, debug=True)
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("\nerror: it broke\n")


def test_paths_below_here_are_shown_relative(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert show_path(f"{tmp_path}/outputs/a") == "outputs/a"
    assert show_path("gs://bucket/a") == "gs://bucket/a"
    assert show_path(f"{tmp_path}x/a") == f"{tmp_path}x/a"
