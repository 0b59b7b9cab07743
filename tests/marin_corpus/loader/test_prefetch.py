"""Batches read ahead by a thread: the same, in order, with errors where they belong, and nothing left behind."""

import threading

import numpy as np
import pytest
from marin_corpus.errors import BadConfig
from marin_corpus.loader.config import ComponentConfig, LoaderConfig
from marin_corpus.loader.loader import Loader
from memory_tokens import Integers, MemoryTokens

CONFIG = LoaderConfig(sequence_length=4, global_batch_size=6, components=(ComponentConfig(name="x"),))


class FailingTokens(MemoryTokens):
    """Fails from its nth read on."""

    reads_left = 3

    def read_windows(self, starts: Integers, length: int) -> np.ndarray:
        if self.reads_left == 0:
            raise OSError("the network is gone")
        self.reads_left -= 1
        return super().read_windows(starts, length)


class WaitingTokens(MemoryTokens):
    """Says when a read begins, and waits to be let on."""

    def __init__(self) -> None:
        super().__init__([list(range(1_000))])
        self.reading, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def read_windows(self, starts: Integers, length: int) -> np.ndarray:
        self.reading.release()
        assert self.go.acquire(timeout=60)
        return super().read_windows(starts, length)


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loader"]


@pytest.mark.parametrize("depth", [1, 5])
def test_iterating_yields_the_batches_of_the_steps(depth: int) -> None:
    loader = Loader({"x": MemoryTokens.counting(1_000)}, CONFIG)
    skipped = [4]
    with loader.iterate(3, stop_step=9, process_index=1, process_count=2, skipped=skipped, depth=depth) as batches:
        found = list(batches)
        assert list(batches) == []
    assert [step for step, _ in found] == [3, 4, 5, 6, 7, 8]
    for step, batch in found:
        expected = loader.batch(step, process_index=1, process_count=2, skipped=skipped)
        assert all((batch[name] == expected[name]).all() for name in expected)
    assert not loader_threads()


def test_stores_are_asked_ahead_for_exactly_what_is_read() -> None:
    store = MemoryTokens.counting(1_000)
    loader = Loader({"x": store}, CONFIG)
    with loader.iterate(0, stop_step=7) as batches:
        read = [(batch["tokens"][:, 0].tolist(), 5) for _, batch in batches]
    assert store.prefetched == read


def test_requests_run_ahead_of_the_batch_that_is_read() -> None:
    store = WaitingTokens()
    with Loader({"x": store}, CONFIG).iterate(0) as batches:
        assert store.reading.acquire(timeout=60)
        assert len(store.prefetched) > 2
        store.go.release(10_000)
        assert next(batches)[0] == 0


def test_an_error_is_raised_behind_the_batches_made_before_it_and_again() -> None:
    loader = Loader({"x": FailingTokens([list(range(1_000))])}, CONFIG)
    with loader.iterate(0, depth=9) as batches:
        assert [next(batches)[0] for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(OSError, match="the network is gone"):
                next(batches)
    assert not loader_threads()


def test_the_end_of_the_data_is_an_error_naming_the_step() -> None:
    capped = LoaderConfig(sequence_length=4, global_batch_size=6, components=(ComponentConfig(name="x", max_epochs=1),))
    with Loader({"x": MemoryTokens.counting(101)}, capped).iterate(0) as batches:
        assert [next(batches)[0] for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(BadConfig, match="step 4 has no data"):
            next(batches)


def test_closing_ends_the_thread_while_it_waits_for_room_and_the_iteration() -> None:
    batches = Loader({"x": MemoryTokens.counting(1_000)}, CONFIG).iterate(0, depth=1)
    next(batches)
    batches.close()
    batches.close()
    assert list(batches) == []
    assert not loader_threads()


def test_no_more_batches_are_made_ahead_than_asked_for() -> None:
    store = WaitingTokens()
    with Loader({"x": store}, CONFIG).iterate(0, depth=2) as batches:
        # Two that are ready and a third that waits for room.
        store.go.release(3)
        for _ in range(3):
            assert store.reading.acquire(timeout=60)
        assert not store.reading.acquire(blocking=False)
        store.go.release(10_000)
        assert next(batches)[0] == 0
        assert store.reading.acquire(timeout=60)


def test_depth_is_checked() -> None:
    with pytest.raises(BadConfig, match="depth=0"):
        Loader({"x": MemoryTokens.counting(1_000)}, CONFIG).iterate(0, depth=0)
