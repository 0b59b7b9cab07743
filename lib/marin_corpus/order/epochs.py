"""From a component's how-many-eth draw to an epoch and one of its sequences; each epoch shuffles anew."""

from dataclasses import dataclass

import numpy as np

from marin_corpus.errors import BadConfig
from marin_corpus.order.permutation import Integers, Keys, permute, subkeys, unpermute

# Sub-keys of a component's key: one number each for what is not an epoch; epochs follow.
_SUBSET, _FIRST_EPOCH = 0, 1
# Sub-keys of an epoch's key under block shuffle; windows follow.
_BLOCKS, _FIRST_WINDOW = 0, 1


@dataclass(frozen=True, kw_only=True)
class BlockShuffle:
    """Shuffle runs of neighbouring sequences, then sequences within windows of runs.

    What is read close together in time then lies in few places: `window_blocks` runs of `block_sequences` each, for
    stores behind a network. The last run, which may be shorter, is placed like any other.
    """

    block_sequences: int = 256
    window_blocks: int = 512

    def __post_init__(self) -> None:
        for name in ("block_sequences", "window_blocks"):
            if getattr(self, name) < 1:
                raise BadConfig(f"BlockShuffle: {name}={getattr(self, name)} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """The sequences of all components in every epoch. Arrays are indexed by component.

    A component of which only a part is used (`used` below `available`) uses a subset that its key fixes; the same
    in all epochs.
    """

    keys: Keys
    available: Integers
    used: Integers
    shuffle: BlockShuffle | None

    def locate(self, components: Integers, ordinals: Integers) -> tuple[Integers, Integers]:
        """Epoch and sequence number, below `available`, of each draw."""
        used, keys = self.used[components], self.keys[components]
        epochs = ordinals // used
        positions = ordinals - epochs * used
        epoch_keys = subkeys(keys, epochs + _FIRST_EPOCH)
        if self.shuffle is None:
            sequences = permute(positions, used, epoch_keys)
        else:
            sequences = shuffle_blocks(positions, used, epoch_keys, self.shuffle)
        available = self.available[components]
        part = np.flatnonzero(used < available)
        if len(part):
            subset_keys = subkeys(keys[part], np.full(len(part), _SUBSET))
            if self.shuffle is None:
                sequences[part] = permute(sequences[part], available[part], subset_keys)
            else:
                # Whole runs are chosen, so that the subset too is read from few places.
                layout = _BlockLayout(available[part], subset_keys, self.shuffle)
                sequences[part] = layout.sequences(sequences[part])
        return epochs, sequences


def shuffle_blocks(positions: Integers, sizes: Integers, keys: Keys, shuffle: BlockShuffle) -> Integers:
    """Element-wise block shuffle: a permutation of range(sizes) for each key. All arrays have shape [n]."""
    layout = _BlockLayout(sizes, keys, shuffle)
    window_blocks = shuffle.window_blocks
    tail_window = layout.tail_slot // window_blocks
    in_window = window_blocks * shuffle.block_sequences
    # The window that holds the short run is short itself, and those behind it begin earlier.
    tail_window_end = (tail_window + 1) * in_window - layout.missing
    windows = np.where(positions < tail_window_end, positions, positions + layout.missing) // in_window
    starts = windows * in_window - np.where(windows > tail_window, layout.missing, 0)
    ends = np.minimum((windows + 1) * in_window - np.where(windows >= tail_window, layout.missing, 0), sizes)
    inside = permute(positions - starts, ends - starts, subkeys(keys, windows + _FIRST_WINDOW))
    return layout.sequences(starts + inside)


class _BlockLayout:
    """Runs of neighbouring sequences, permuted and laid end to end; element-wise over arrays of shape [n]."""

    def __init__(self, sizes: Integers, keys: Keys, shuffle: BlockShuffle):
        self._block = shuffle.block_sequences
        self._num_blocks = (sizes + self._block - 1) // self._block
        self._keys = subkeys(keys, np.full(len(keys), _BLOCKS))
        # How much the last run lacks, and the place to which it was moved.
        self.missing = self._num_blocks * self._block - sizes
        self.tail_slot = unpermute(self._num_blocks - 1, self._num_blocks, self._keys)

    def sequences(self, positions: Integers) -> Integers:
        """The sequence at each position of the layout."""
        tail_end = (self.tail_slot + 1) * self._block - self.missing
        padded = np.where(positions < tail_end, positions, positions + self.missing)
        slots = padded // self._block
        blocks = permute(slots, self._num_blocks, self._keys)
        sequences: Integers = padded + (blocks - slots) * self._block
        return sequences
