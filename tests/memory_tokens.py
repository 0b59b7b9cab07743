"""Token stores that are arrays, with the interface of real ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Content:
    """In place of a manifest: the content itself."""

    def __init__(self, *arrays: NDArray[Any]):
        self.arrays = arrays

    def encode(self) -> bytes:
        return b"|".join(array.tobytes() for array in self.arrays)


class MemoryTokens:
    """Documents of given tokens, back to back. Records what it is asked to fetch ahead."""

    def __init__(
        self,
        documents: Sequence[Sequence[int]],
        *,
        tokenizer: str = "t",
        mask: Sequence[float] | None = None,
        name: str = "d",
    ):
        self.tokens = np.array([token for document in documents for token in document], np.uint16)
        self.ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
        self.tokenizer = tokenizer
        self.mask = None if mask is None else np.array(mask, np.float32)
        self.name = name
        self.prefetched: list[tuple[list[int], int]] = []

    @classmethod
    def counting(cls, num_tokens: int, *, document: int = 7, **options: Any) -> "MemoryTokens":
        """Token i is i (modulo 2**16), in documents of one length."""
        tokens = [i % 65536 for i in range(num_tokens)]
        return cls([tokens[i : i + document] for i in range(0, num_tokens, document)], **options)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def manifest(self) -> Content:
        return Content(self.tokens, self.ends)

    @property
    def has_mask(self) -> bool:
        return self.mask is not None

    def read_windows(self, starts: Integers, length: int) -> NDArray[Any]:
        assert all(start >= 0 and start + length <= self.num_tokens for start in starts)
        return np.stack([self.tokens[start : start + length] for start in starts])

    def read_weights(self, starts: Integers, length: int) -> NDArray[np.float32]:
        assert self.mask is not None
        return np.stack([self.mask[start : start + length] for start in starts])

    def prefetch(self, starts: Integers, length: int) -> None:
        self.prefetched.append((starts.tolist(), length))

    def document_ends(self) -> Integers:
        return self.ends

    def document_of(self, offsets: Integers) -> Integers:
        return np.searchsorted(self.ends, offsets, side="right")

    def document_ids(self, indices: Integers) -> list[str]:
        return [f"{self.name}{i}" for i in indices]
