"""The whole order, against plain loops that walk it from the front."""

from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from marin_corpus.order.order import Component, Order
from naive_order import naive_order

LENGTH = 6_000


@st.composite
def components_and_stages(draw: Any) -> tuple[list[Component], list[tuple[int, dict[str, Fraction]]]]:
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True))
    components = []
    for name in names:
        available = draw(st.integers(1, 3_000))
        used = draw(st.integers(1, available))
        limit = draw(st.none() | st.integers(1, 4_000))
        components.append(Component(name=name, available=available, used=used, limit=limit))
    starts = sorted(draw(st.sets(st.integers(1, LENGTH), max_size=3)))
    stages = []
    for start in [0, *starts]:
        present = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        stages.append((start, {name: Fraction(draw(st.integers(1, 50))) for name in present}))
    return components, stages


def located(order: Order, indices: np.ndarray) -> list[tuple[str, int, int, int]]:
    draws = order.locate(indices)
    columns = (draws.component, draws.ordinal, draws.epoch, draws.sequence)
    return [(order.components[c].name, o, e, s) for c, o, e, s in zip(*(x.tolist() for x in columns), strict=True)]


@settings(max_examples=40)
@given(components_and_stages(), st.integers(0, 3), st.randoms(use_true_random=False))
def test_any_place_of_the_run_is_what_walking_there_finds(case: Any, seed: int, random: Any) -> None:
    components, stages = case
    order = Order(components, stages, seed=seed)
    walked = list(islice(naive_order(components, stages, seed=seed), LENGTH))
    assert order.segments.end is None or len(walked) == min(order.segments.end, LENGTH)
    assert len(walked) == LENGTH or order.segments.end == len(walked)
    assert located(order, np.arange(len(walked))) == walked
    # In any order, and from nothing: there is no state to build up.
    places = random.sample(range(len(walked)), min(50, len(walked)))
    assert located(Order(components, stages, seed=seed), np.array(places)) == [walked[p] for p in places]
    drawn = order.segments.drawn_before(len(walked))
    assert drawn == tuple(sum(row[0] == c.name for row in walked) for c in order.components)


@settings(max_examples=40)
@given(components_and_stages(), components_and_stages(), st.integers(1, LENGTH))
def test_stages_that_are_changed_or_added_later_leave_the_past_as_it_was(case: Any, other: Any, now: int) -> None:
    components, stages = case
    names = {component.name for component in components}
    past = [stage for stage in stages if stage[0] < now]
    future = [(start + now, {n: w for n, w in weights.items() if n in names}) for start, weights in other[1]]
    changed = past + [stage for stage in future if stage[1]]
    before, after = Order(components, stages, seed=1), Order(components, changed, seed=1)
    ends = [end for end in (before.segments.end, after.segments.end) if end is not None]
    until = min([now, *ends])
    assert until == now or before.segments.end == after.segments.end
    assert located(before, np.arange(until)) == located(after, np.arange(until))


@settings(max_examples=20)
@given(components_and_stages())
def test_a_cap_reads_every_sequence_equally_often_and_none_more(case: Any) -> None:
    components = [replace(c, limit=2 * c.used) for c in case[0]]
    order = Order(components, [(0, {c.name: Fraction(1) for c in components})], seed=0)
    total = sum(2 * c.used for c in components)
    assert order.segments.end == total
    draws = order.locate(np.arange(total))
    for number, component in enumerate(order.components):
        times = np.bincount(draws.sequence[draws.component == number], minlength=component.available)
        assert sorted(times.tolist()) == [0] * (component.available - component.used) + [2] * component.used


def test_when_a_component_ends_the_others_go_on_in_proportion_from_exactly_there() -> None:
    weights = {"a": Fraction(2), "b": Fraction(1), "c": Fraction(1)}
    components = [Component(name=n, available=5_000, used=5_000, limit=700 if n == "a" else None) for n in "abc"]
    order = Order(components, [(0, weights)], seed=4)
    first, second = order.segments.segments
    drawn = order.locate(np.arange(second.start + 4 * 2_048)).component
    assert (drawn[: second.start] == 0).sum() == 700
    assert drawn[second.start - 1] == 0
    after = drawn[second.start :].reshape(-1, 2_048)
    assert [np.bincount(block, minlength=3).tolist() for block in after] == [[0, 1_024, 1_024]] * 4
    assert (first.reason, second.reason) == ("start", "a ends")


def test_the_order_in_which_components_are_listed_bears_nothing() -> None:
    components = [Component(name=n, available=50, used=50) for n in "xyz"]
    weights = {"x": Fraction(1), "y": Fraction(2), "z": Fraction(3)}
    reverse = dict(reversed(weights.items()))
    a, b = Order(components, [(0, weights)], seed=4), Order(components[::-1], [(0, reverse)], seed=4)
    assert located(a, np.arange(3_000)) == located(b, np.arange(3_000))


def test_seeds_and_names_give_other_orders() -> None:
    def first(name: str, seed: int) -> bytes:
        order = Order([Component(name=name, available=999, used=999)], [(0, {name: Fraction(1)})], seed=seed)
        return order.locate(np.arange(999)).sequence.tobytes()

    assert len({first("a", 0), first("a", 1), first("b", 0)}) == 3
