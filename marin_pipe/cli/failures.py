"""From exceptions to what the user reads and the exit code."""

import os
import sys
from collections.abc import Callable

import click
from marin_storage import MissingExtra, OutOfSpace, PermissionDenied, StorageError, Unavailable, Unsuitable

from marin_pipe.cli.output import print_error
from marin_pipe.cli.user_code import UserCodeError
from marin_pipe.execution.errors import ConfigurationError, ExitCode, PipelineError

_BROKEN_PIPE = 141
"""What a shell reports for a program that SIGPIPE ended."""


class StorageTrouble(PipelineError):
    """An error of the storage layer that reached the command line."""


class StorageRefused(StorageTrouble):
    """The root cannot be used at all."""

    exit_code = ExitCode.USAGE


def guarded(command: Callable[[], int], *, debug: bool) -> int:
    """Run `command`; show what it raises, and return the exit code.

    An exception that is none of ours is a bug: its traceback is shown whole.
    """
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left (`| head`). The interpreter would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        return ExitCode.INTERRUPTED
    except PipelineError as error:
        if isinstance(error, UserCodeError) and not debug:
            sys.stdout.flush()
            sys.stderr.write(error.traceback)
        print_error(error, debug=debug)
        return int(error.exit_code)
    except StorageError as error:
        trouble = explain_storage(error)
        trouble.__cause__ = error
        print_error(trouble, debug=debug)
        return int(trouble.exit_code)
    except click.UsageError as error:
        print_error(usage_error(error), debug=debug)
        return ExitCode.USAGE
    return code


def usage_error(error: click.UsageError) -> ConfigurationError:
    """click's complaint in our three lines."""
    what = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else ""
    return ConfigurationError(what[:1].lower() + what[1:], next=f"see {command} --help".replace("  ", " "))


def explain_storage(error: StorageError) -> StorageTrouble:
    """What to do about an error of the storage layer."""
    first, _, rest = str(error).partition("\n")
    if isinstance(error, PermissionDenied):
        return StorageTrouble(
            f"the storage refuses access: {first}",
            why=rest or "this identity may not do that there; nothing was retried",
            next="check the credentials and permissions with `marin-pipe doctor`, or choose another --root",
        )
    if isinstance(error, OutOfSpace):
        return StorageTrouble(
            f"the storage is full: {first}",
            why=rest or "what was being written is not committed, and nothing committed was touched",
            next="free space (`marin-pipe gc` says what could go), then run the same command again",
        )
    if isinstance(error, MissingExtra):
        return StorageRefused(
            f"this root cannot be used: {first}", next=f"python -m pip install 'marin-pipe[{error.extra}]'"
        )
    if isinstance(error, Unsuitable):
        return StorageRefused(
            f"this root cannot be used: {first}", why=rest, next="choose another --root, or see `marin-pipe doctor`"
        )
    if isinstance(error, Unavailable):
        return StorageTrouble(
            f"the storage did not answer: {first}",
            why=rest or "it was retried until the deadline",
            next="run the same command again; what is committed stays",
        )
    return StorageTrouble(f"storage: {first}", why=rest, next="run again with --debug for the traceback")
