"""`gc`: outputs that nothing kept reaches, and what attempts left behind."""

import dataclasses
import re

import click
from marin_storage import ensure_writable

from marin_pipe.cli.context import App
from marin_pipe.cli.output import human_size, print_json, print_line, print_table
from marin_pipe.execution.errors import ConfigurationError, ExitCode
from marin_pipe.execution.gc import GcPolicy, GcReport, collect
from marin_pipe.execution.layout import STORE_FILE
from marin_pipe.execution.provenance import user_name

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?P<count>[0-9]+(?:\.[0-9]+)?)(?P<unit>[smhdw])\Z")


@click.command(
    "gc", help="Find outputs that nothing kept reaches, and leftovers of attempts. Removes them with --delete."
)
@click.option("--keep-runs", type=click.IntRange(min=0), default=5, show_default=True, metavar="N")
@click.option("--older-than", default="30d", show_default=True, metavar="AGE", help="Keep launches younger than this.")
@click.option("--delete", is_flag=True, help="Remove them; without it nothing is written.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def gc(app: App, *, keep_runs: int, older_than: str, delete: bool, as_json: bool) -> int:
    policy = GcPolicy(keep_runs=keep_runs, older_than_s=parse_age(older_than))
    if delete:
        ensure_writable(app.store, STORE_FILE)
    report = collect(app.store, policy, delete=delete, user=user_name())
    if as_json:
        print_json({**dataclasses.asdict(report), "size_bytes": report.size_bytes})
    else:
        _print_report(app, report, flags=("--keep-runs", str(keep_runs), "--older-than", older_than))
    return ExitCode.OK


def parse_age(text: str) -> float:
    """Seconds in `90s`, `12h`, `30d`, `2w`; plain `0` is allowed."""
    match = _DURATION.match(text)
    if match is None and text != "0":
        raise ConfigurationError(
            f"--older-than {text!r} is no age", next="write a number and a unit: 90s, 12h, 30d, 2w"
        )
    return float(match["count"]) * _UNITS_S[match["unit"]] if match is not None else 0.0


def _print_report(app: App, report: GcReport, *, flags: tuple[str, ...]) -> None:
    rows = [(r.kind, r.key, human_size(r.size_bytes), str(r.num_files), r.why) for r in report.removals]
    if rows:
        print_table(("WHAT", "WHERE", "SIZE", "FILES", "WHY"), rows, right=("SIZE", "FILES"))
    for left in report.left:
        print_line(f"left: {left.directory}: {left.why}")
    verb = "removed" if report.deleted else "would remove"
    launches = f" and {len(report.launches)} launch records" if report.launches else ""
    print_line(
        f"{verb} {human_size(report.size_bytes)} in {len(report.removals)} places{launches}; "
        f"{report.num_kept} outputs are kept"
    )
    if not report.deleted and (report.removals or report.launches):
        print_line(f"nothing was deleted: {app.command('gc', *flags, '--delete')} does it")
