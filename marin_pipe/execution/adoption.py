"""Adoption by hand: an existing output declared equivalent to a step's, with a reason, and its undoing."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from marin_storage import AlreadyExists, Conflict, Store

from marin_pipe.execution import decide
from marin_pipe.execution.describe import describe_step
from marin_pipe.execution.errors import Busy, ConfigurationError, CorruptOutput, MissingOutput, PipelineError
from marin_pipe.execution.graph import Graph, Node
from marin_pipe.execution.inventory import Inventory
from marin_pipe.execution.layout import commit_key, join_url
from marin_pipe.execution.lease import Held, LeaseTimes, Newer, Taken, acquire, release
from marin_pipe.execution.load import revive
from marin_pipe.execution.observe import data_directory, observe
from marin_pipe.execution.records import (
    Adopted,
    Provenance,
    Record,
    Served,
    Withdrawn,
    encode,
)
from marin_pipe.execution.verify import size_mismatches
from marin_pipe.execution.view import View

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The step that is to serve another's output."""

    directory: str
    record: Record
    """What its commit will say, except for the result."""
    annotation: Any = None
    """The function's return annotation; None if only its record is known."""


def target_of_node(store: Store, node: Node, *, provenance: Provenance) -> Target:
    """A step of a graph as the target of an adoption. Its inputs that have outputs are recorded as they are now."""
    view = View(store=store)
    view.look(Graph(nodes=(*node.inputs, node), targets={}))
    step, source = node.step, view.source(node)
    present = tuple(i for i in node.inputs if view.commit(i) is not None)
    digests = {i.step.key: c.output_digest for i in present if (c := view.commit(i)) is not None}
    own = decide.own_arguments(step, digests) if len(present) == len(node.inputs) else None
    record = describe_step(
        step,
        source=source,
        inputs=view.input_uses(replace(node, inputs=present)),
        build_key="" if own is None else decide.build_key(step, own, source_digest=source.digest),
        resources="",
        attempt_count=0,
        provenance=provenance,
    )
    return Target(directory=node.directory, record=record, annotation=step.function.hints.get("return"))


def target_of_output(store: Store, directory: str, *, provenance: Provenance) -> Target:
    """A stored step as the target, from the newest of its records.

    Raises:
        MissingOutput: it was never committed, so that its identity is known to its experiment only.
    """
    stored = Inventory(store=store).look([directory])[directory]
    if not stored.served:
        raise MissingOutput(
            f"{directory} has no record that says what it is",
            why="nothing was ever committed there",
            next="adopt from the experiment that defines the step: `python experiments/x.py adopt STEP SOURCE`",
        )
    record = stored.served[-1].record
    return Target(directory=directory, record=record.model_copy(update={"usage": None, "provenance": provenance}))


def adopt(
    store: Store, target: Target, source: str, *, reason: str, times: LeaseTimes | None = None
) -> tuple[Adopted, bool]:
    """Commit the current output of step directory `source` as the target's.

    Returns:
        The commit, and whether it is new: adopting again what is adopted already writes nothing.

    Raises:
        ConfigurationError: no reason, the step itself, or a result of another type.
        MissingOutput, CorruptOutput: the source has no output, or files of it are missing or short.
        Busy: somebody works on the target, or the source was collected meanwhile.
    """
    if not reason.strip():
        raise ConfigurationError(
            "an adoption needs a reason: it is shown in plans and records", next="add --reason TEXT"
        )
    if source == target.directory:
        raise ConfigurationError(f"{source} cannot adopt its own output")
    commit = observe(store, source).served()
    if commit is None:
        raise MissingOutput(f"{source} has no output to adopt", next="`marin-pipe ls` shows the outputs there are")
    _check_whole(store, source, commit)
    _check_result(store, target, source, commit)
    current = observe(store, target.directory, key=target.record.key).commit
    owner = commit if isinstance(commit, Adopted) else None
    made = {
        "output_digest": commit.output_digest,
        "record": target.record.model_copy(
            update={"result": commit.record.result, "result_type": commit.record.result_type}
        ),
        "manifest": commit.manifest,
        # The data's owner, also when the source itself was adopted: that is what must be kept.
        "source_directory": owner.source_directory if owner is not None else source,
        "source_commit": owner.source_commit if owner is not None else commit.number,
        "source_data": data_directory(source, commit),
        "source_inputs": commit.record.inputs,
        "reason": reason,
    }
    if isinstance(current, Adopted) and (current.source_data, current.reason) == (made["source_data"], reason):
        return current, False
    with lease_for_commit(store, target.directory, times=times) as held:
        adopted = Adopted(number=held.lease.commit, owner=held.lease.owner or "", **made)
        _create(store, target.directory, adopted)
        if _withdrawn_since(store, adopted.source_directory, adopted.source_commit):
            why = f"{adopted.source_directory} was collected meanwhile"
            _create(store, target.directory, Withdrawn(number=adopted.number + 1, owner=adopted.owner, reason=why))
            raise Busy(
                f"{target.directory} does not adopt {source}", why=why, next="rebuild the source, or run the step"
            )
    return adopted, True


