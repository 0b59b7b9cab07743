"""`StepOutput`: a step's output directory as the data library wants it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.resources import CPU, GPU
from marin_pipe.execution.shards import process_shards

T = TypeVar("T")


class StepOutput:
    """Implements `marin_corpus.output.Output`: shards run in processes and survive a kill, files go to `ctx.output`."""

    def __init__(self, ctx: StepContext, *, workers: int | None = None) -> None:
        """
        Args:
            ctx: the step's context.
            workers: processes to use at once; None for as many as the step's cores.
        """
        self._ctx = ctx
        self._workers = _cores(ctx) if workers is None else workers

    def run_shards(self, shards: Mapping[str, T], function: Callable[[T, Path], Any]) -> dict[str, Any]:
        """Make the files of each shard; see `process_shards`."""
        return process_shards(self._ctx, shards, function, workers=self._workers)

    def write_file(self, name: str, data: bytes) -> None:
        """Write a file that belongs to the output as a whole."""
        (self._ctx.output / name).write_bytes(data)


def _cores(ctx: StepContext) -> int:
    match ctx.resources:
        case CPU(count=cores) | GPU(cpus=cores):
            return max(1, int(cores))
        case _:
            # A TPU does not say how many cores its host has.
            return 1
