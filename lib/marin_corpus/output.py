"""Where a call of this library leaves its files, and who runs its shards: `Output`.

Work on many files is cut into shards, each a pure function of one value, so that whoever runs them may use several
processes, and resume after a kill, without a change of any byte. An orchestrator brings its own `Output`;
`LocalOutput` is the one for a plain directory.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Output(Protocol):
    """A directory that a call fills."""

    def run_shards(self, shards: Mapping[str, T], function: Callable[[T, Path], Any]) -> dict[str, Any]:
        """Make the files of each shard; returns what `function` returned, by shard, in the order of `shards`.

        Args:
            shards: by name ("part-00007"): a value of plain data (dataclasses, text, numbers, tuples, dicts, functions
                at the top level of a module).
            function: `function(value, path)` writes the local file `path`, or several files beside it whose names begin
                with its name, and returns JSON or None. At the top level of a module.
        """

    def write_file(self, name: str, data: bytes) -> None:
        """Write a small file, such as a manifest, that belongs to the output as a whole."""


@dataclass(frozen=True)
class LocalOutput:
    """A directory on this machine, filled by up to `workers` processes. Nothing is kept of a call that was killed."""

    folder: Path
    workers: int = 1

    def run_shards(self, shards: Mapping[str, T], function: Callable[[T, Path], Any]) -> dict[str, Any]:
        """See `Output.run_shards`."""
        jobs = {name: (function, value, self.folder / name) for name, value in shards.items()}
        for _, _, path in jobs.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        if self.workers == 1 or len(jobs) < 2:
            return {name: _call(job) for name, job in jobs.items()}
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        # Spawned, not forked: the libraries that read and tokenize have threads of their own.
        with ProcessPoolExecutor(min(self.workers, len(jobs)), mp_context=get_context("spawn")) as pool:
            return dict(zip(jobs, pool.map(_call, jobs.values()), strict=True))

    def write_file(self, name: str, data: bytes) -> None:
        """See `Output.write_file`."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(path)


def _call(job: tuple[Callable[[Any, Path], Any], Any, Path]) -> Any:
    function, value, path = job
    return function(value, path)
