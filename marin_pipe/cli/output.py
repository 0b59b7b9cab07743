"""Printing: rich on a terminal, plain lines elsewhere. Results go to stdout, errors and notes about them to stderr."""

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marin_pipe.execution.errors import PipelineError

if TYPE_CHECKING:
    from rich.console import Console


def on_terminal() -> bool:
    """Whether stdout is a terminal that can redraw."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def make_console() -> "Console":
    """A rich console on stdout; rich itself honours NO_COLOR."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=True)


def print_line(text: str = "") -> None:
    """One line (or several) of a result, whole."""
    sys.stdout.write(f"{text}\n")


def print_note(text: str) -> None:
    """Something the user should know that is no part of the result."""
    sys.stderr.write(f"{text}\n")


def print_json(value: Any) -> None:
    """`value` as indented JSON: the whole output of a command with `--json`."""
    print_line(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Aligned columns; nothing is ever cut off. `right` names the columns to align to the right.

    On a terminal long cells fold; elsewhere every row is one line, which grep and awk can read.
    """
    if on_terminal():
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for header in headers:
            table.add_column(header, justify="right" if header in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        console = make_console()
        console.soft_wrap = False
        console.print(table)
        return
    lines = [[" ".join(cell.splitlines()) for cell in row] for row in (headers, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    for line in lines:
        cells = [
            cell.rjust(width) if header in right else cell.ljust(width)
            for cell, width, header in zip(line, widths, headers, strict=True)
        ]
        print_line("  ".join(cells).rstrip())


def cut(line: str, limit: int = 300) -> str:
    """At most `limit` characters of a line."""
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def shorten(text: str) -> str:
    """A text, such as an error's message, as a line that does not fill the screen."""
    return cut(" ".join(text.split()))


def show_path(url: str) -> str:
    """A path below the current directory as a relative one; anything else unchanged."""
    here = os.getcwd() + os.sep
    return url[len(here) :] if url.startswith(here) else url


def human_size(size_bytes: int) -> str:
    """`512 B`, `1.5 KiB`, `20.0 GiB`."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} PiB"


def human_duration(duration_s: float) -> str:
    """`7 ms`, `0.3 s`, `42 s`, `3 min 20 s`, `5 h 12 min`, `3 d 4 h`."""
    if duration_s < 0.0995:
        return f"{round(duration_s * 1000)} ms"
    if duration_s < 9.95:
        return f"{duration_s:.1f} s"
    seconds = round(duration_s)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"


def print_error(error: PipelineError, *, debug: bool = False) -> None:
    """What, why, what to do next: a line each, on stderr. `debug` puts the traceback in front."""
    if debug:
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
    lines = [f"error: {error.what}"]
    lines += [f"  why:  {error.why}"] if error.why else []
    lines += [f"  next: {error.next}"] if error.next else []
    sys.stdout.flush()
    sys.stderr.write("\n".join(lines) + "\n")
