"""`plan`: what a run would do, and why. Writes nothing."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, get_args

import click

from marin_pipe.cli.context import App
from marin_pipe.cli.output import human_duration, print_json, print_line, print_table, show_path
from marin_pipe.cli.run import launch_options, selection_options
from marin_pipe.execution.errors import ExitCode
from marin_pipe.execution.plan import Action, Plan, PlannedStep, Planner
from marin_pipe.execution.selection import Selection, apply_selection
from marin_pipe.execution.view import View

_HEADERS = ("STEP", "ACTION", "WHY", "TIME", "PATH")
_ALL_ROWS = 40
"""Longer plans are grouped, so that they fit a screen."""


@click.command("plan", help="Say what `run` would do, and why. Takes the flags of `run`; writes nothing.")
@selection_options
@launch_options(hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--check", is_flag=True, help="Exit 3 if anything would run.")
@click.option("--all", "show_all", is_flag=True, help=f"A row per step, also beyond {_ALL_ROWS} steps.")
@click.pass_obj
def plan_command(
    app: App,
    *,
    only: tuple[str, ...],
    upto: tuple[str, ...],
    after: tuple[str, ...],
    force: tuple[str, ...],
    downstream: bool,
    source: Any,
    as_json: bool,
    check: bool,
    show_all: bool,
) -> int:
    """Plan the app's graph and print it."""
    graph = app.graph
    assert graph is not None  # the registry offers `plan` to experiment files only
    selected = apply_selection(graph, Selection(only=only, upto=upto, after=after, force=force, downstream=downstream))
    view = View(store=app.store, source_policy=source)
    view.look(graph)
    plan = Planner(graph=graph, view=view, selected=selected).plan()
    if as_json:
        print_json({"root": plan.root, "steps": [dataclasses.asdict(step) for step in plan.steps]})
    else:
        shown = {node.directory: node.shown for node in graph.nodes}
        named = [dataclasses.replace(step, name=shown[step.directory]) for step in plan.steps]
        rows = named if show_all or len(named) <= _ALL_ROWS else ()
        print_table(_HEADERS, [_row(step) for step in rows] or group(named), right=("TIME",))
        _print_notes(named)
        print_line(summary(plan))
    return int(plan.exit_code) if check else ExitCode.OK


def group(steps: Sequence[PlannedStep]) -> list[tuple[str, ...]]:
    """A row for each action and reason: the first step's, with the number of the others. Cached steps are one row."""
    groups: dict[tuple[str, str], list[PlannedStep]] = defaultdict(list)
    for step in steps:
        groups[(step.action, step.why)].append(step)
    rows = []
    for (action, why), members in groups.items():
        first = members[0]
        if len(members) == 1:
            rows.append(_row(first))
            continue
        known = [step.expected_s for step in members if step.expected_s is not None]
        time = human_duration(sum(known)) if known else ""
        name = f"{len(members)} steps" if action == "cached" else f"{first.name} and {len(members) - 1} more"
        rows.append((name, action, why, time, "(--all shows them)"))
    return rows


def summary(plan: Plan) -> str:
    """`2 run, 5 cached; about 3 min 20 s of work`."""
    counts = Counter(step.action for step in plan.steps)
    ahead = [step for step in plan.steps if step.action in ("run", "resume")]
    known = [step.expected_s for step in ahead if step.expected_s is not None]
    text = ", ".join(f"{counts[action]} {action}" for action in get_args(Action) if counts[action]) or "nothing to do"
    if known:
        rest = f" and {len(ahead) - len(known)} steps never timed" if len(known) < len(ahead) else ""
        text += f"; about {human_duration(sum(known))} of work{rest}"
    return text


def _row(step: PlannedStep) -> tuple[str, ...]:
    time = human_duration(step.expected_s) if step.expected_s is not None else ""
    return (step.name, step.action, step.why, time, show_path(step.path))


def _print_notes(steps: Sequence[PlannedStep]) -> None:
    notes: dict[str, list[str]] = defaultdict(list)
    for step in steps:
        for note in step.notes:
            notes[note].append(step.name)
    for note, names in notes.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print_line(f"note: {names[0]}{more}: {note}")
