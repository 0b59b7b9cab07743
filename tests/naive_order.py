"""The training order by its definition: one sequence after the other, with state, in plain loops.

Of the library it takes keys and permutations of small ranges, which have their own tests.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from marin_corpus.order.order import Component
from marin_corpus.order.permutation import key_of, permute, subkeys

BLOCK = 2048


def apportion(weights: Mapping[str, Fraction]) -> dict[str, int]:
    """Largest remainder, one seat at a time."""
    total = sum(weights.values())
    seats = {name: (weight * BLOCK / total).__floor__() for name, weight in weights.items()}
    while sum(seats.values()) < BLOCK:
        most, chosen = Fraction(-1), ""
        for name in sorted(weights):
            lacking = weights[name] * BLOCK / total - seats[name]
            if lacking > most:
                most, chosen = lacking, name
        seats[chosen] += 1
    return seats


def shuffled(size: int, key: int) -> list[int]:
    return permute(np.arange(size), np.array([size]), np.array([key], np.uint64)).tolist()


def sub(key: int, number: int) -> int:
    return int(subkeys(np.array([key], np.uint64), np.array([number]))[0])


def naive_order(
    components: Sequence[Component], stages: Sequence[tuple[int, Mapping[str, Fraction]]], *, seed: int
) -> Iterator[tuple[str, int, int, int]]:
    """(component, ordinal, epoch, sequence) of each sequence of the run; ends where nothing remains."""
    by_name = {component.name: component for component in components}
    drawn = dict.fromkeys(by_name, 0)
    epochs: dict[tuple[str, int], list[int]] = {}
    starts = [start for start, _ in stages]
    mixture_start, block, number = 0, [], 0
    active: dict[str, Fraction] = {}
    fresh = True
    while True:
        if number in starts:
            weights, fresh = stages[starts.index(number)][1], True
        if fresh:
            active = {name: weight for name, weight in weights.items() if drawn[name] != by_name[name].limit}
            if not active:
                return
            mixture_start, fresh = number, False
        place = (number - mixture_start) % BLOCK
        if place == 0:
            counts = apportion(active)
            seats = [name for name in sorted(counts) for _ in range(counts[name])]
            key = sub(key_of("mixture", seed, mixture_start), (number - mixture_start) // BLOCK)
            block = [seats[slot] for slot in shuffled(BLOCK, key)]
        name = block[place]
        component, ordinal = by_name[name], drawn[name]
        epoch, position = divmod(ordinal, component.used)
        own_key = key_of("epochs", seed, name)
        if (name, epoch) not in epochs:
            epochs[name, epoch] = shuffled(component.used, sub(own_key, epoch + 1))
        sequence = epochs[name, epoch][position]
        if component.used < component.available:
            if (name, -1) not in epochs:
                epochs[name, -1] = shuffled(component.available, sub(own_key, 0))
            sequence = epochs[name, -1][sequence]
        yield name, ordinal, epoch, sequence
        drawn[name] += 1
        number += 1
        fresh = drawn[name] == component.limit
