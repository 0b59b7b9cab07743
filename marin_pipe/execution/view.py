"""A launch's picture of storage: what was observed of every step, the source of its function, and its commit's data.

Both the plan and the run look through it, so that they cannot disagree.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from marin_storage import Store

from marin_pipe.execution import decide
from marin_pipe.execution.backends.base import LoadedInput
from marin_pipe.execution.errors import CorruptOutput, RecordError
from marin_pipe.execution.graph import Graph, Node
from marin_pipe.execution.handle import SourcePolicy, StepPath
from marin_pipe.execution.layout import join_url
from marin_pipe.execution.manifest import size_problem, sizes_below
from marin_pipe.execution.observe import NOTHING, Observation, data_directory, observe
from marin_pipe.execution.pin import pin_address, resolve_pin
from marin_pipe.execution.records import InputUse, Served
from marin_pipe.execution.source import Fingerprint, fingerprint


@contextmanager
def _no_collection() -> Iterator[None]:
    """Records are read by the thousand and none is garbage: looking through them again and again costs a third more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(kw_only=True)
class View:
    """Observations by node, updated as a run commits."""

    store: Store
    source_policy: SourcePolicy = "warn"
    observations: dict[Node, Observation] = field(default_factory=dict)
    _pinned_data: dict[Node, str] = field(default_factory=dict)
    _sources: dict[tuple[Callable[..., object], ...], Fingerprint] = field(default_factory=dict)

    def look(self, graph: Graph) -> None:
        """Observe every step: one listing and one read each, many at a time on a remote store."""
        plain = [node for node in graph.nodes if node.step.options.pin is None]
        # A root that holds nothing answers for all its steps at once.
        empty = not self.store.list_directory("").directories
        seen: Iterable[Observation]
        if empty:
            seen = [NOTHING] * len(plain)
        else:
            with _no_collection():
                seen = self.store.map(lambda node: observe(self.store, node.directory, key=node.step.key), plain)
        self.observations.update(zip(plain, seen, strict=True))
        for node in graph.nodes:
            pin = node.step.options.pin
            if pin is not None:
                commit, data = resolve_pin(node.step, pin)
                self.observations[node] = Observation(highest=commit.number, commit=commit)
                self._pinned_data[node] = data

    def commit(self, node: Node) -> Served | None:
        return self.observations[node].commit

    def damage(self, node: Node) -> RecordError | None:
        """What is wrong with the record of the node's output, if it cannot be read: then only --force helps."""
        damage = self.observations[node].damage
        if damage is None:
            return None
        return RecordError(damage.what, why=damage.why, next=_rebuild(node))

    def source(self, node: Node) -> Fingerprint:
        functions = (node.step.function.fn, *node.step.bound.functions)
        known = self._sources.get(functions)
        if known is None:
            known = self._sources[functions] = fingerprint(functions)
        return known

    def policy(self, node: Node) -> SourcePolicy:
        return node.step.options.source_policy or self.source_policy

    def assess(self, node: Node, settled: Iterable[Node]) -> decide.Current | decide.Stale:
        """Whether the node's commit is current, given its inputs whose commits are settled."""
        seen = self.observations[node]
        if node.step.options.pin is not None:
            return decide.Current(notes=(f"pinned to {node.step.options.pin.url}: {node.step.options.pin.reason}",))
        if seen.damage is not None:
            return decide.Stale(cause="damaged", why=f"damaged record: {seen.damage.what}")
        if seen.withdrawn is not None:
            return decide.Stale(cause="withdrawn", why=f"its output was withdrawn: {seen.withdrawn.reason}")
        if seen.commit is None:
            return decide.Stale(cause="new", why="no output yet")
        verdict = self.judge(node, seen.commit, self._current_digests(settled))
        if isinstance(verdict, decide.Stale):
            return verdict
        notes = [f"the record of its input {i.shown} is damaged" for i in node.inputs if self.damage(i) is not None]
        return replace(verdict, notes=(*verdict.notes, *notes)) if notes else verdict

    def judge(self, node: Node, commit: Served, input_digests: dict[str, str]) -> decide.Current | decide.Stale:
        """Whether `commit` is current, given output digests by the inputs' keys."""
        return decide.assess(
            node.step, commit, input_digests=input_digests, source=self.source(node), policy=self.policy(node)
        )

    def check_function(self, node: Node) -> None:
        """IdentityConflict if another function made the node's output, or another one is named by its arguments."""
        commit = self.observations[node].commit
        if commit is not None and decide.has_moved(node.step, commit):
            decide.check_function(node.step, commit, source=self.source(node))

    def may_adopt(self, node: Node) -> bool:
        """Whether the node's build key tells which bytes it reads where."""
        return not decide.is_ambiguous(self.digests(node.inputs))

    def own_arguments(self, node: Node) -> Any:
        """The node's arguments with the digests of its inputs' outputs; every input has a commit."""
        return decide.own_arguments(node.step, self.digests(node.inputs))

    def digests(self, nodes: Iterable[Node]) -> dict[str, str]:
        """Output digests, by key, of those of `nodes` that have a commit."""
        return decide.digests_by_key((n.step.key, c.output_digest) for n in nodes if (c := self.observations[n].commit))

    def _current_digests(self, nodes: Iterable[Node]) -> dict[str, str]:
        nodes = list(nodes)
        by_key = self.digests(nodes)
        if len(by_key) < len(nodes):
            # Several names of one computation: each is told apart by its directory.
            by_key |= {self.address(n): c.output_digest for n in nodes if (c := self.observations[n].commit)}
        return by_key

    def data_url(self, node: Node) -> str:
        """URL of the node's committed data directory."""
        if node in self._pinned_data:
            return self._pinned_data[node]
        commit = self.observations[node].commit
        assert commit is not None
        return join_url(self.store.url, data_directory(node.directory, commit))

    def check_files(self, node: Node) -> None:
        """CorruptOutput if a file of the node's commit is missing or has another size. One listing."""
        commit = self.observations[node].commit
        if commit is None or not commit.manifest or node in self._pinned_data:
            return
        prefix = data_directory(node.directory, commit)
        problem = size_problem(sizes_below(self.store, prefix), ((file.path, file.size) for file in commit.manifest))
        if problem is not None:
            path, what = problem
            raise CorruptOutput(
                f"{node.directory}: the file {path!r} {what}",
                why=f"data below {join_url(self.store.url, prefix)} was changed or removed after it was committed",
                next=f"rebuild it with `run --force {node.shown}`",
            )

    def address(self, node: Node) -> str:
        """The node's step directory, or the URL it is pinned to."""
        pin = node.step.options.pin
        return node.directory if pin is None else pin_address(pin)

    def input_uses(self, node: Node) -> tuple[InputUse, ...]:
        """The exact commits a body of `node` will read."""
        where: dict[str, list[str]] = {}
        for argument, reference in node.step.bound.inputs:
            step = reference.step if isinstance(reference, StepPath) else reference
            where.setdefault(step.directory, []).append(argument)
        uses = []
        for upstream in node.inputs:
            commit = self.observations[upstream].commit
            assert commit is not None
            uses.append(
                InputUse(
                    arguments=tuple(where[upstream.directory]),
                    name=upstream.name,
                    key=upstream.step.key,
                    directory=self.address(upstream),
                    commit=commit.number,
                    output_digest=commit.output_digest,
                )
            )
        return tuple(uses)

    def loaded_input(self, node: Node) -> LoadedInput:
        """What a worker needs to hand this node's output to a body."""
        commit = self.observations[node].commit
        assert commit is not None
        return LoadedInput(
            directory=node.directory,
            data_url=self.data_url(node),
            result=commit.record.result,
            annotation=node.step.function.hints.get("return"),
            manifest=commit.manifest,
            rebuild=_rebuild(node),
        )


def _rebuild(node: Node) -> str:
    pin = node.step.options.pin
    if pin is None:
        return f"rebuild it with `run --force {node.shown}`"
    return f"restore what {pin.url} held, or remove .pinned_to(...) from step {node.name}"
