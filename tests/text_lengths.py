"""Attributes for tests: in a module of its own, so that worker processes can import it."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema([("length", pa.int64()), ("long", pa.bool_()), ("first", pa.string())])


def measure(batch: pa.RecordBatch, limit: int) -> Mapping[str, Any]:
    """Length of each text, whether that is above a limit, and its first character."""
    texts = batch["text"].to_pylist()
    return {
        "first": [text[0] for text in texts],
        "length": [len(text) for text in texts],
        "long": [len(text) > limit for text in texts],
    }
