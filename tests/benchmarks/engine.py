"""What the engine costs for each step: a cold launch, a cached one, a plan, a long chain."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.measure import Cost, Row, against, command_cost, median_cost, python

LENGTH = 1000
PLAN_LENGTH = 10_000


@contextmanager
def fresh_root(base: Path) -> Iterator[str]:
    root = tempfile.mkdtemp(prefix="marin-bench-", dir=base)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def launch(shape: str, length: int, root: str, *rest: str) -> Cost:
    return command_cost(python("-m", "tests.benchmarks.launch_engine", shape, str(length), root, *rest))


def bare(length: int, root: str, *rest: str) -> Cost:
    return command_cost(python("-m", "tests.benchmarks.bare_loop", str(length), root, *rest))


def _cold_and_cached(base: Path, runs: int, where: str) -> Iterator[Row]:
    cold, cached, floor, floor_cached = [], [], [], []
    for _ in range(runs):
        with fresh_root(base) as root:
            cold.append(launch("fan", LENGTH, root))
            cached.append(launch("fan", LENGTH, root))
        with fresh_root(base) as root:
            floor.append(bare(LENGTH, root))
            floor_cached.append(bare(LENGTH, root, "cached"))

    def median(costs: list[Cost]) -> Cost:
        rest = iter(costs)
        return median_cost(lambda: next(rest), runs=len(costs))

    for name, ours, base_cost in (
        ("cold", median(cold), median(floor)),
        ("cached", median(cached), median(floor_cached)),
    ):
        label = f"engine: {LENGTH} steps {name}, {where}"
        yield against(f"{label}, CPU", ours.cpu_s, "s", baseline=base_cost.cpu_s, runs=runs)
        yield against(f"{label}, wall", ours.wall_s, "s", baseline=base_cost.wall_s, runs=runs)


def rows(runs: int) -> Iterator[Row]:
    memory = Path("/dev/shm")
    if memory.is_dir():
        yield from _cold_and_cached(memory, runs, "tmpfs root")
    yield from _cold_and_cached(Path(tempfile.gettempdir()), runs, "disk root")
    base = memory if memory.is_dir() else Path(tempfile.gettempdir())

    def long_chain() -> Cost:
        with fresh_root(base) as root:
            return launch("chain", 200, root)

    yield against(
        "engine: chain of 200, wall", median_cost(long_chain, runs=runs).wall_s, "s", baseline=None, runs=runs
    )
    with fresh_root(base) as root:
        empty = median_cost(lambda: launch("fan", PLAN_LENGTH, root, "plan"), runs=runs)
        yield against(f"engine: plan of {PLAN_LENGTH}, empty root, CPU", empty.cpu_s, "s", baseline=None, runs=runs)
        launch("fan", PLAN_LENGTH, root)
        full = median_cost(lambda: launch("fan", PLAN_LENGTH, root, "plan"), runs=runs)
        yield against(f"engine: plan of {PLAN_LENGTH}, all cached, CPU", full.cpu_s, "s", baseline=None, runs=runs)
