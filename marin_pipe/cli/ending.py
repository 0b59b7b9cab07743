"""The last lines of a launch: failures with what to do about them, blocked steps by cause, counts, and the targets."""

import json
from collections import defaultdict

from marin_pipe.cli.context import App
from marin_pipe.cli.output import human_duration, print_line, show_path
from marin_pipe.execution.graph import Graph, Node
from marin_pipe.execution.pin import join_url
from marin_pipe.execution.report import RunReport, Status, StepReport

_TARGETS_SHOWN = 20
_NAMES_SHOWN = 5
_LOG_LINES = 20
_RESULT_SHOWN = 80
"""Characters."""
_UNFINISHED: tuple[Status, ...] = ("failed", "lost", "preempted")


def print_ending(app: App, report: RunReport) -> None:
    """Everything after the last event, most important last."""
    graph = app.graph
    assert graph is not None
    ends = {step.directory: step for step in report.steps}
    for step in report.steps:
        if step.failure is not None and step.status in _UNFINISHED:
            _print_failure(app, report, step)
    _print_interrupted(app, report)
    _print_blocked(graph, ends)
    print_line(f"{_counts(report)} in {human_duration(report.duration_s)}")
    if report.ok:
        _print_targets(app, graph, ends)


def _print_failure(app: App, report: RunReport, step: StepReport) -> None:
    failure = step.failure
    assert failure is not None
    tries = f" after {failure.attempts} tries" if failure.attempts > 1 else ""
    print_line(f"\n{step.status}: {step.name}{tries}")
    print_line(_indent(failure.traceback.rstrip() or failure.message))
    if failure.log_tail:
        print_line("  last log lines:")
        for line in failure.log_tail[-_LOG_LINES:]:
            print_line(f"    | {line}")
    if failure.log_directory:
        print_line(f"  log:    {show_path(join_url(report.root, failure.log_directory))}")
    print_line(f"  resume: {app.command('run')}")
    print_line(f"  debug:  {app.command('run', '--only', step.name, '--backend', 'inline')}")


def _print_interrupted(app: App, report: RunReport) -> None:
    names = [step.name for step in report.steps if step.status == "interrupted"]
    if names or report.exit_code == 130:
        print_line(f"\ninterrupted{': ' if names else ''}{_some(names)}")
        print_line(f"  resume: {app.command('run')}")


def _print_blocked(graph: Graph, ends: dict[str, StepReport]) -> None:
    """Each cause once, with the number of steps it blocks."""
    causes: dict[Node, frozenset[str]] = {}
    groups: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:  # inputs come first
        end = ends.get(node.directory)
        if end is None or end.status in ("cached", "built", "adopted"):
            causes[node] = frozenset()
        elif end.status != "blocked":
            causes[node] = frozenset((node.name,))
        else:
            upstream = frozenset().union(*(causes[i] for i in node.inputs))
            causes[node] = upstream or frozenset((node.name,))
            groups[f"because of {_some(sorted(upstream))}" if upstream else end.why].append(node.name)
    if groups:
        print_line()
    for why, names in groups.items():
        count = f"{len(names)} steps" if len(names) > 1 else "1 step"
        print_line(f"blocked: {count} {why} ({_some(names)})")


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
        return f"(no files) {result if len(result) <= _RESULT_SHOWN else result[: _RESULT_SHOWN - 3] + '...'}"
    return show_path(join_url(end.path, files[0].path) if len(files) == 1 else end.path)


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())
