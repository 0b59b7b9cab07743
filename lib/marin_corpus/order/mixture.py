"""Mixing components in exact proportions: every block of 2,048 sequences holds fixed counts in a keyed order."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from marin_corpus.errors import BadConfig
from marin_corpus.order.permutation import Integers, permute, subkeys

# Sequences a block of the mixture. A share is honoured to 1/2048, over as few sequences as a few batches hold.
MIXTURE_BLOCK = 2048


def block_counts(weights: Mapping[str, Fraction]) -> dict[str, int]:
    """Sequences of each component in a block, by largest remainder, ties to the first name; in order of names.

    Weights are above zero and need no common scale. BadConfig if one earns no sequence of a block.
    """
    total = sum(weights.values())
    quotas = {name: weights[name] * MIXTURE_BLOCK / total for name in sorted(weights)}
    counts = {name: int(quota) for name, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda name: (counts[name] - quotas[name], name))
    for name in by_remainder[: MIXTURE_BLOCK - sum(counts.values())]:
        counts[name] += 1
    for name, count in counts.items():
        if count == 0:
            share = float(weights[name] / total)
            raise BadConfig(
                f"component {name!r} has a share of {share:.2g} and would never be drawn",
                why=f"the mixture is exact in blocks of {MIXTURE_BLOCK} sequences, so a share below about "
                f"1/{MIXTURE_BLOCK} = {1 / MIXTURE_BLOCK:.2g} is no sequence of a block",
                next=f"raise the weight of {name!r}, join it with another component, or leave it out",
            )
    return counts


@dataclass(frozen=True, kw_only=True)
class BlockMixture:
    """Which component fills each place of an endless row of blocks, and how many of that component came before.

    `components[i]` (a number the caller gives meaning to) has `counts[i]` places in each block; `key` orders them.
    """

    components: tuple[int, ...]
    counts: tuple[int, ...]
    key: int

    def members(self, block: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each place of a block: its component, and its rank among that component's places in the block."""
        return _members(self, block)

    def locate(self, places: Integers) -> tuple[Integers, Integers]:
        """Component and ordinal (how many sequences of that component come before) of each place, counted from 0."""
        components, ordinals = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        blocks = places // MIXTURE_BLOCK
        counts = np.zeros(max(self.components) + 1, np.int64)
        counts[list(self.components)] = self.counts
        first, last = (int(blocks.min()), int(blocks.max())) if len(places) else (0, -1)
        # A batch touches one or two blocks; scattered places may touch many.
        for block in [first] if first == last else np.unique(blocks).tolist():
            here = slice(None) if first == last else np.flatnonzero(blocks == block)
            component, rank = self.members(block)
            inside = places[here] - block * MIXTURE_BLOCK
            components[here] = component[inside]
            ordinals[here] = block * counts[component[inside]] + rank[inside]
        return components, ordinals

    def drawn_before(self, place: int) -> dict[int, int]:
        """How many sequences of each component the places before this one take."""
        block, rest = divmod(place, MIXTURE_BLOCK)
        drawn = {c: block * count for c, count in zip(self.components, self.counts, strict=True)}
        if rest:
            for component in self.members(block)[0][:rest].tolist():
                drawn[component] += 1
        return drawn

    def place_of(self, component: int, ordinal: int) -> int:
        """The place that takes this component's sequence number `ordinal`."""
        block, rank = divmod(ordinal, self.counts[self.components.index(component)])
        of_component, ranks = self.members(block)
        return block * MIXTURE_BLOCK + int(np.flatnonzero((of_component == component) & (ranks == rank))[0])


@lru_cache(maxsize=256)
def _members(mixture: BlockMixture, block: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    keys = subkeys(np.array([mixture.key], np.uint64), np.array([block]))
    slots = permute(np.arange(MIXTURE_BLOCK), np.array([MIXTURE_BLOCK]), keys)
    sorted_components = np.repeat(np.array(mixture.components), mixture.counts)
    components = sorted_components[slots]
    ranks = np.empty(MIXTURE_BLOCK, np.int64)
    starts = np.cumsum((0, *mixture.counts[:-1]))
    # Places of one component, in their order, get 0, 1, 2, ...; a stable sort brings them together.
    ranks[np.argsort(components, kind="stable")] = np.arange(MIXTURE_BLOCK) - np.repeat(starts, mixture.counts)
    for array in (components, ranks):
        array.flags.writeable = False
    return components, ranks
