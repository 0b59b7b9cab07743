"""The live table of a launch on a terminal: counts, and the steps that run or wait, with their progress."""

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from marin_storage import NotFound, StorageError, Store

from marin_pipe.cli.lines import Lines
from marin_pipe.cli.output import human_duration, make_console
from marin_pipe.execution.graph import Graph
from marin_pipe.execution.layout import attempt_directory
from marin_pipe.execution.observe import list_attempts
from marin_pipe.execution.records import Progress, parse
from marin_pipe.execution.report import StepEvent

if TYPE_CHECKING:
    from rich.console import RenderableType

_ROWS = 12
"""Running steps shown; a screen has about 24 lines."""
_REFRESHES_PER_S = 4
_PROGRESS_EVERY_S = 2.0


class _Running:
    def __init__(self, name: str, what: str):
        self.name, self.what = name, what
        self.since = time.monotonic()
        self.progress = ""


class Live(Lines):
    """Failures and notes scroll by above the table; everything else only changes the table."""

    def __init__(self, graph: Graph, store: Store):
        super().__init__(graph)
        from rich.live import Live as RichLive

        self._store = store
        # Not the lock held while printing: printing takes rich's lock, under which rich renders the table.
        self._state = threading.Lock()
        self._total = len(graph.nodes)
        self._done: dict[str, int] = {}
        self._running: dict[str, _Running] = {}
        self._console = make_console()
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._reader = threading.Thread(target=self._read_progress, name="progress", daemon=True)
        self._live = RichLive(
            get_renderable=self._render,
            console=self._console,
            refresh_per_second=_REFRESHES_PER_S,
            transient=True,
            redirect_stderr=False,
        )

    def __enter__(self) -> "Live":
        self._reader.start()
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._live.stop()

    def event(self, event: StepEvent) -> None:
        """Move the step within the table."""
        with self._state:
            if event.kind in ("started", "waiting", "retrying"):
                self._running[event.directory] = _Running(self._shown.get(event.directory, event.name), event.text)
            elif event.kind not in ("note", "stopping"):
                self._running.pop(event.directory, None)
                self._done[event.kind] = self._done.get(event.kind, 0) + 1
        if event.kind in ("built", "adopted", "retrying", "failed", "stopped", "note", "stopping"):
            super().event(event)

    def _emit(self, line: str) -> None:
        self._console.print(line)

    def _render(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        with self._state:
            rows = list(self._running.values())
            counts = dict(self._done)
        ended = sum(counts.values())
        parts = [f"{ended} of {self._total} steps", *(f"{n} {kind}" for kind, n in counts.items())]
        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for row in rows[:_ROWS]:
            table.add_row(
                Text(row.name, style="bold"),
                human_duration(now - row.since),
                Text(row.progress or row.what, style="dim"),
            )
        if len(rows) > _ROWS:
            table.add_row(f"and {len(rows) - _ROWS} more")
        table.add_row(Text(", ".join(parts), style="cyan"), human_duration(now - self._started), "")
        return table

    def _read_progress(self) -> None:
        """Runs in a thread of its own: storage may be slow, and the table must not be."""
        while not self._stop.wait(_PROGRESS_EVERY_S):
            with self._state:
                shown = list(self._running.items())[:_ROWS]
            for directory, row in shown:
                row.progress = _progress_text(self._store, directory)


def _progress_text(store: Store, directory: str) -> str:
    try:
        attempts = list_attempts(store, directory)
        if not attempts:
            return ""
        key = f"{attempt_directory(directory, attempts[-1])}/progress.json"
        progress: Progress = parse(Progress, store.read(key).data, key=key)
    except NotFound:
        return ""
    except StorageError as error:
        # Only the display suffers; the launch itself meets and reports the same trouble.
        return f"(progress unknown: {type(error).__name__})"
    amount = f"{progress.done:,g}" + (f" of {progress.total:,g}" if progress.total is not None else "")
    return f"{amount} {progress.unit} {progress.message}".rstrip()
