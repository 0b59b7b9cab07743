"""What `[GLOB]` and STEP stand for on the command line."""

import fnmatch

from marin_pipe.cli.context import App
from marin_pipe.execution.finding import Found, find_step
from marin_pipe.execution.history import step_directories
from marin_pipe.execution.layout import display_name


def find(app: App, text: str) -> Found:
    """The step that a user means by STEP."""
    return find_step(app.store, text, graph=app.graph)


def matching_directories(app: App, pattern: str | None) -> list[str]:
    """Step directories whose name or directory matches `pattern`; one that matches nothing is taken as a STEP.

    Without a pattern: the steps of the experiment, or everything under the root.
    """
    graph = app.graph
    if pattern is None:
        return step_directories(app.store) if graph is None else [node.directory for node in graph.nodes]
    own = [node.directory for node in graph.nodes] if graph is not None else []
    known = sorted({*step_directories(app.store), *own})
    found = [
        directory
        for directory in known
        if fnmatch.fnmatchcase(display_name(directory), pattern) or fnmatch.fnmatchcase(directory, pattern)
    ]
    return found or [find(app, pattern).directory]
