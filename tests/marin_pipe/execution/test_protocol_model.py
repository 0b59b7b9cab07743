"""The protocol under thousands of schedules of several drivers, crashes, lost replies and a clock that lies."""

import collections

import pytest
from protocol_model import CALM, DEADLY, Dangers, check, forget, play


def play_all(seeds: range, dangers: Dangers) -> collections.Counter[str]:
    """Check every schedule; what happened in them all."""
    totals: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        outcome = play(seed, dangers)
        try:
            check(outcome)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        takeovers = len({lease.epoch for lease in outcome.backend.leases}) - 1
        totals.update(
            bodies=len(outcome.started),
            built=outcome.built,
            served=len(outcome.served),
            crashes=outcome.crashes,
            takeovers=takeovers,
            forced=outcome.forced,
        )
        forget(outcome.backend)
    return totals


def test_no_schedule_breaks_the_protocol() -> None:
    totals = play_all(range(1000), DEADLY)
    # The dangers were real: every kind was met hundreds of times.
    assert min(totals.values()) > 300, totals
    assert totals["bodies"] > totals["built"], totals


def test_undisturbed_drivers_do_the_work_once() -> None:
    seeds = range(300)
    totals = play_all(seeds, CALM)
    assert (totals["bodies"], totals["built"]) == (len(seeds), len(seeds))


@pytest.mark.slow
@pytest.mark.parametrize("drivers", [2, 3, 5, 8])
def test_no_schedule_breaks_the_protocol_at_length(drivers: int) -> None:
    totals = play_all(range(10_000, 20_000), Dangers(drivers=drivers))
    assert totals["bodies"] >= totals["built"] > 0
