import pytest

from marin_pipe.cli.printable import printable


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain é 文 text\twith a tab", "plain é 文 text\twith a tab"),
        ("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m", "red and bold"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%", "100%"),
        ("done\r", "done"),
        ("bell \x07 null \x00 escape \x1b", r"bell \x07 null \x00 escape \x1b"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_what_a_program_printed_cannot_act_on_the_terminal(printed: str, shown: str) -> None:
    assert printable(printed) == shown
