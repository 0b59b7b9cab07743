"""`init NAME`: a runnable experiment file to start from."""

import keyword
from pathlib import Path

import click

from marin_pipe.cli.output import print_line
from marin_pipe.execution.errors import ConfigurationError

_TEMPLATE = '''"""{name}: two steps to start from.

Run:       python experiments/{name}.py
Plan:      python experiments/{name}.py plan
Override:  python experiments/{name}.py --top 5
Cost:      a second on one core
Result:    the most frequent words of a text, as a small table
"""

from collections import Counter
from dataclasses import dataclass

from marin_pipe import Artifact, Step, StepContext, experiment, step


@dataclass(frozen=True)
class Config:
    """Every field can be overridden on the command line; a changed value makes a new output beside the old one."""

    text: str = "the quick brown fox jumps over the lazy dog and the dog sleeps on"
    """What to count."""
    top: int = 3
    """Words in the table."""


class Counts(Artifact):
    """A typed result: stored with the output, loaded for the steps that take it."""

    words: dict[str, int]


@step
def count_words(text: str) -> Counts:
    """Count the words of `text`."""
    return Counts(words=Counter(text.split()))


@step
def write_table(counts: Counts, *, top: int, ctx: StepContext) -> None:
    """Write the most frequent words to `table.txt`. What lies in `ctx.output` is the step's output."""
    ranked = sorted(counts.words.items(), key=lambda item: (-item[1], item[0]))[:top]
    (ctx.output / "table.txt").write_text("".join(f"{{number}} {{word}}\\n" for word, number in ranked))


def build(config: Config) -> dict[str, Step]:
    """Describe the steps; nothing runs here."""
    counts = count_words(config.text).named("{name}/count")
    return {{"table": write_table(counts, top=config.top).named("{name}/table")}}


if __name__ == "__main__":
    experiment(build)
'''


@click.command("init", help="Write a runnable experiment file, experiments/NAME.py.")
@click.argument("name")
def init_command(name: str) -> None:
    """Refuses to overwrite anything."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigurationError(
            f"{name!r} cannot name an experiment file",
            why="workers import it, so its name must be a Python identifier",
            next="use letters, digits and underscores, such as exp001_first",
        )
    path = Path("experiments", f"{name}.py")
    path.parent.mkdir(exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_TEMPLATE.format(name=name))
    except FileExistsError as error:
        raise ConfigurationError(f"{path} exists already", next="choose another name, or delete it first") from error
    print_line(f"wrote {path}; run it with: python {path}")
