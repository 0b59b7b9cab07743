"""The last lines of a launch: failures with what to do about them, blocked steps by cause, counts, and the targets."""

import json
from collections import defaultdict

from marin_pipe.cli.context import App
from marin_pipe.cli.output import cut, human_duration, print_line, shorten, show_path
from marin_pipe.cli.printable import printable
from marin_pipe.execution.errors import ExitCode
from marin_pipe.execution.graph import Graph, Node
from marin_pipe.execution.layout import join_url
from marin_pipe.execution.report import RunReport, Status, StepReport

_TARGETS_SHOWN = 20
_NAMES_SHOWN = 5
_FAILURES_SHOWN = 5
"""In full, that is; each of the others has a line."""
_CAUSES_SHOWN = 5
_LOG_LINES = 20
_LINE_CHARACTERS = 1000
"""Of a traceback; `logs` shows it whole."""
_RESULT_CHARACTERS = 80
_UNFINISHED: tuple[Status, ...] = ("failed", "lost", "preempted")


def print_ending(app: App, report: RunReport) -> None:
    """Everything after the last event, most important last."""
    graph = app.graph
    assert graph is not None
    ends = {step.directory: step for step in report.steps}
    shown = {node.directory: node.shown for node in graph.nodes}
    failed = [step for step in report.steps if step.failure is not None and step.status in _UNFINISHED]
    for step in failed[:_FAILURES_SHOWN]:
        _print_failure(app, step, name=shown[step.directory])
    if failed[_FAILURES_SHOWN:]:
        print_line()
        for step in failed[_FAILURES_SHOWN:]:
            print_line(f"{step.status}: {shown[step.directory]}: {shorten(step.why)}")
    _print_blocked(graph, ends)
    interrupted = [shown[step.directory] for step in report.steps if step.status == "interrupted"]
    is_interrupted = bool(interrupted) or report.exit_code == ExitCode.INTERRUPTED
    if is_interrupted:
        print_line(f"\ninterrupted{': ' if interrupted else ''}{_some(interrupted)}")
    if failed or is_interrupted:
        print_line(f"\nresume: {app.command('run')}")
    print_line(f"{_counts(report)} in {human_duration(report.duration_s)}")
    if report.ok:
        _print_targets(app, graph, ends)


def _print_failure(app: App, step: StepReport, *, name: str) -> None:
    failure = step.failure
    assert failure is not None
    tries = f" after {failure.attempts} tries" if failure.attempts > 1 else ""
    print_line(f"\n{step.status}: {name}{tries}")
    # `logs` shows the traceback in any case.
    told = f"{failure.error_type}: {failure.message}" if failure.explained else failure.traceback or failure.message
    for line in told.rstrip().splitlines():
        print_line(f"  {cut(printable(line), _LINE_CHARACTERS)}" if line else "")
    if failure.log_tail:
        print_line("  last log lines:")
        for line in failure.log_tail[-_LOG_LINES:]:
            print_line(f"    | {printable(line)}")
    if failure.attempt:
        print_line(f"  logs:  {app.command('logs', name)}")
    print_line(f"  debug: {app.command('run', '--only', name, '--backend', 'inline')}")


def _print_blocked(graph: Graph, ends: dict[str, StepReport]) -> None:
    """Each cause once, with the number of steps it blocks."""
    causes: dict[Node, frozenset[str]] = {}
    groups: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:  # inputs come first
        end = ends.get(node.directory)
        if end is None or end.status in ("cached", "built", "adopted"):
            causes[node] = frozenset()
        elif end.status != "blocked":
            causes[node] = frozenset((node.shown,))
        else:
            upstream = frozenset().union(*(causes[i] for i in node.inputs))
            causes[node] = upstream or frozenset((node.shown,))
            groups[f"because of {_some(sorted(upstream))}" if upstream else end.why].append(node.shown)
    if groups:
        print_line()
    for why, names in list(groups.items())[:_CAUSES_SHOWN]:
        print_line(f"blocked: {_steps(len(names))} {shorten(why)} ({_some(names)})")
    others = [name for names in list(groups.values())[_CAUSES_SHOWN:] for name in names]
    if others:
        print_line(f"blocked: {_steps(len(others))} for {len(groups) - _CAUSES_SHOWN} other causes ({_some(others)})")


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _counts(report: RunReport) -> str:
    order: tuple[Status, ...] = (
        "cached", "built", "adopted", "failed", "lost", "preempted", "interrupted", "blocked", "not run",
    )  # fmt: skip
    return ", ".join(f"{n} {status}" for status in order if (n := report.count(status))) or "nothing to do"


def _print_targets(app: App, graph: Graph, ends: dict[str, StepReport]) -> None:
    served = {name: ends[node.directory] for name, node in graph.targets.items() if node.directory in ends}
    shown = [(name, _place(end)) for name, end in served.items()]
    width = max((len(name) for name, _ in shown[:_TARGETS_SHOWN]), default=0)
    for name, path in shown[:_TARGETS_SHOWN]:
        print_line(f"  {name.ljust(width)}  {path}")
    if len(shown) > _TARGETS_SHOWN:
        print_line(f"  and {len(shown) - _TARGETS_SHOWN} more: {app.command('plan')}")


def _place(end: StepReport) -> str:
    """The data directory, or the file in it if there is one only; the result of a step that wrote no file."""
    if end.path is None or end.commit is None:
        return ""
    files = end.commit.manifest
    if not files:
        result = json.dumps(end.commit.record.result, ensure_ascii=False)
        return f"(no files) {cut(result, _RESULT_CHARACTERS)}"
    return show_path(join_url(end.path, files[0].path) if len(files) == 1 else end.path)


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
