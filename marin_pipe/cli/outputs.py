"""`ls`, `path`, `lineage`, `verify`: stored outputs."""

import dataclasses
import json
import shlex
import time

import click

from marin_pipe.cli.context import App
from marin_pipe.cli.output import cut, human_duration, human_size, print_json, print_line, print_table
from marin_pipe.cli.select import find, matching_directories
from marin_pipe.execution.errors import ExitCode, MissingOutput
from marin_pipe.execution.finding import Found
from marin_pipe.execution.inventory import Inventory, Stored
from marin_pipe.execution.layout import display_name, join_url
from marin_pipe.execution.lineage import as_json as lineage_json
from marin_pipe.execution.lineage import find_output, trace
from marin_pipe.execution.lineage_tree import tree
from marin_pipe.execution.observe import data_directory
from marin_pipe.execution.outputs import Output, list_outputs
from marin_pipe.execution.pin import resolve_pin
from marin_pipe.execution.verify import Verified, verify_outputs

_USERS_SHOWN = 3


@click.command("ls", help="List outputs with size, age, producer and who uses them; the experiment's own, or all.")
@click.argument("glob", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def ls(app: App, *, glob: str | None, as_json: bool) -> int:
    wanted = set(matching_directories(app, glob))
    # Users are looked for everywhere.
    everything = Inventory(store=app.store).everything()
    outputs = [output for output in list_outputs(app.store, everything.values()) if output.directory in wanted]
    if as_json:
        print_json({"root": app.store.url, "outputs": [dataclasses.asdict(output) for output in outputs]})
        return ExitCode.OK
    now = time.time()
    rows = [_ls_row(output, now) for output in outputs]
    print_table(("OUTPUT", "SIZE", "FILES", "AGE", "MADE BY", "USED BY"), rows, right=("SIZE", "FILES", "AGE"))
    own = [output for output in outputs if output.adopted_from is None]
    adopted = f"; {len(outputs) - len(own)} adopted, whose data (->) counts once" if len(own) < len(outputs) else ""
    total = sum(output.size_bytes for output in own)
    print_line(f"{len(outputs)} outputs, {human_size(total)} in {app.store.url}{adopted}")
    return ExitCode.OK


def _ls_row(output: Output, now: float) -> tuple[str, ...]:
    made = f"{output.function}, {output.user}" + (f", {output.experiment} {output.run}" if output.experiment else "")
    if output.adopted_from is not None:
        made = f"-> {output.adopted_from}, {output.user}"
    names = sorted({display_name(user) for user in output.users})
    users = ", ".join(names[:_USERS_SHOWN]) + (" ..." if len(names) > _USERS_SHOWN else "")
    used = f"{len(output.users)}: {users}" if names else "-"
    labels = f" [{', '.join(output.labels)}]" if output.labels else ""
    age = human_duration(max(0.0, now - output.committed))
    return (
        f"{output.directory}{labels}",
        human_size(output.size_bytes),
        str(output.num_files),
        age,
        made,
        used,
    )


@click.command(
    "path",
    help="Print where the committed data of STEP lies, on one line. Exit 1, and nothing on stdout, if it has no output "
    "or its output is a value without files.",
)
@click.argument("step")
@click.pass_obj
def path(app: App, *, step: str) -> int:
    print_line(data_url(app, find(app, step)))
    return ExitCode.OK


def data_url(app: App, found: Found) -> str:
    """URL of the data directory of a step's current (or labelled) commit. MissingOutput if there are no files."""
    pin = found.node.step.options.pin if found.node is not None else None
    if found.node is not None and pin is not None:
        return resolve_pin(found.node.step, pin)[1]
    stored = Inventory(store=app.store).look([found.directory])[found.directory]
    commits = [c for c in stored.served if c.number == found.commit] if found.commit is not None else []
    commit = commits[0] if commits else stored.current
    if stored.damage is not None:
        raise stored.damage
    if commit is None or stored.current is None:
        raise MissingOutput(
            f"{found.directory} has no current output",
            why="its output was withdrawn" if stored.highest else "nothing was committed yet",
            next="run it first; `status` shows what it is doing",
        )
    if not commit.manifest:
        result = json.dumps(commit.record.result, ensure_ascii=False)
        raise MissingOutput(
            f"{found.directory} has no files, so no directory is there",
            why=f"its result is a value: {cut(result)}",
            next="in Python, `step.load()` returns it",
        )
    return join_url(app.store.url, data_directory(found.directory, commit))


@click.command("lineage", help="Show what PATH (a STEP, or a file inside an output) was made from and what uses it.")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def lineage(app: App, *, path: str, as_json: bool) -> int:
    found = find(app, path)
    inside = path if "/attempts/" in path else None
    output = find_output(app.store, found.directory, path=inside, commit=found.commit)
    traced = trace(app.store, output, file=inside)
    if as_json:
        print_json(lineage_json(traced))
        return ExitCode.OK
    print_line(f"{output}" + (f"  [{traced.notes[output]}]" if output in traced.notes else ""))
    for title, edges in (("made from", traced.upstream), ("used by", traced.downstream)):
        print_line(f"{title}:")
        for line in tree(traced, edges) or ["nothing"]:
            print_line(f"  {line}")
    return ExitCode.OK


@click.command("verify", help="Re-digest outputs against their manifests; exit 5 if one differs.")
@click.argument("glob", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def verify(app: App, *, glob: str | None, as_json: bool) -> int:
    stored = Inventory(store=app.store).look(matching_directories(app, glob))
    results = verify_outputs(app.store, stored.values())
    broken = [result for result in results if result.mismatches]
    if as_json:
        print_json({"root": app.store.url, "outputs": [dataclasses.asdict(result) for result in results]})
    else:
        for result in broken:
            _print_broken(app, result, stored[result.directory])
        size = human_size(sum(result.size_bytes for result in results))
        whole = len(results) - len(broken)
        print_line(f"{whole} of {len(results)} outputs are as recorded ({size} digested)")
    return ExitCode.CORRUPT if broken else ExitCode.OK


def _print_broken(app: App, result: Verified, stored: Stored) -> None:
    for mismatch in result.mismatches:
        print_line(f"{mismatch.problem}: {join_url(app.store.url, mismatch.key)} ({mismatch.detail})")
    print_line(f"  commit {result.commit} of {result.directory}; rebuild with: {_rebuild(app, result, stored)}")


def _rebuild(app: App, result: Verified, stored: Stored) -> str:
    """The command that makes an output again; its record tells the script."""
    nodes = {node.directory: node for node in app.graph.nodes} if app.graph is not None else {}
    if result.directory in nodes:
        return app.command("run", "--force", nodes[result.directory].shown)
    argv = stored.served[-1].record.provenance.argv if stored.served else ()
    if not argv or not argv[0].endswith(".py"):
        return f"run --force {result.name}, from the experiment that defines it"
    fields = f" with the fields of {shlex.join(['python', *argv])}" if argv[1:] else ""
    return f"{shlex.join(['python', argv[0], 'run', '--force', result.name])}{fields}"
