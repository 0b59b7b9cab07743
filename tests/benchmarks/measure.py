"""Measuring: CPU seconds of whole process trees, medians over runs, rows of results."""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of a benchmark. `ratio` is value / baseline, both measured in the same run."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    runs: int = 1

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one command took: CPU seconds of it and all its finished descendants, and wall seconds."""

    cpu_s: float
    wall_s: float


def command_cost(arguments: Sequence[str], *, environment: dict[str, str] | None = None, expect: int = 0) -> Cost:
    """Run a command to its end; RuntimeError with its output if it does not exit with `expect`."""
    env = {**os.environ, **(environment or {})}
    # Compiled bytecode is what an installed package has.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    wall_s = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != expect:
        raise RuntimeError(
            f"{' '.join(arguments)} exited with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    return Cost(cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s=wall_s)


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def median_cost(measure: Callable[[], Cost], *, runs: int) -> Cost:
    costs = [measure() for _ in range(runs)]
    return Cost(
        cpu_s=statistics.median(cost.cpu_s for cost in costs), wall_s=statistics.median(cost.wall_s for cost in costs)
    )


def against(name: str, value: float, unit: str, *, baseline: float | None, runs: int) -> Row:
    return Row(
        name=name,
        value=round(value, 4),
        unit=unit,
        baseline=None if baseline is None else round(baseline, 4),
        ratio=None if not baseline else round(value / baseline, 3),
        runs=runs,
    )
