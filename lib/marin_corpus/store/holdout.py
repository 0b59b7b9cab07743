"""Which documents are held out for validation: a function of a document's id alone."""

from collections.abc import Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from marin_corpus.errors import BadConfig

_SALT = b"marin_corpus validation "


def check_fraction(validation_fraction: float) -> None:
    """Raises `BadConfig` unless it lies in [0, 1)."""
    if not 0 <= validation_fraction < 1:
        raise BadConfig(f"validation_fraction={validation_fraction} must be at least 0 and below 1")


def is_validation(ids: Sequence[str], validation_fraction: float) -> NDArray[np.bool_]:
    """For each id, whether it is held out.

    A salted hash of the id, uniform in [0, 1), lies below the fraction: other documents that come or go change nothing,
    copies of a text lie on one side, and a larger fraction adds documents without losing any.
    """
    hashes = np.fromiter((xxhash.xxh3_64_intdigest(_SALT + id.encode()) for id in ids), np.uint64, len(ids))
    return hashes < np.uint64(int(validation_fraction * 2.0**64))
