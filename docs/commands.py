"""Writes docs/reference/commands.md from the command line itself: `python docs/commands.py`."""

from pathlib import Path

import click

from marin_pipe.cli.registry import COMMANDS, DEFAULT_COMMAND, Entry

PAGE = Path(__file__).parent / "reference" / "commands.md"

INTRODUCTION = """\
# Commands

Written by `make docs` from the command line itself.

```
python experiments/x.py [COMMAND] [FLAGS] [--field.path value ...]
marin-pipe COMMAND [FLAGS]
```

An experiment file offers every command; without one it means `run`. `marin-pipe` offers those that need no file. STEP
is a name, a path, the beginning of a key, or a label. A `--name` that is no flag of the command sets a field of the
experiment's configuration, wherever it stands. GLOB is matched against step names. Exit codes are
[the same everywhere](exit-codes.md).
"""


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "".join(_section(name, entry) for name, entry in COMMANDS.items())


def _section(name: str, entry: Entry) -> str:
    command = entry.load()
    context = click.Context(command, info_name=name)
    where = "experiment files only" if entry.needs == "experiment" else "also `marin-pipe`"
    default = "; the default" if name == DEFAULT_COMMAND else ""
    usage = " ".join(command.collect_usage_pieces(context))
    text = f"\n## {name}\n\n`{name} {usage}` ({where}{default})\n\n{_prose(command.help or entry.help)}\n"
    rows = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    if rows:
        text += "\n| flag | does |\n| --- | --- |\n"
        text += "".join(f"| `{_cell(flag)}` | {_cell(does)} |\n" for flag, does in rows)
    return text


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
