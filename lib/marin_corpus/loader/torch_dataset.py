"""The run as a map-style dataset, for loaders of other libraries; needs none of them."""

from collections.abc import Sequence

import numpy as np

from marin_corpus.loader.loader import Loader
from marin_corpus.loader.rows import Batch


class TorchMapDataset:
    """Sequence number i of the run, in training order: `dataset[i]` is a dict of arrays [sequence_length].

    Read it in order, without shuffling: the order is made already. It has what torch.utils.data.Dataset and
    grain.sources.RandomAccessDataSource ask for, and it can be sent to worker processes.
    """

    def __init__(self, loader: Loader, *, num_steps: int):
        self._loader = loader
        self._num_sequences = loader.plan(num_steps).num_sequences

    def __len__(self) -> int:
        return self._num_sequences

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Batch]:
        """Several at once, which torch asks for when a dataset can: the stores are then read once for all of them."""
        for index in indices:
            if not -len(self) <= index < len(self):
                raise IndexError(f"sequence {index} of {len(self)}")
        batch = self._loader.sequences(np.array(indices, np.int64) % len(self))
        # Converters to tensors want arrays they may write to.
        arrays = {name: array if array.flags.writeable else array.copy() for name, array in batch.items()}
        return [{name: array[row] for name, array in arrays.items()} for row in range(len(indices))]
