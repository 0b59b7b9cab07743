"""The outputs under a root: what each is, who made it, and who uses it."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from marin_storage import Store

from marin_pipe.execution.inventory import Stored, sources
from marin_pipe.execution.labels import list_labels
from marin_pipe.execution.records import Adopted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Output:
    """One current output."""

    name: str
    directory: str
    commit: int
    size_bytes: int
    """Of the data it serves; an adopted output's lies elsewhere."""
    num_files: int
    committed: float
    """By the store's own time, in seconds since the epoch."""
    function: str
    user: str
    host: str
    experiment: str | None
    run: str
    adopted_from: str | None
    users: tuple[str, ...]
    """Directories of the current outputs made from it, or that adopted it."""
    labels: tuple[str, ...]


def list_outputs(store: Store, everything: Iterable[Stored]) -> list[Output]:
    """The current outputs among `everything`, which must be the whole root for `users` to be complete."""
    everything = list(everything)
    for stored in everything:
        for error in stored.damaged.values():
            logger.warning("%s. It is left out: %s", error.what, error.next)
    current = [(stored, stored.current) for stored in everything]
    users: dict[str, set[str]] = {}
    for stored, commit in current:
        if commit is not None:
            for source in sources(store, commit):
                users.setdefault(source, set()).add(stored.directory)
    labels: dict[str, list[str]] = {}
    for label in list_labels(store):
        labels.setdefault(label.directory, []).append(label.label)
    outputs = []
    for stored, commit in current:
        if commit is None:
            continue
        by = commit.record.provenance
        outputs.append(
            Output(
                name=commit.record.name,
                directory=stored.directory,
                commit=commit.number,
                size_bytes=sum(file.size for file in commit.manifest),
                num_files=len(commit.manifest),
                committed=stored.committed[commit.number],
                function=f"{commit.record.module}.{commit.record.function}",
                user=by.user,
                host=by.host,
                experiment=by.experiment,
                run=by.run,
                adopted_from=commit.source_directory if isinstance(commit, Adopted) else None,
                users=tuple(sorted(users.get(stored.directory, set()) - {stored.directory})),
                labels=tuple(labels.get(stored.directory, ())),
            )
        )
    return outputs
