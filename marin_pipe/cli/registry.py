"""The commands by name: where each one lives and what it does in a line. Imports none of them."""

import importlib
from dataclasses import dataclass
from typing import Literal

import click

Needs = Literal["experiment", "nothing"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One command. `target` is `"module:attribute"` of a `click.Command`, imported when the command is asked for."""

    target: str
    help: str
    needs: Needs = "nothing"
    """"experiment": makes sense for an experiment file only, so `marin-pipe` does not offer it."""
    may_begin: bool = False
    """Whether it makes sense at a root where nothing is yet."""

    def load(self) -> click.Command:
        module, _, attribute = self.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


DEFAULT_COMMAND = "run"
"""Of an experiment file; `marin-pipe` alone shows its help."""

COMMANDS: dict[str, Entry] = {
    "run": Entry(
        target="marin_pipe.cli.run:run_command", help="Run what is missing.", needs="experiment", may_begin=True
    ),
    "plan": Entry(
        target="marin_pipe.cli.plan:plan_command",
        help="Say what would run, and why. Writes nothing.",
        needs="experiment",
        may_begin=True,
    ),
    "explain": Entry(target="marin_pipe.cli.explain:explain", help="Why a step's key is what it is."),
    "diff": Entry(target="marin_pipe.cli.explain:diff", help="What differs between two steps or outputs."),
    "ls": Entry(target="marin_pipe.cli.outputs:ls", help="List outputs: size, age, producer, users."),
    "path": Entry(target="marin_pipe.cli.outputs:path", help="Print where a step's committed data lies."),
    "lineage": Entry(target="marin_pipe.cli.outputs:lineage", help="Everything upstream and downstream of an output."),
    "verify": Entry(target="marin_pipe.cli.outputs:verify", help="Re-digest outputs against their manifests."),
    "status": Entry(target="marin_pipe.cli.watch:status", help="State, owner and progress of steps."),
    "logs": Entry(target="marin_pipe.cli.watch:logs", help="Show (-f: follow) a step's log."),
    "cancel": Entry(target="marin_pipe.cli.watch:cancel", help="Ask the owner of a step to stop."),
    "label": Entry(target="marin_pipe.cli.manage:label", help="Give an output a human name."),
    "adopt": Entry(target="marin_pipe.cli.manage:adopt", help="Declare an existing output equivalent to a step's."),
    "unlock": Entry(target="marin_pipe.cli.manage:unlock", help="Take a lease from an owner that is gone."),
    "gc": Entry(target="marin_pipe.cli.gc:gc", help="Find outputs that nothing kept reaches; --delete removes them."),
    "init": Entry(target="marin_pipe.cli.init:init_command", help="Write a runnable experiment file.", may_begin=True),
    "doctor": Entry(
        target="marin_pipe.cli.doctor:doctor_command", help="Check this machine and the storage root.", may_begin=True
    ),
}


def offered(*, with_experiment: bool) -> dict[str, Entry]:
    """The commands of an experiment file, or those of `marin-pipe`."""
    return {name: entry for name, entry in COMMANDS.items() if with_experiment or entry.needs == "nothing"}


FLAG_NAMES = frozenset(
    {
        *("after", "all", "attempt", "backend", "check", "debug", "delete", "downstream", "fail-fast", "follow"),
        *("force", "help"),
        *("json", "keep-going", "keep-runs", "max-concurrent", "move", "no-wait", "older-than", "owner"),
        *("only", "probe", "reason", "root", "single-writer", "source", "undo", "upto", "verify"),
    }
)
"""Every long flag of every command: no config field may have one of these names. A table, so that the check imports no
command."""
