"""Spreading the bits of 64-bit integers evenly. Stored hashes and the training order rest on what this gives."""

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, odd: multiples of it lie far apart modulo 2^64 (Steele, Lea and Flood, 2014)."""


def mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), a bijection, of uint64 values."""
    mixed: np.ndarray = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
