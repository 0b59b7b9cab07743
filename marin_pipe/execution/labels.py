"""Labels: human names for outputs. Each is one compare-and-swap pointer, immutable unless it is moved on purpose."""

import logging
import time

from marin_storage import AlreadyExists, Conflict, NotFound, Store

from marin_pipe.execution.errors import ConfigurationError, RecordError
from marin_pipe.execution.layout import PROJECT, label_file, name_problem, new_nonce
from marin_pipe.execution.records import Label, encode, parse

logger = logging.getLogger(__name__)

LABELS = f"{PROJECT}/labels"


def label_problem(label: str) -> str | None:
    """Why `label` cannot name an output; None if it can."""
    part = next((part for part in label.split("/") if part.endswith(".json")), None)
    if part is not None:
        # Label `a` is the file `a.json`, which a label `a.json/b` would need as a directory.
        return f'its part {part!r} ends in ".json"'
    return name_problem(label)


def move_label(store: Store, label: str, directory: str, commit: int | None, *, user: str, move: bool = True) -> Label:
    """Let `label` name commit `commit` of a step directory; with None, whatever is current there.

    Reads first, and writes nothing if the label is right already. Of two concurrent calls the later one stands.

    Raises:
        ConfigurationError: the name is not allowed, or the label names something else and `move` is False.
    """
    problem = label_problem(label)
    if problem is not None:
        raise ConfigurationError(
            f"{label!r} cannot be a label: {problem}", next='choose a name such as "corpus/2024-clean"'
        )
    key = label_file(label)
    wanted = Label(label=label, directory=directory, commit=commit, nonce=new_nonce(), created=time.time(), user=user)
    while True:
        present = _read_to_move(store, label, move=move)
        try:
            # Durable: what a label names is kept by it alone.
            if present is None:
                store.create(key, encode(wanted), durable=True)
                return wanted
            current, version = present
            if current is not None and (current.directory, current.commit) == (directory, commit):
                return current
            if current is not None and not move:
                raise ConfigurationError(
                    f"label {label} names {_target(current)} already, not {_target(wanted)}",
                    why=f"labels do not change by accident; {current.user} made this one",
                    next="add --move to move it, or choose another name",
                )
            store.replace(key, encode(wanted), version=version, durable=True)
            return wanted
        except (AlreadyExists, Conflict):
            continue  # somebody else moved it meanwhile: look again


def read_label(store: Store, label: str) -> Label | None:
    """The label, or None if there is none of that name. RecordError if it is damaged."""
    present = _read(store, label)
    return present[0] if present is not None else None


def list_labels(store: Store, *, damaged: list[RecordError] | None = None) -> list[Label]:
    """Every label under the root, by name, but for those that cannot be read.

    Args:
        damaged: gets what is wrong with those; by default a warning says it.
    """
    names = [
        entry.key[len(LABELS) + 1 : -len(".json")] for entry in store.list_files(LABELS) if entry.key.endswith(".json")
    ]
    labels: list[Label] = []
    for found in store.map(lambda name: _find(store, name), names):
        if isinstance(found, Label):
            labels.append(found)
        elif found is not None and damaged is not None:
            damaged.append(found)
        elif found is not None:
            logger.warning("%s. It is left out: %s", found.what, found.next)
    return labels


def _find(store: Store, label: str) -> Label | RecordError | None:
    try:
        return read_label(store, label)
    except RecordError as error:
        return error


def _read(store: Store, label: str) -> tuple[Label, str] | None:
    key = label_file(label)
    try:
        blob = store.read(key)
    except NotFound:
        return None
    parsed: Label = parse(Label, blob.data, key=key, fix=f"`marin-pipe label {label} STEP --move` makes it anew")
    return parsed, blob.version


def _read_to_move(store: Store, label: str, *, move: bool) -> tuple[Label | None, str] | None:
    """As `_read`; a damaged label, which may be replaced by `move`, without what it said."""
    try:
        return _read(store, label)
    except RecordError as error:
        if not move:
            raise
        logger.warning("%s. It is made anew.", error.what)
        return None, store.read(label_file(label)).version


def _target(label: Label) -> str:
    return label.directory if label.commit is None else f"{label.directory}, commit {label.commit}"
