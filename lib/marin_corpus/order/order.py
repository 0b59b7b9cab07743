"""The training order: from a sequence's place in the run to a component, an epoch, and one of its sequences.

Nothing is stored and nothing moves: every answer is computed from the seed, the component's sizes, the stages and the
number of the sequence. Resuming needs a step number alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from marin_corpus.order.epochs import BlockShuffle, Epochs
from marin_corpus.order.permutation import Integers, key_of
from marin_corpus.order.stages import Segments, make_segments


@dataclass(frozen=True, kw_only=True)
class Component:
    """Sequences that are mixed as one. `used` of the `available` ones take part; at most `limit` draws are made."""

    name: str
    available: int
    used: int
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class Draws:
    """What sequences of the run are: arrays of one shape. `component` indexes `Order.components`."""

    component: Integers
    ordinal: Integers
    epoch: Integers
    sequence: Integers


class Order:
    """The order of all sequences of a run.

    `stages` are (first sequence, weights above zero by component name). Components are numbered by the order of their
    names, so that the order in which a configuration lists them bears nothing.
    """

    def __init__(
        self,
        components: Sequence[Component],
        stages: Sequence[tuple[int, Mapping[str, Fraction]]],
        *,
        seed: int,
        shuffle: BlockShuffle | None = None,
    ):
        self.components = tuple(sorted(components, key=lambda c: c.name))
        self.segments: Segments = make_segments(
            stages,
            names=[c.name for c in self.components],
            limits=[c.limit for c in self.components],
            seed=seed,
        )
        self._starts = np.array([segment.start for segment in self.segments.segments])
        self._epochs = Epochs(
            keys=np.array([key_of("epochs", seed, c.name) for c in self.components], np.uint64),
            available=np.array([c.available for c in self.components], np.int64),
            used=np.array([c.used for c in self.components], np.int64),
            shuffle=shuffle,
        )

    def locate(self, indices: Integers) -> Draws:
        """What stands at each place of the run, of shape [n]; all below `segments.end`."""
        components, ordinals = np.empty(len(indices), np.int64), np.empty(len(indices), np.int64)
        of_segment = np.searchsorted(self._starts, indices, side="right") - 1
        touched = np.unique(of_segment).tolist()
        for s in touched:
            segment = self.segments.segments[s]
            here = slice(None) if len(touched) == 1 else np.flatnonzero(of_segment == s)
            component, ordinal = segment.mixture.locate(indices[here] - segment.start)
            components[here] = component
            ordinals[here] = ordinal + np.array(segment.drawn)[component]
        epochs, sequences = self._epochs.locate(components, ordinals)
        return Draws(component=components, ordinal=ordinals, epoch=epochs, sequence=sequences)
