"""Bad records: what is wrong with one, and what becomes of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from marin_corpus.errors import BadInput
from marin_corpus.manifest import encode_manifest
from marin_corpus.output import Output

SKIPPED = "skipped.json"
_SAMPLES = 5
"""Of each reason, in a shard and in all; the first ones."""

Reason: TypeAlias = Literal[
    "invalid_json",
    "not_an_object",
    "missing_field",
    "wrong_type",
    "invalid_encoding",
    "lone_surrogate",
    "too_long",
    "invalid_csv",
    "ragged_row",
    "empty",
]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Stands where a record could not be had."""

    reason: Reason
    detail: str


class Problems:
    """Refuses, or counts and samples, the records of a shard that make no document."""

    def __init__(self, *, skip: bool) -> None:
        self._skip = skip
        self._counts: Counter[str] = Counter()
        self._samples: list[dict[str, Any]] = []

    def add(self, bad: BadRecord, *, file: str, place: Mapping[str, int]) -> None:
        """One more.

        Args:
            bad: what is wrong with it.
            file: name of the file.
            place: such as {"line": 7}.

        Raises:
            BadInput: bad records are not to be skipped, and it is not just empty.
        """
        if not self._skip and bad.reason != "empty":
            raise BadInput(
                ", ".join([file, *(f"{unit} {number}" for unit, number in place.items())]) + f": {bad.detail}",
                next='correct the file, or leave such records out with on_bad_record="skip"',
            )
        self._counts[bad.reason] += 1
        if self._counts[bad.reason] <= _SAMPLES:
            self._samples.append({"reason": bad.reason, "file": file, **place, "detail": bad.detail})

    def wants_place(self, reason: Reason) -> bool:
        """Whether it would be said where the record lies: to find that out can cost a reading of the file."""
        return (not self._skip and reason != "empty") or self._counts[reason] < _SAMPLES

    def summary(self) -> dict[str, Any]:
        """JSON: counts and samples."""
        return {"counts": dict(sorted(self._counts.items())), "samples": self._samples}


def merge_problems(summaries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of all shards, from those of each in order."""
    counts: Counter[str] = Counter()
    sampled: Counter[str] = Counter()
    samples = []
    for summary in summaries:
        counts.update(summary["counts"])
        for sample in summary["samples"]:
            sampled[sample["reason"]] += 1
            if sampled[sample["reason"]] <= _SAMPLES:
                samples.append(sample)
    return {"counts": dict(sorted(counts.items())), "samples": samples}


def write_skipped(output: Output, summary: Mapping[str, Any]) -> None:
    """Write `skipped.json`: counts by reason, and the first samples of each."""
    output.write_file(SKIPPED, encode_manifest("skipped records", summary))
