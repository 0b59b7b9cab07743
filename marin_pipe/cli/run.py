"""`run`: run what is missing, show it as it happens, and end with what the user needs next."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click
from marin_storage import StorageError

from marin_pipe.cli.context import App, is_new
from marin_pipe.cli.output import on_terminal, print_note
from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.graph import Node
from marin_pipe.execution.report import RunReport
from marin_pipe.execution.run import Launcher, RunSettings
from marin_pipe.execution.selection import Selection

F = TypeVar("F", bound=Callable[..., Any])


def selection_options(function: F) -> F:
    """The flags that `run` and `plan` share."""
    options = [
        click.option("--only", multiple=True, metavar="GLOB", help="Run nothing but these steps. Repeatable."),
        click.option("--upto", multiple=True, metavar="GLOB", help="These steps, and what they need. Repeatable."),
        click.option("--after", multiple=True, metavar="GLOB", help="These steps, and what needs them. Repeatable."),
        click.option("--force", multiple=True, metavar="GLOB", help="Run these even if they are current. Repeatable."),
        click.option("--downstream", is_flag=True, help="With --force: whatever depends on those steps too."),
        click.option(
            "--source",
            type=click.Choice(["warn", "rerun", "ignore"]),
            default="warn",
            show_default=True,
            help="What to do about a cached step whose code has changed.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def launch_options(*, hidden: bool = False) -> Callable[[F], F]:
    """The flags that say how to run. `plan` takes them too, hidden and for nothing, so that it can replace `run`."""
    option = functools.partial(click.option, hidden=hidden, expose_value=not hidden)
    options = [
        option(
            "--keep-going/--fail-fast",
            default=True,
            show_default=True,
            help="After a failure: run what does not depend on it, or start nothing more.",
        ),
        option("--max-concurrent", type=int, metavar="N", help="Steps at a time. Default: one per core."),
        option(
            "--backend",
            type=click.Choice(["local", "inline", "ray"]),
            default="local",
            show_default=True,
            help="Worker processes, this process (for debugging), or a Ray cluster.",
        ),
        option(
            "--verify",
            type=click.Choice(["sizes", "digests"]),
            default="sizes",
            show_default=True,
            help="How inputs are checked before they are read.",
        ),
        option("--no-wait", is_flag=True, help="Exit 4 instead of waiting for steps that another driver works on."),
        option("--single-writer", is_flag=True, help="Accept a storage whose conditional writes lie."),
    ]

    def decorate(function: F) -> F:
        for one in reversed(options):
            function = one(function)
        return function

    return decorate


@click.command("run", help="Run what is missing, resume what was interrupted, reuse what is there.")
@selection_options
@launch_options()
@click.pass_obj
def run_command(
    app: App,
    *,
    only: tuple[str, ...],
    upto: tuple[str, ...],
    after: tuple[str, ...],
    force: tuple[str, ...],
    downstream: bool,
    source: Any,
    keep_going: bool,
    max_concurrent: int | None,
    backend: Any,
    verify: Any,
    no_wait: bool,
    single_writer: bool,
) -> int:
    """The options become `RunSettings`; the report becomes the exit code."""
    if backend == "ray":
        raise ConfigurationError(
            "the ray backend is not available",
            why="it belongs to the extra marin-pipe[ray], and this version does not contain it yet",
            next="use --backend local",
        )
    settings = RunSettings(
        backend=backend,
        max_concurrent=max_concurrent,
        source=source,
        verify=verify,
        keep_going=keep_going,
        no_wait=no_wait,
        single_writer=single_writer,
        selection=Selection(only=only, upto=upto, after=after, force=force, downstream=downstream),
    )
    return int(launch(app, settings).exit_code)


def launch(app: App, settings: RunSettings) -> RunReport:
    """Run with a display, then print the ending."""
    from marin_pipe.cli.ending import print_ending
    from marin_pipe.cli.lines import Lines

    graph = app.graph
    assert graph is not None  # the registry offers `run` to experiment files only
    launcher = Launcher(graph, settings, root=app.root, experiment=app.experiment)
    # Inline bodies may read the terminal (`breakpoint()`), which a table that redraws itself would spoil.
    if on_terminal() and settings.backend != "inline":
        from marin_pipe.cli.live import Live

        display: Lines = Live(graph, app.store)
    else:
        display = Lines(graph)
    with display:
        if is_new(app.store):
            display.tell("root", f"{app.store.url} is new")
        report = launcher.run(display.event)
    display.finish()
    if report.ok:
        move_labels(app, report)
    print_ending(app, report)
    return report


def move_labels(app: App, report: RunReport) -> None:
    """Let `<experiment>/latest/<dict key>` name what this launch served; a label that is right is not written."""
    from marin_pipe.execution.labels import move_label
    from marin_pipe.execution.provenance import user_name

    graph, experiment = app.graph, app.experiment
    assert graph is not None
    assert experiment is not None
    ends = {step.directory: step for step in report.steps}
    user = user_name()

    def move(target: tuple[str, Node]) -> None:
        name, node = target
        end = ends.get(node.directory)
        # Neither what was not part of this launch (--only, --upto) nor an output that lies elsewhere.
        if end is not None and end.commit is not None and node.step.options.pin is None:
            move_label(app.store, f"{experiment.name}/latest/{name}", node.directory, end.commit.number, user=user)

    try:
        app.store.map(move, graph.targets.items())
    except (StorageError, ConfigurationError) as error:
        # The outputs are there, and they are what was asked for.
        print_note(f"note: the labels {experiment.name}/latest/* were not moved: {error}")
