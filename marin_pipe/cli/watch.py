"""`status`, `logs`, `cancel`: steps that run, and how they ended, from storage alone."""

import getpass
import socket
from collections.abc import Iterator
from typing import Any

import click
from marin_storage import Store, ensure_writable

from marin_pipe.cli.context import App
from marin_pipe.cli.output import cut, human_duration, print_json, print_line, print_note, print_table, shorten
from marin_pipe.cli.printable import printable
from marin_pipe.cli.select import find, matching_directories
from marin_pipe.execution.errors import ConfigurationError, ExitCode, MissingOutput
from marin_pipe.execution.layout import STORE_FILE, attempt_directory, display_name
from marin_pipe.execution.logs import LogLine, follow_log, read_log
from marin_pipe.execution.observe import list_attempts, observe, read_ended, read_lease
from marin_pipe.execution.owners import CANCEL_WAIT_S
from marin_pipe.execution.owners import cancel as ask_to_stop
from marin_pipe.execution.records import Adopted, Ended, Lease, Progress
from marin_pipe.execution.status import StepStatus, graph_statuses, step_statuses

_TRACEBACK_LINES = 12
"""Shown by `status`, of each step that failed; `logs` shows the whole."""
_CANCELLED = {
    "stopped": "stopped",
    "finished": "finished the step before it saw the request",
    "failed": "failed before it saw the request; `logs` says why",
    "gone": "is gone: its process has ended",
    "asked": "has not answered yet; `status` shows when it has",
}


