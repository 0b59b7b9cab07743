"""`python -m tests.benchmarks [NAME ...] [--json] [--runs N]`; all of them, and the table in docs/, without a name."""

import argparse
import importlib
import json
import os
import platform
import sys

from tests.benchmarks.measure import REPOSITORY, Row

BENCHMARKS = {
    "import": "start_up",
    "engine": "engine",
    "storage-latency": "storage_latency",
    "near-duplicates": "near_duplicates",
    "contamination": "contamination",
    "quality": "quality",
    "tokenize": "tokenization",
    "tokenize-memory": "tokenization_memory",
    "random-reads": "random_reads",
    "first-batch": "first_batch",
    "loader": "loader_batch",
}
TABLE = REPOSITORY / "docs" / "reference" / "benchmarks.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--runs", type=int, default=5, help="runs of each figure; the median is shown")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    rows = []
    for name in arguments.names or BENCHMARKS:
        module = importlib.import_module(f"tests.benchmarks.{BENCHMARKS[name]}")
        for row in module.rows(arguments.runs):
            print(json.dumps(row.as_json()) if arguments.json else _line(row), flush=True)
            rows.append(row)
    if not arguments.names:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text(_table(rows))
        print(f"written: {TABLE.relative_to(REPOSITORY)}", file=sys.stderr)


def _line(row: Row) -> str:
    ratio = "" if row.ratio is None else f"  {row.ratio:.2f}x of {row.baseline} {row.unit}"
    return f"{row.name:70} {row.value:10.3f} {row.unit}{ratio}"


def _table(rows: list[Row]) -> str:
    head = (
        "# Benchmarks\n\nWritten by `make bench`. CPU seconds count the whole process tree; each figure is the median "
        f"of its runs, on {os.cpu_count()} cores, Python {platform.python_version()}. A baseline is measured in the "
        "same run: for the engine, a bare loop in one process that makes the same storage calls; for the data library, "
        "the plain way to the same result (the `tokenizers` library alone, MinHash in plain Python, `pread` for each "
        "window, a bare shuffle and gather in numpy).\n\n"
        "| what | value | baseline | ratio | runs |\n| --- | --- | --- | --- | --- |\n"
    )
    return head + "".join(
        f"| {row.name} | {row.value:g} {row.unit} | {'' if row.baseline is None else f'{row.baseline:g} {row.unit}'} | "
        f"{'' if row.ratio is None else f'{row.ratio:.2f}'} | {row.runs} |\n"
        for row in rows
    )


if __name__ == "__main__":
    main()
