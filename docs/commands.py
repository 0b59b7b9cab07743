"""Writes docs/reference/commands.md from the command line itself: `python docs/commands.py`."""

from collections.abc import Sequence
from pathlib import Path

import click

from marin_pipe.cli.app import HELP_NAMES, common_options
from marin_pipe.cli.registry import COMMANDS, DEFAULT_COMMAND, FLAG_NAMES, Entry

PAGE = Path(__file__).parent / "reference" / "commands.md"

INTRODUCTION = """\
# Commands

Written by `make docs` from the command line itself.

```
python experiments/x.py [COMMAND] [FLAGS] [--field.path value ...]
marin-pipe COMMAND [FLAGS]
```

An experiment file offers every command; without one it means `run`. `marin-pipe` offers those that need no file. STEP
is a name, a path, the beginning of a key, or a label. GLOB is matched against step names. `help COMMAND` shows the
flags of a command, `--version` the version. Exit codes are [the same everywhere](exit-codes.md).
"""

OVERRIDES = """
## Fields of the configuration

A `--name` that is no flag of the command sets a field of the experiment's configuration, wherever it stands:
`--name value` or `--name=value`, with dashes or underscores. `--help` lists the fields.

| type | written |
| --- | --- |
| text, a number, a path, an enumeration, a `Literal` | as it is: `--lr 3e-4`, `--text "a: b"` |
| `bool` | `--flag`, `--flag false` |
| an optional one | also `null`: `--limit null` |
| a list, tuple or set | whole, in brackets: `--words '[a, b]'` |
| a dict | whole, in braces: `--shares '{web: 0.7, code: 0.3}'` |
| a nested dataclass | field by field, `--adam.lr 3e-4`, or several at once, `--adam '{lr: 3e-4, beta: 0.9}'` |

Fields of a nested dataclass that are not named stay as the experiment has them.
"""


def page() -> str:
    """The whole page."""
    reserved = ", ".join(f"`{name.replace('-', '_')}`" for name in sorted(FLAG_NAMES))
    everywhere = click.Context(click.Command("every", params=[*common_options()]), help_option_names=HELP_NAMES)
    return "".join(
        (
            INTRODUCTION,
            OVERRIDES,
            f"\nNo field may have the name of a flag of any command: {reserved}.\n",
            f"\n## Flags of every command\n{_table(everywhere, everywhere.command.get_params(everywhere))}",
            *(_section(name, entry) for name, entry in COMMANDS.items()),
        )
    )


def _section(name: str, entry: Entry) -> str:
    command = entry.load()
    context = click.Context(command, info_name=name)
    where = "experiment files only" if entry.needs == "experiment" else "also `marin-pipe`"
    default = "; the default" if name == DEFAULT_COMMAND else ""
    usage = " ".join(command.collect_usage_pieces(context))
    return (
        f"\n## {name}\n\n`{name} {usage}` ({where}{default})\n\n{_prose(command.help or entry.help)}\n"
        f"{_table(context, command.params)}"
    )


def _table(context: click.Context, parameters: Sequence[click.Parameter]) -> str:
    options = [parameter for parameter in parameters if isinstance(parameter, click.Option)]
    rows = [record for option in options if (record := option.get_help_record(context))]
    body = "".join(f"| `{_cell(flag)}` | {_cell(does)} |\n" for flag, does in rows)
    return f"\n| flag | does |\n| --- | --- |\n{body}" if rows else ""


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
