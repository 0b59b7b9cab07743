"""`status`, `logs`, `cancel`: steps that run, and how they ended, from storage alone."""

import getpass
import socket
from collections.abc import Iterator
from typing import Any

import click
from marin_storage import Store, ensure_writable

from marin_pipe.cli.context import App
from marin_pipe.cli.output import human_duration, print_json, print_line, print_note, print_table
from marin_pipe.cli.printable import printable
from marin_pipe.cli.select import find, matching_directories
from marin_pipe.execution.errors import ConfigurationError, ExitCode, MissingOutput
from marin_pipe.execution.inventory import display_name
from marin_pipe.execution.layout import STORE_FILE, attempt_directory
from marin_pipe.execution.logs import LogLine, follow_log, read_log
from marin_pipe.execution.observe import list_attempts, observe, read_lease
from marin_pipe.execution.owners import cancel as ask_to_stop
from marin_pipe.execution.records import Adopted, Progress
from marin_pipe.execution.status import StepStatus, graph_statuses, step_statuses


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
    rows = [(one.name, one.state, _owner(one), _progress(one.progress), _what(one), one.directory) for one in found]
    print_table(("STEP", "STATE", "OWNER", "PROGRESS", "NOTE", "OUTPUT"), rows)
    for one in found:
        if one.ended is not None:
            _print_end(app, one)
    return ExitCode.OK


def _owner(status: StepStatus) -> str:
    return f"{status.lease.host}, pid {status.lease.pid}" if status.lease is not None else ""


def _progress(progress: Progress | None) -> str:
    if progress is None:
        return ""
    share = f"/{progress.total:g} ({100 * progress.done / progress.total:.0f}%)" if progress.total else ""
    return printable(f"{progress.done:g}{share} {progress.unit} {progress.message}".strip())


def _what(status: StepStatus) -> str:
    if status.ended is not None and not status.note:
        return printable(f"{status.ended.error_type}: {_first_line(status.ended.message)}")
    return status.note


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _print_end(app: App, status: StepStatus) -> None:
    ended = status.ended
    assert ended is not None
    print_line()
    took = human_duration(max(0.0, ended.ended - ended.started))
    print_line(f"{status.name}: {ended.outcome} on {ended.host} after {took} (try {ended.attempt_count})")
    for line in ended.log_tail or (f"{ended.error_type}: {ended.message}".splitlines() if ended.message else ()):
        print_line(f"  {printable(line)}")
    print_line(f"  all of it: {app.command('logs', status.directory)}")
    if status.lease is not None:
        print_line(f"  its lease: {app.command('unlock', status.directory, '--owner', status.lease.owner or '')}")


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
        print_note(f"the log of {place} is empty")
    return ExitCode.OK


def _is_of(attempt: str, epoch: int) -> bool:
    return int(attempt.partition("-")[0]) == epoch


def _attempt(store: Store, directory: str, wanted: str | None) -> tuple[str, str]:
    """The step directory and attempt whose log is meant; for an adopted output, those that made it."""
    if wanted is None:
        known = step_statuses(store, [directory])[0]
        if known.attempt is not None:
            return directory, known.attempt
        commit = observe(store, directory).commit
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
    cancelled = ask_to_stop(app.store, found.directory, by=f"{getpass.getuser()} on {socket.gethostname()}")
    if cancelled.lease is None:
        print_line(f"{found.name}: nobody works on it")
        return ExitCode.OK
    owner = f"{cancelled.lease.host}, pid {cancelled.lease.pid}"
    if cancelled.outcome == "stopped":
        print_line(f"{found.name}: {owner} stopped")
        return ExitCode.OK
    print_line(f"{found.name}: {owner} was asked to stop and has not answered yet; `status` shows when it has")
    return ExitCode.BUSY
