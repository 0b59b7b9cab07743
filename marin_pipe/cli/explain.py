"""`explain`, `diff`: why a key is what it is, and what differs."""

from typing import Any

import click

from marin_pipe.cli.context import App
from marin_pipe.cli.output import print_json, print_line
from marin_pipe.cli.select import find
from marin_pipe.execution.compare import compare_steps
from marin_pipe.execution.errors import ExitCode
from marin_pipe.execution.explain import Explanation, explain_step


@click.command("explain", help="Why the key of STEP is what it is, and why a run would build it or not.")
@click.argument("step")
@click.option(
    "--source",
    type=click.Choice(["warn", "rerun", "ignore"]),
    default="warn",
    help="What a run would do about changed source.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def explain(app: App, *, step: str, source: Any, as_json: bool) -> int:
    explanation = explain_step(app.store, find(app, step), graph=app.graph, source_policy=source)
    if as_json:
        print_json(explanation.as_json())
        return ExitCode.OK
    for line in lines(explanation):
        print_line(line)
    return ExitCode.OK


def lines(explanation: Explanation) -> list[str]:
    """An explanation for people."""
    out = [
        f"{explanation.name}  ({explanation.directory})",
        f"  {explanation.action}: {explanation.why}" if explanation.why else f"  {explanation.action}",
        *(f"  note: {note}" for note in explanation.notes),
        f"  key {explanation.key} is made of:",
        f"    function {explanation.function}",
        *(f"    {name} = {text}" for name, text in explanation.arguments.items()),
    ]
    if explanation.inputs:
        out += ["  inputs:", *(f"    {text}" for text in explanation.inputs)]
    if explanation.against is None:
        out.append("  there is no earlier output of that name")
    else:
        out.append(f"  against {explanation.against}, the nearest earlier output of that name:")
        out += [f"    {cause}" for cause in explanation.causes] or ["    the same"]
    if explanation.source_changes:
        out.append(f"  source against {explanation.source_against}:")
        out += [f"    {text}" for text in explanation.source_changes]
    return out


@click.command("diff", help="What differs between two steps or outputs.")
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def diff(app: App, *, a: str, b: str, as_json: bool) -> int:
    old, new = find(app, a), find(app, b)
    differences = compare_steps(app.store, old, new)
    if as_json:
        rows = [{"section": d.section, "what": d.what, "old": d.old, "new": d.new} for d in differences]
        print_json({"a": old.directory, "b": new.directory, "differences": rows})
        return ExitCode.OK
    print_line(f"{old.directory} -> {new.directory}")
    for section in dict.fromkeys(difference.section for difference in differences):
        print_line(f"{section}:")
        for difference in differences:
            if difference.section == section:
                print_line(f"  {difference}")
    if not differences:
        print_line("no difference")
    return ExitCode.OK
