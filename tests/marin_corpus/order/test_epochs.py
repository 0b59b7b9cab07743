"""Epochs are different permutations of the same sequences, shuffled as a whole or in blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.errors import BadConfig
from marin_corpus.order.epochs import BlockShuffle, Epochs, shuffle_blocks
from marin_corpus.order.permutation import key_of
from naive_order import shuffled, sub

SHUFFLES = [None, BlockShuffle(block_sequences=4, window_blocks=3)]


def epochs_of(available: int, used: int, shuffle: BlockShuffle | None, *, num_epochs: int) -> np.ndarray:
    """Sequences [epoch, position] of one component."""
    epochs = Epochs(
        keys=np.array([key_of("c", available)], np.uint64),
        available=np.array([available]),
        used=np.array([used]),
        shuffle=shuffle,
    )
    draws = np.arange(num_epochs * used)
    epoch, sequence = epochs.locate(np.zeros_like(draws), draws)
    assert epoch.tolist() == np.repeat(np.arange(num_epochs), used).tolist()
    return sequence.reshape(num_epochs, used)


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("size", [1, 2, 100, 257])
def test_every_epoch_reads_every_sequence_once_in_an_order_of_its_own(size: int, shuffle: BlockShuffle | None) -> None:
    found = epochs_of(size, size, shuffle, num_epochs=4)
    assert (np.sort(found, axis=1) == np.arange(size)).all()
    if size >= 100:
        # Two random permutations agree in one place on average.
        assert all((found[a] == found[b]).sum() < 10 for a in range(4) for b in range(a))


@pytest.mark.parametrize("shuffle", SHUFFLES)
@given(available=st.integers(1, 500), share=st.floats(0.01, 1))
def test_a_part_of_a_component_is_the_same_in_every_epoch(
    shuffle: BlockShuffle | None, available: int, share: float
) -> None:
    used = max(1, int(available * share))
    first, second = epochs_of(available, used, shuffle, num_epochs=2)
    assert len(set(first.tolist())) == used
    assert set(first.tolist()) <= set(range(available))
    assert sorted(first.tolist()) == sorted(second.tolist())


def blocks_by_hand(size: int, key: int, shuffle: BlockShuffle) -> list[int]:
    """Cut into runs, shuffle the runs, cut into windows, shuffle each window."""
    step = shuffle.block_sequences
    runs = [list(range(start, min(start + step, size))) for start in range(0, size, step)]
    placed = [runs[run] for run in shuffled(len(runs), sub(key, 0))]
    found = []
    for number, at in enumerate(range(0, len(placed), shuffle.window_blocks)):
        window = [sequence for run in placed[at : at + shuffle.window_blocks] for sequence in run]
        found += [window[place] for place in shuffled(len(window), sub(key, number + 1))]
    return found


@pytest.mark.parametrize(("block", "window"), [(1, 1), (2, 3), (4, 2), (3, 5)])
def test_block_shuffle_is_runs_shuffled_in_windows_for_every_small_range(block: int, window: int) -> None:
    shuffle = BlockShuffle(block_sequences=block, window_blocks=window)
    for size in range(1, 80):
        for key in (key_of(size), key_of("other", size)):
            found = shuffle_blocks(np.arange(size), np.full(size, size), np.full(size, key, np.uint64), shuffle)
            assert found.tolist() == blocks_by_hand(size, key, shuffle)
            assert sorted(found.tolist()) == list(range(size))


def test_block_shuffle_reads_few_runs_at_a_time() -> None:
    size, shuffle = 10_001, BlockShuffle(block_sequences=16, window_blocks=8)
    found = shuffle_blocks(np.arange(size), np.full(size, size), np.full(size, 3, np.uint64), shuffle)
    for start in range(0, size, 16 * 8):
        # One window's worth of sequences lies in the runs of one window, or of two where it straddles a border.
        assert len(set((found[start : start + 16 * 8] // 16).tolist())) <= 2 * 8
    assert (np.diff(found) == 1).sum() < size / 50


def test_the_short_last_run_is_placed_like_any_other() -> None:
    size, shuffle = 41, BlockShuffle(block_sequences=4, window_blocks=1)
    places = []
    for key in range(600):
        found = shuffle_blocks(np.arange(size), np.full(size, size), np.full(size, key_of(key), np.uint64), shuffle)
        places.append(int(np.flatnonzero(found == 40)[0]) // 4)
    counts = np.bincount(places, minlength=11)
    # 600 keys over 11 places: mean 54.5, standard deviation 7.
    assert counts.min() > 54.5 - 4 * 7
    assert counts.max() < 54.5 + 4 * 7


def test_sizes_of_blocks_are_checked() -> None:
    with pytest.raises(BadConfig, match="window_blocks=0"):
        BlockShuffle(window_blocks=0)
