"""From what a user types for STEP (a path, a name, a key prefix or a label) to one step directory."""

import difflib
import re
import time
from dataclasses import dataclass

from marin_storage import Store

from marin_pipe.execution.errors import ConfigurationError, MissingOutput
from marin_pipe.execution.graph import Graph, Node
from marin_pipe.execution.history import History, step_directories
from marin_pipe.execution.inventory import directory_of
from marin_pipe.execution.labels import label_problem, read_label
from marin_pipe.execution.layout import KEY_DIGITS, STEP_DIRECTORY, commit_number, display_name, name_problem

_KEY = re.compile(r"[0-9a-f]{4,64}\Z")
_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Found:
    """The step that a text stands for."""

    directory: str
    commit: int | None = None
    """The commit a label names; None: whatever is current."""
    node: Node | None = None
    """The graph's step of that directory."""

    @property
    def name(self) -> str:
        return display_name(self.directory)


def find_step(store: Store, text: str, *, graph: Graph | None = None) -> Found:
    """Resolve `text`, the first of these that fits: a step of `graph` by its name or target, a step directory (or a
    path or URL inside one), the display name of stored outputs, the beginning of a key (4 digits or more), a label.

    A step of the graph need not have an output.

    Raises:
        MissingOutput: nothing has that name.
        ConfigurationError: several outputs fit; they are listed.
    """
    nodes = {node.directory: node for node in graph.nodes} if graph is not None else {}
    own = _in_graph(graph, text) if graph is not None else []
    directories = own or _stored(store, text, nodes)
    if len(directories) == 1:
        return Found(directory=directories[0], node=nodes.get(directories[0]))
    if directories:
        raise _ambiguous(store, text, directories, graph)
    if label_problem(text) is None:
        label = read_label(store, text)
        if label is not None:
            return Found(directory=label.directory, commit=label.commit, node=nodes.get(label.directory))
    raise _missing(store, text, graph)


def _in_graph(graph: Graph, text: str) -> list[str]:
    """Steps of the graph: by a display name that only one has, else by target name, directory or key."""
    named = [node.directory for node in graph.nodes if node.name == text]
    if len(named) == 1:
        return named
    if text in graph.targets:
        return [graph.targets[text].directory]
    if named:
        return named
    if text in {node.directory for node in graph.nodes}:
        return [text]
    return [n.directory for n in graph.nodes if _KEY.match(text) and n.step.key.startswith(text)]


def _stored(store: Store, text: str, known: dict[str, Node]) -> list[str]:
    directory = directory_of(store, text)
    if directory is not None:
        exists = directory in known or _exists(store, directory)
        return [directory] if exists else []
    if name_problem(text) is None:
        named = [d for d in History(store=store).outputs(text) if display_name(d) == text]
        if named:
            return named
    if _KEY.match(text):
        return [d for d in step_directories(store) if d[-KEY_DIGITS:].startswith(text[:KEY_DIGITS])]
    return []


def _exists(store: Store, directory: str) -> bool:
    listing = store.list_directory(directory)
    return bool(listing.files or listing.directories)


def _ambiguous(store: Store, text: str, directories: list[str], graph: Graph | None) -> ConfigurationError:
    ages = dict(zip(directories, store.map(lambda directory: _committed(store, directory), directories), strict=True))
    newest = sorted(directories, key=lambda directory: -ages[directory])
    targets = {node.directory: f"target {name}, " for name, node in graph.targets.items()} if graph is not None else {}
    shown = [f"{found} ({targets.get(found, '')}{_when(ages[found])})" for found in newest[:_SHOWN]]
    more = f", and {len(newest) - _SHOWN} more" if len(newest) > _SHOWN else ""
    return ConfigurationError(
        f"{text!r} stands for {len(directories)} outputs",
        why=f"newest first: {', '.join(shown)}{more}",
        next=f"name one of them, such as {newest[0]}, or the beginning of its key, {newest[0][-KEY_DIGITS:]}",
    )


def _committed(store: Store, directory: str) -> float:
    """When the newest commit was written, by the store's time; 0 if there is none."""
    files = store.list_directory(directory).files
    return max((e.modified for e in files if commit_number(e.key.rpartition("/")[2]) is not None), default=0.0)


def _when(committed: float) -> str:
    return time.strftime("committed %Y-%m-%d %H:%M UTC", time.gmtime(committed)) if committed else "no commit"


def _missing(store: Store, text: str, graph: Graph | None) -> MissingOutput:
    names = {display_name(directory) for directory in step_directories(store)}
    if graph is not None:
        names.update(node.name for node in graph.nodes)
        names.update(graph.targets)
    near = difflib.get_close_matches(text, sorted(names), n=3)
    key = STEP_DIRECTORY.match(text.rpartition("/")[2])
    return MissingOutput(
        f"there is no {'output' if key else 'step or output'} {text!r} in {store.url}",
        why="it is no name, path, key prefix (4 digits or more) or label there",
        next=f"did you mean {', '.join(near)}?" if near else "`marin-pipe ls` shows what is there",
    )