def undo_adoption(store: Store, directory: str, *, reason: str, times: LeaseTimes | None = None) -> Withdrawn:
    """Withdraw a step's adopted output: from then on nothing is current there, and the next run rebuilds it.

    Raises:
        ConfigurationError: what the step serves was not adopted.
        Busy: somebody works on it.
    """
    with lease_for_commit(store, directory, times=times) as held:
        current = observe(store, directory).served()
        if not isinstance(current, Adopted):
            what = "serves an output of its own" if current is not None else "serves nothing"
            raise ConfigurationError(
                f"{directory} {what}: there is no adoption to undo",
                next="`run --force STEP` replaces an output" if current is not None else "",
            )
        withdrawn = Withdrawn(number=held.lease.commit, owner=held.lease.owner or "", reason=reason)
        _create(store, directory, withdrawn)
    return withdrawn


@contextmanager
def lease_for_commit(store: Store, directory: str, *, times: LeaseTimes | None = None) -> Iterator[Held]:
    """Hold a step's lease for one commit by hand. Busy if somebody else holds it."""
    seen = observe(store, directory)
    got = acquire(store, directory, seen=seen, times=times or LeaseTimes())
    while isinstance(got, Newer):
        got = acquire(store, directory, seen=got.observation, times=times or LeaseTimes())
    if isinstance(got, Taken):
        raise Busy(
            f"{directory}: {got.lease.holder} works on it",
            next=f"wait, `cancel` it, or, if that process is gone, `unlock STEP --owner {got.lease.owner}`",
        )
    try:
        yield got
    finally:
        try:
            release(store, got)
        except Conflict:
            # Taken over after a long silence of ours: commits decide, not the lease.
            logger.warning("the lease of %s was taken over before its release", directory)


def _create(store: Store, directory: str, commit: Adopted | Withdrawn) -> None:
    try:
        store.create(commit_key(directory, commit.number), encode(commit), durable=True)
    except AlreadyExists as error:
        raise Busy(
            f"{directory}: somebody else made commit {commit.number} meanwhile", next="look at it and try again"
        ) from error


def _withdrawn_since(store: Store, directory: str, commit: int) -> bool:
    stored = Inventory(store=store).look([directory])[directory]
    return any(isinstance(c, Withdrawn) and number > commit for number, c in stored.commits.items())


def _check_whole(store: Store, directory: str, commit: Served) -> None:
    prefix = data_directory(directory, commit)
    present = {entry.key[len(prefix) + 1 :]: entry for entry in store.list_files(prefix)}
    found = size_mismatches(commit.manifest, present)
    if found:
        path, (problem, detail) = min(found.items())
        raise CorruptOutput(
            f"{directory}: {path} is {problem}: {detail}",
            why="an output that is not whole cannot be adopted",
            next=f"rebuild it with `run --force {commit.record.name}`",
        )


def _check_result(store: Store, target: Target, source: str, commit: Served) -> None:
    try:
        if target.annotation is not None:
            revive(
                commit.record.result,
                target.annotation,
                data_url=join_url(store.url, data_directory(source, commit)),
                where=source,
            )
            return
        problem = None if commit.record.result_type == target.record.result_type else "another type"
    except PipelineError as error:
        problem = error.what
    if problem is not None:
        raise ConfigurationError(
            f"{target.directory} cannot adopt {source}: its result does not fit: {problem}",
            why=f"the recorded result is {commit.record.result_type or 'no artifact'}, the step's is "
            f"{getattr(target.annotation, '__name__', None) or target.record.result_type or 'no artifact'}",
            next="adopt an output of a function that returns the same",
        )
