"""`label`, `adopt`, `unlock`: what people decide about outputs and leases."""

import click
from marin_storage import ensure_writable

from marin_pipe.cli.context import App
from marin_pipe.cli.output import print_line
from marin_pipe.cli.select import find
from marin_pipe.execution import provenance
from marin_pipe.execution.adoption import adopt as adopt_output
from marin_pipe.execution.adoption import target_of_node, target_of_output, undo_adoption
from marin_pipe.execution.errors import ConfigurationError, ExitCode, MissingOutput
from marin_pipe.execution.labels import move_label
from marin_pipe.execution.layout import STORE_FILE
from marin_pipe.execution.observe import observe
from marin_pipe.execution.owners import unlock as free_lease
from marin_pipe.execution.secret import Redactor


@click.command("label", help="Let NAME stand for the current output of STEP.")
@click.argument("name")
@click.argument("step")
@click.option("--move", is_flag=True, help="Move a label that names something else.")
@click.pass_obj
def label(app: App, *, name: str, step: str, move: bool) -> int:
    found = find(app, step)
    current = observe(app.store, found.directory).served() if found.commit is None else None
    number = found.commit or (current.number if current is not None else None)
    if number is None:
        raise MissingOutput(f"{found.directory} has no output to label", next="run it first")
    ensure_writable(app.store, STORE_FILE)
    made = move_label(app.store, name, found.directory, number, user=provenance.user_name(), move=move)
    print_line(f"{made.label} names commit {made.commit} of {made.directory}")
    return ExitCode.OK


@click.command("adopt", help="Declare the output of SOURCE equivalent to that of STEP, or --undo that.")
@click.argument("step")
@click.argument("source", required=False, metavar="SOURCE")
@click.option("--reason", help="Why they are equivalent: shown in plans and kept in the record.")
@click.option("--undo", is_flag=True, help="Withdraw an adopted output; the next run rebuilds it.")
@click.pass_obj
def adopt(app: App, *, step: str, source: str | None, reason: str | None, undo: bool) -> int:
    found = find(app, step)
    if undo == (source is not None):
        raise ConfigurationError(
            "adopt takes STEP and SOURCE, or STEP and --undo",
            next=f"for example {app.command('adopt', step, 'SOURCE', '--reason', 'equal by construction')}",
        )
    user = provenance.user_name()
    if undo:
        ensure_writable(app.store, STORE_FILE)
        why = f"adoption undone by {user}" + (f": {reason}" if reason else "")
        withdrawn = undo_adoption(app.store, found.directory, reason=why)
        print_line(f"{found.directory}: commit {withdrawn.number} withdraws what was adopted; the next run rebuilds it")
        return ExitCode.OK
    if not reason:
        raise ConfigurationError(
            "an adoption needs a reason: it is shown in plans and records", next="add --reason TEXT"
        )
    assert source is not None  # not an undo: checked above
    other = find(app, source)
    ensure_writable(app.store, STORE_FILE)
    facts = provenance.collect(
        app.store,
        run="adopt",
        experiment=app.experiment.name if app.experiment is not None else None,
        redactor=Redactor.from_environment(),
    )
    target = (
        target_of_node(app.store, found.node, provenance=facts)
        if found.node is not None
        else target_of_output(app.store, found.directory, provenance=facts)
    )
    commit, is_new = adopt_output(app.store, target, other.directory, reason=reason)
    verb = "adopts" if is_new else "has adopted already"
    print_line(f"{found.directory} {verb} {commit.source_directory}, commit {commit.source_commit}: {commit.reason}")
    return ExitCode.OK


@click.command("unlock", help="Free the lease of STEP from an owner that is gone.")
@click.argument("step")
@click.option("--owner", required=True, metavar="NONCE", help="The owner, as `status --json` shows it.")
@click.pass_obj
def unlock(app: App, *, step: str, owner: str) -> int:
    found = find(app, step)
    ensure_writable(app.store, STORE_FILE)
    lease = free_lease(app.store, found.directory, owner=owner)
    print_line(f"{found.directory}: freed from {lease.holder}")
    return ExitCode.OK
