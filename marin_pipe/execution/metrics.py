"""The metrics of an attempt: `metrics/000001.jsonl`, ... of `{"t": seconds since the epoch, "step": n, name: x}`."""

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from marin_storage import Store

from marin_pipe.execution.secret import refuse_secrets_in_result
from marin_pipe.execution.segments import SegmentWriter, list_segments, read_segment

RESERVED = frozenset(("t", "step"))


class Metrics:
    """`ctx.metrics`. Thread-safe."""

    def __init__(self, store: Store, attempt_directory: str) -> None:
        self._segments = SegmentWriter(store, f"{attempt_directory}/metrics")
        self._known: set[str] = set()

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Keep numbers by name. `step` counts whatever the body counts.

        Values are numbers, or anything `float()` takes (a numpy or jax scalar). They are read at once: an array that is
        still being computed makes the caller wait.
        """
        row: dict[str, Any] = {"t": round(time.time(), 3), "step": int(step)}
        for name, value in values.items():
            if name in RESERVED or not isinstance(name, str):
                raise ValueError(f"metric name {name!r} must be text other than {sorted(RESERVED)}")
            if name not in self._known:
                refuse_secrets_in_result(name, where="the name of a metric")
                self._known.add(name)
            row[name] = _number(name, value)
        self._segments.append(json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Write what is left. Idempotent; raises `StorageError` if storage does not take it."""
        self._segments.close()


def _number(name: str, value: Any) -> float | str:
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, str):
        raise ValueError(f"metric {name!r} is the text {value!r}; metrics are numbers")
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"metric {name!r} is {value!r}; metrics are numbers: {error}") from error
    # JSON has no such numbers; the records of the engine spell them the same way.
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def read_metrics(store: Store, attempt_directory: str, *, after: int = 0) -> Iterator[dict[str, Any]]:
    """The stored rows, oldest first, from the segment after number `after`; numbers that JSON lacks as floats."""
    prefix = f"{attempt_directory}/metrics"
    for number in list_segments(store, prefix)[0]:
        if number > after:
            for row in read_segment(store, prefix, number):
                yield {name: float(value) if isinstance(value, str) else value for name, value in row.items()}
