"""What a command is given: `@click.pass_obj def ls(app: App, ...)`."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marin_storage import Store, open_store

from marin_pipe.execution.graph import Graph
from marin_pipe.execution.run import ExperimentInfo, resolve_root


@dataclass(kw_only=True)
class App:
    """One invocation of the command line. Storage is opened, and the graph built, by the first command that asks."""

    program: str
    """How this was started, for messages that name a command: `"python experiments/x.py"` or `"marin-pipe"`."""
    build: Callable[[], Graph] | None = None
    """Builds the experiment's graph; None under `marin-pipe`."""
    experiment: ExperimentInfo | None = None
    config: Any = None
    """The experiment's config object, overrides applied; None if its build() takes none."""
    overrides: tuple[str, ...] = ()
    """Config overrides as `--name=value`."""
    root_flag: str | None = None
    debug: bool = False

    @cached_property
    def root(self) -> str:
        """`--root`, else `MARIN_PIPE_ROOT`, else `./outputs`."""
        return resolve_root(self.root_flag)

    @cached_property
    def store(self) -> Store:
        return open_store(self.root)

    @cached_property
    def graph(self) -> Graph | None:
        """The experiment's graph; None under `marin-pipe`."""
        return self.build() if self.build is not None else None

    def command(self, *words: str) -> str:
        """A command line to show: this program, `words`, the root and the overrides of this invocation, quoted."""
        root = ("--root", self.root_flag) if self.root_flag is not None else ()
        return " ".join([self.program, *(shlex.quote(word) for word in (*words, *root, *self.overrides))])
