"""`marin-pipe`: everything that needs no experiment file."""

import sys

from marin_pipe.cli.interrupts import quiet_interrupts

quiet_interrupts()  # before the imports below, which take a while

from marin_pipe.cli.app import dispatch  # noqa: E402
from marin_pipe.cli.failures import guarded  # noqa: E402


def main() -> None:
    """Entry point of the `marin-pipe` script."""
    argv = sys.argv[1:]
    sys.exit(guarded(lambda: dispatch(argv, program="marin-pipe"), debug="--debug" in argv))


if __name__ == "__main__":
    main()
