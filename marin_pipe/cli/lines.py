"""What happens in a launch, a line per event: for logs, pipes and terminals that cannot redraw."""

import sys
import threading
from collections import Counter
from types import TracebackType

from marin_pipe.cli.output import human_duration, print_line, shorten
from marin_pipe.execution.graph import Graph
from marin_pipe.execution.report import StepEvent

_WORDS = {
    "started": "run",
    "waiting": "wait",
    "built": "built",
    "adopted": "adopted",
    "retrying": "retry",
    "failed": "failed",
    "stopped": "stopped",
    "note": "note",
    "stopping": "stop",
}
"""Cached and blocked steps have no line of their own: the ending counts them."""


class Lines:
    """Prints events as they come, from any thread. A note that many steps share is printed once, and counted."""

    def __init__(self, graph: Graph) -> None:
        self._shown = {node.directory: node.shown for node in graph.nodes}
        self._lock = threading.Lock()
        self._notes: Counter[str] = Counter()
        self._broken = False

    def __enter__(self) -> "Lines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def event(self, event: StepEvent) -> None:
        """Show one event."""
        with self._lock:
            if event.kind == "note":
                self._notes[event.text] += 1
                if self._notes[event.text] > 1:
                    return
            line = describe(event, name=self._shown.get(event.directory, event.name))
            if line is not None:
                self._emit(line)

    def tell(self, word: str, text: str) -> None:
        """A line about the launch as a whole."""
        with self._lock:
            self._emit(f"{word:<8}{text}")

    def finish(self) -> None:
        """After the launch: the notes that stood for several steps."""
        for text, count in self._notes.items():
            if count > 1:
                self._emit(f"{'note':<8}{count - 1} more with the same note: {text}")

    def _emit(self, line: str) -> None:
        if self._broken:
            return
        try:
            print_line(line)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader left (`| head`): the steps are worth finishing all the same. The ending then exits as such.
            self._broken = True


def describe(event: StepEvent, *, name: str) -> str | None:
    """`built   exp/count  0.3 s`; None for an event without a line. `name`: what the step is called."""
    word = _WORDS.get(event.kind)
    if word is None:
        return None
    parts = [f"{word:<8}{name}"] if name else [word.ljust(6)]
    if event.duration_s is not None:
        parts.append(human_duration(event.duration_s))
    if event.text:
        parts.append(shorten(event.text))
    return "  ".join(parts)
