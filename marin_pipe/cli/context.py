"""What a command is given: `@click.pass_obj def ls(app: App, ...)`."""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marin_storage import Store, open_store

from marin_pipe.execution.errors import ConfigurationError
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
    may_begin: bool = True
    """Whether the command makes sense at a root where nothing is yet."""

    @cached_property
    def root(self) -> str:
        """`--root`, else `MARIN_PIPE_ROOT`, else `./outputs`."""
        return resolve_root(self.root_flag)

    @cached_property
    def store(self) -> Store:
        """The storage root. ConfigurationError if nothing is there, unless the command may begin one."""
        store = open_store(self.root)
        if not self.may_begin and is_new(store):
            raise ConfigurationError(
                f"the root {store.url} does not exist",
                why=f"it comes from {self._root_origin}",
                next="check where you are and how it is spelled, or give another --root; the first run makes it",
            )
        return store

    @property
    def _root_origin(self) -> str:
        if self.root_flag is not None:
            return "--root"
        return "MARIN_PIPE_ROOT" if os.environ.get("MARIN_PIPE_ROOT") else "the default, ./outputs"

    @cached_property
    def graph(self) -> Graph | None:
        """The experiment's graph; None under `marin-pipe`."""
        return self.build() if self.build is not None else None

    def command(self, *words: str) -> str:
        """A command line to show: this program, `words`, the root and the overrides of this invocation, quoted."""
        root = ("--root", self.root_flag) if self.root_flag is not None else ()
        return " ".join([self.program, *(shlex.quote(word) for word in (*words, *root, *self.overrides))])


def is_new(store: Store) -> bool:
    """Whether nothing is at a root: a directory on disk is missing, a bucket has no object below the prefix."""
    local = store.local_path("")
    if local is not None:
        return not local.exists()
    listing = store.list_directory("")
    return not listing.files and not listing.directories
