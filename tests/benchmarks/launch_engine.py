"""Driver process of the engine benchmark: `python -m tests.benchmarks.launch_engine GRAPH LENGTH ROOT [plan]`."""

import sys

from marin_pipe import plan, run
from tests.benchmarks.dag import chain, chain_fan_join


def main() -> int:
    shape, length, root, *rest = sys.argv[1:]
    target = chain_fan_join(int(length)) if shape == "fan" else chain(int(length))[-1]
    if rest == ["plan"]:
        return 0 if len(plan({"target": target}, root=root).steps) == int(length) else 1
    return int(run({"target": target}, root=root).exit_code)


if __name__ == "__main__":
    sys.exit(main())