@click.command("status", help="State, owner and progress of the experiment's steps, or of all steps under the root.")
@click.argument("glob", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def status(app: App, *, glob: str | None, as_json: bool) -> int:
    directories = matching_directories(app, glob)
    known = graph_statuses(app.store, app.graph) if app.graph is not None else {}
    others = [directory for directory in directories if directory not in known]
    known.update((found.directory, found) for found in step_statuses(app.store, others))
    found = [known[directory] for directory in directories]
    if as_json:
        print_json({"root": app.store.url, "steps": [_status_json(one) for one in found]})
        return ExitCode.OK
    name = {one.directory: one.name for one in found}
    if app.graph is not None:
        name.update((node.directory, node.shown) for node in app.graph.nodes)
    rows = [
        (name[one.directory], one.state, _owner(one), _progress(one.progress), _what(one), one.directory)
        for one in found
    ]
    print_table(("STEP", "STATE", "OWNER", "PROGRESS", "NOTE", "OUTPUT"), rows)
    for one in found:
        if one.ended is not None:
            # Without an experiment a name may stand for many outputs.
            _print_end(app, one, step=name[one.directory] if app.graph is not None else one.directory)
    return ExitCode.OK


def _owner(status: StepStatus) -> str:
    return _holder(status.lease) if status.lease is not None else ""


def _progress(progress: Progress | None) -> str:
    if progress is None:
        return ""
    share = f"/{progress.total:g} ({100 * progress.done / progress.total:.0f}%)" if progress.total else ""
    return printable(f"{progress.done:g}{share} {progress.unit} {progress.message}".strip())


def _what(status: StepStatus) -> str:
    if status.ended is not None and not status.note:
        return printable(_error(status.ended))
    return status.note


def _error(ended: Ended) -> str:
    """The type of an error, and the beginning of its first line."""
    first = ended.message.strip().partition("\n")[0]
    return f"{ended.error_type}: {shorten(first)}" if first else ended.error_type


def _print_end(app: App, status: StepStatus, *, step: str) -> None:
    """The end of an attempt with the commands that go on from there; `step` is how they name it."""
    ended = status.ended
    assert ended is not None
    told = _traceback(ended)
    print_line(f"\n{_outcome(status.name, ended)}")
    for line in (["..."] if len(told) > _TRACEBACK_LINES else []) + told[-_TRACEBACK_LINES:]:
        print_line(f"  {cut(line)}")
    for line in ended.log_tail:
        print_line(f"  | {cut(printable(line))}")
    print_line(f"  all of it: {app.command('logs', step)}")
    if status.lease is not None:
        print_line(f"  its lease: {app.command('unlock', step, '--owner', status.lease.owner or '')}")


def _outcome(name: str, ended: Ended) -> str:
    took = human_duration(max(0.0, ended.ended - ended.started))
    tries = f", {ended.attempt_count} tries" if ended.attempt_count > 1 else ""
    return f"{name}: attempt {ended.attempt} {ended.outcome} on {ended.host} after {took}{tries}"


def _traceback(ended: Ended) -> list[str]:
    return [printable(line) for line in (ended.traceback.strip() or _error(ended)).splitlines()]


def _status_json(status: StepStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "directory": status.directory,
        "state": status.state,
        "note": status.note,
        "commit": status.commit,
        "attempt": status.attempt,
        "owner": status.lease.model_dump(mode="json") if status.lease is not None else None,
        "beat_age_s": status.beat_age_s,
        "progress": status.progress.model_dump(mode="json") if status.progress is not None else None,
        "ended": status.ended.model_dump(mode="json") if status.ended is not None else None,
    }


@click.command("logs", help="Print the log of STEP: of the attempt that runs, made the output, or was the last.")
@click.argument("step")
@click.option("-f", "--follow", is_flag=True, help="Go on until the attempt ends.")
@click.option("--attempt", metavar="N", help="Another attempt: its number, or the name of its directory.")
@click.pass_obj
def logs(app: App, *, step: str, follow: bool, attempt: str | None) -> int:
    found = find(app, step)
    directory, name = _attempt(app.store, found.directory, attempt)
    place = attempt_directory(directory, name)
    if follow:

        def finished() -> bool:
            lease = read_lease(app.store, directory)
            return lease is None or lease[0].owner is None or not _is_of(name, lease[0].epoch)

        lines: Iterator[LogLine] = follow_log(app.store, place, finished=finished)
    else:
        lines = read_log(app.store, place)
    nothing = True
    beginning = ""
    for line in lines:
        nothing = False
        if line.more:
            beginning += line.text
            continue
        print_line(printable(beginning + line.text))
        beginning = ""
    if beginning:
        print_line(printable(beginning))
    if nothing:
        print_note(f"{place} printed nothing")
    ended = read_ended(app.store, directory, name)
    if ended is not None:
        for text in (_outcome(found.name, ended), *_traceback(ended)):
            print_line(text)
    return ExitCode.OK


def _is_of(attempt: str, epoch: int) -> bool:
    return int(attempt.partition("-")[0]) == epoch


def _attempt(store: Store, directory: str, wanted: str | None) -> tuple[str, str]:
    """The step directory and attempt whose log is meant; for an adopted output, those that made it."""
    if wanted is None:
        known = step_statuses(store, [directory])[0]
        if known.attempt is not None:
            return directory, known.attempt
        commit = observe(store, directory).served()
        if isinstance(commit, Adopted):
            return commit.source_directory, commit.source_data.split("/")[-2]
        raise MissingOutput(
            f"{directory} has no attempt whose log could be shown", next="`status` shows what it is doing"
        )
    attempts = list_attempts(store, directory)
    named = [name for name in attempts if name == wanted or (wanted.isdecimal() and _is_of(name, int(wanted)))]
    if not named:
        raise ConfigurationError(
            f"{display_name(directory)} has no attempt {wanted!r}",
            next=f"its attempts are: {', '.join(attempts) or 'none'}",
        )
    return directory, named[-1]


@click.command("cancel", help="Ask whoever works on STEP to stop, and wait a while for that.")
@click.argument("step")
@click.pass_obj
def cancel(app: App, *, step: str) -> int:
    found = find(app, step)
    if observe(app.store, found.directory).has_lease:
        ensure_writable(app.store, STORE_FILE)

    def waiting(lease: Lease) -> None:
        print_note(f"asked {_holder(lease)} to stop; waiting up to {CANCEL_WAIT_S:.0f} s")

    by = f"{getpass.getuser()} on {socket.gethostname()}"
    cancelled = ask_to_stop(app.store, found.directory, by=by, on_asked=waiting)
    if cancelled.lease is None:
        print_line(f"{found.name}: nobody works on it")
        return ExitCode.OK
    print_line(f"{found.name}: {_holder(cancelled.lease)} {_CANCELLED[cancelled.outcome]}")
    return ExitCode.BUSY if cancelled.outcome == "asked" else ExitCode.OK


def _holder(lease: Lease) -> str:
    return f"{lease.host}, pid {lease.pid}"
