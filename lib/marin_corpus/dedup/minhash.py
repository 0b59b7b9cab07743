"""MinHash signatures and the keys of their bands (Broder, 1997; Leskovec, Rajaraman and Ullman, 2014, chapter 3).

Two documents are candidates if they agree in all rows of some band: of Jaccard similarity s with probability
1 - (1 - s^rows)^bands.

Legend: D documents, S shingles, K permutations, B bands.
"""

from dataclasses import dataclass, field

import numpy as np

from marin_corpus.dedup.shingles import ShingleConfig, Shingles
from marin_corpus.errors import BadConfig
from marin_corpus.mixing import GOLDEN, mix

_CHUNK_SHINGLES = 32_768
"""So many shingles are permuted at a time that they and their images stay in the cache: 32k is 256 KB each."""
_GOLDEN = np.uint64(GOLDEN)


@dataclass(frozen=True, kw_only=True)
class MinHashConfig:
    """How documents are compared at first sight.

    With 14 bands of 8 rows, pairs of similarity 0.5, 0.7, 0.8, 0.9 are found with probability 0.05, 0.56, 0.92, 1.00.
    """

    shingles: ShingleConfig = field(default_factory=ShingleConfig)
    num_permutations: int = 112
    num_bands: int = 14
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_bands < 1 or self.num_permutations < 1 or self.num_permutations % self.num_bands:
            raise BadConfig(
                f"num_permutations={self.num_permutations} must be a positive multiple of num_bands={self.num_bands}"
            )
        if not 0 <= self.seed < 1 << 32:
            raise BadConfig(f"seed={self.seed} must be between 0 and 2^32 - 1")

    @property
    def rows_per_band(self) -> int:
        """Permutations that must all agree."""
        return self.num_permutations // self.num_bands


def signatures(shingles: Shingles, config: MinHashConfig) -> np.ndarray:
    """Minima of the shingles under each permutation: [K, D] uint64; all ones for a document without shingles.

    The permutations are x -> a x + b modulo 2^64 with odd a, of shingle hashes whose bits are already well mixed.
    """
    numbers = np.arange(1, 2 * config.num_permutations + 1, dtype=np.uint64)
    constants = mix(numbers * _GOLDEN + mix(np.array([config.seed], dtype=np.uint64)))
    factors_K, terms_K = constants[::2] | np.uint64(1), constants[1::2]
    counts_D = shingles.counts_D
    filled = np.flatnonzero(counts_D)
    minima_KD = np.full((config.num_permutations, len(counts_D)), np.iinfo(np.uint64).max, dtype=np.uint64)
    found_KF = np.empty((config.num_permutations, len(filled)), dtype=np.uint64)
    ends_F = shingles.ends_D[filled]
    begins_F = ends_F - counts_D[filled]
    low = 0
    while low < len(filled):
        begin = begins_F[low]
        high = max(low + 1, int(np.searchsorted(ends_F, begin + _CHUNK_SHINGLES, side="right")))
        chunk = shingles.hashes_S[begin : ends_F[high - 1]]
        starts = begins_F[low:high] - begin
        image = np.empty_like(chunk)
        for k in range(config.num_permutations):
            np.multiply(chunk, factors_K[k], out=image)
            np.add(image, terms_K[k], out=image)
            np.minimum.reduceat(image, starts, out=found_KF[k, low:high])
        low = high
    minima_KD[:, filled] = found_KF
    return minima_KD


def band_keys(minima_KD: np.ndarray, config: MinHashConfig) -> np.ndarray:
    """A 64-bit hash of the rows of each band: [B, D] uint64."""
    rows_BRD = minima_KD.reshape(config.num_bands, config.rows_per_band, -1)
    keys_BD = np.zeros((config.num_bands, minima_KD.shape[1]), dtype=np.uint64)
    for row in range(config.rows_per_band):
        keys_BD = mix(keys_BD * _GOLDEN + rows_BRD[:, row])
    return keys_BD
