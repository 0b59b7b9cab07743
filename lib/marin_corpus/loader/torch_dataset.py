"""The run as a map-style dataset, for loaders of other libraries; needs none of them."""

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
        if not -len(self) <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        batch = self._loader.sequences(np.array([index % len(self)]))
        # Converters to tensors want arrays they may write to.
        return {name: array[0] if array.flags.writeable else array[0].copy() for name, array in batch.items()}
