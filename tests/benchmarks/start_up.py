"""What it costs to start: importing the package, and showing help."""

from collections.abc import Iterator

from tests.benchmarks.measure import Row, against, command_cost, median_cost, python


def rows(runs: int) -> Iterator[Row]:
    bare = median_cost(lambda: command_cost(python("-c", "pass")), runs=runs)
    imported = median_cost(lambda: command_cost(python("-c", "import marin_pipe")), runs=runs)
    yield against(
        "import: marin_pipe, CPU above a bare interpreter", imported.cpu_s - bare.cpu_s, "s", baseline=None, runs=runs
    )
    helped = median_cost(lambda: command_cost(python("-m", "marin_pipe.cli.main", "--help")), runs=runs)
    yield against("import: marin-pipe --help, CPU", helped.cpu_s, "s", baseline=bare.cpu_s, runs=runs)
