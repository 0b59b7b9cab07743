"""What a run reads and in which order. Paths are no part of it: where data lies changes nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from marin_corpus.errors import BadConfig
from marin_corpus.order.epochs import BlockShuffle


@dataclass(frozen=True, kw_only=True)
class ComponentConfig:
    """One store of the mixture."""

    name: str
    weight: float | None = None
    """Share of the sequences, in any scale. 0: read only in stages that give it a weight. None: found by
    `LoaderConfig.weights`."""
    max_epochs: float | None = None
    """How often its sequences may be read, fractions too; the others then share its part. None: no limit."""

    def __post_init__(self) -> None:
        if not self.name:
            raise BadConfig("ComponentConfig: name='' must not be empty")
        if self.weight is not None:
            _check_weight(f"ComponentConfig {self.name!r}: weight", self.weight)
        if self.max_epochs is not None and not 0 < self.max_epochs < math.inf:
            raise BadConfig(
                f"ComponentConfig {self.name!r}: max_epochs={self.max_epochs} must be above 0",
                next="None is no limit",
            )


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """From a step on, other weights or another batch size. What a stage does not say goes on as it was.

    Every component goes on where it was.
    """

    start_step: int | None = None
    """Counts data batches, which equal training steps as long as nothing is skipped."""
    start_tokens: int | None = None
    """Instead: the stage begins with the first batch before which at least so many positions were read."""
    weights: Mapping[str, float] | None = None
    global_batch_size: int | None = None

    def __post_init__(self) -> None:
        if (self.start_step is None) == (self.start_tokens is None):
            raise BadConfig(
                f"StageConfig: start_step={self.start_step}, start_tokens={self.start_tokens}: give exactly one"
            )
        start = self.start_step if self.start_step is not None else self.start_tokens
        if start is not None and start < 1:
            raise BadConfig(f"StageConfig: a stage begins at {start}, which must be at least 1")
        if self.weights is None and self.global_batch_size is None:
            raise BadConfig("StageConfig: neither weights nor global_batch_size is given: the stage changes nothing")
        for name, weight in (self.weights or {}).items():
            _check_weight(f"StageConfig: weights[{name!r}]", weight)
        if self.global_batch_size is not None and self.global_batch_size < 1:
            raise BadConfig(f"StageConfig: global_batch_size={self.global_batch_size} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class SimulatedEpochs:
    """Use experiment_tokens / target_tokens of each component, so that a short run repeats data as a long one would."""

    experiment_tokens: int
    target_tokens: int

    def __post_init__(self) -> None:
        if not 0 < self.experiment_tokens <= self.target_tokens:
            raise BadConfig(
                f"SimulatedEpochs: experiment_tokens={self.experiment_tokens} must be above 0 and at most "
                f"target_tokens={self.target_tokens}"
            )


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """Batches of a run."""

    sequence_length: int
    """Positions in a sequence."""
    global_batch_size: int
    """Sequences in a batch, of all processes together."""
    components: tuple[ComponentConfig, ...]
    seed: int = 0
    weights: Literal["given", "tokens", "sqrt"] = "given"
    """"given" in the components; "tokens": in proportion to the tokens of each store; "sqrt": to their roots."""
    stages: tuple[StageConfig, ...] = ()
    packing: Literal["concatenate", "documents"] = "concatenate"
    """"concatenate" cuts the store into equal windows; "documents" packs whole documents, padding what is left."""
    segments: bool = False
    """With "concatenate", number the documents inside of a sequence and give no weight to a target that belongs to
    another document than its input. ("documents" always numbers them.)"""
    shuffle: BlockShuffle | None = None
    """None mixes all sequences of a component (right wherever reading anywhere costs the same: local disks, memory); a
    BlockShuffle reads runs of neighbours, for stores behind a network. It bears on the order, so it is said here and
    never guessed from where the data lies."""
    simulated: SimulatedEpochs | None = None

    def __post_init__(self) -> None:
        for field in ("sequence_length", "global_batch_size"):
            if getattr(self, field) < 1:
                raise BadConfig(f"LoaderConfig: {field}={getattr(self, field)} must be at least 1")
        if not self.components:
            raise BadConfig("LoaderConfig: components is empty; at least one store must be named")
        names = [c.name for c in self.components]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise BadConfig(f"LoaderConfig: components names {repeated[0]!r} twice; names must be unique")
        if self.packing == "documents" and self.segments:
            raise BadConfig(
                "LoaderConfig: segments=True goes with packing='concatenate' only",
                next="leave it out: packing='documents' always numbers documents",
            )
        self._check_weights()
        for stage in self.stages:
            if unknown := sorted(set(stage.weights or {}) - set(names)):
                raise BadConfig(
                    f"LoaderConfig: a stage gives a weight to {unknown[0]!r}, which is no component",
                    next=f"there are: {', '.join(sorted(names))}",
                )

    def _check_weights(self) -> None:
        for choice, field, allowed in (
            (self.weights, "weights", ("given", "tokens", "sqrt")),
            (self.packing, "packing", ("concatenate", "documents")),
        ):
            if choice not in allowed:
                raise BadConfig(f"LoaderConfig: {field}={choice!r} must be one of {', '.join(allowed)}")
        for component in self.components:
            if self.weights == "given" and component.weight is None and len(self.components) > 1:
                raise BadConfig(
                    f"LoaderConfig: component {component.name!r} has no weight, and weights='given'",
                    next="give every component one, or say weights='tokens' or 'sqrt'",
                )
            if self.weights != "given" and component.weight is not None:
                raise BadConfig(
                    f"LoaderConfig: component {component.name!r} has weight={component.weight}, which "
                    f"weights={self.weights!r} would not use",
                    next="leave it out, or say weights='given'",
                )
        if self.weights == "given" and all(c.weight == 0 for c in self.components):
            raise BadConfig("LoaderConfig: all weights are 0; at least one must be above")


def _check_weight(what: str, weight: float) -> None:
    if not 0 <= weight < math.inf:
        raise BadConfig(f"{what}={weight} must be a number, and at least 0")
