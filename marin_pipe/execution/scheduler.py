"""An event-driven scheduler: starts ready work, longest path first, as far as slots and resources allow.

It knows nothing of processes, storage or steps. All callbacks run in the thread that calls `loop`; nothing polls.
"""

import heapq
import itertools
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marin_pipe.execution.machine import Grant, Pool
from marin_pipe.execution.resources import Resource

PASSES = 16
"""How often work that does not fit at the moment may be overtaken by work that does, before it holds the queue."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Something to run once there is room for it."""

    priority: int
    """Higher starts first."""
    ask: Resource
    run: Callable[[Grant], Any]
    """Called in a thread of the scheduler (or in the loop's own thread, see `Scheduler`)."""
    done: Callable[[Any], None]
    """Called in the loop's thread with what `run` returned."""


@dataclass(slots=True)
class _Queued:
    work: Work
    passed: int = 0


class Scheduler:
    """Runs `Work` in at most `max_concurrent` threads, within the pool's resources.

    Args:
        in_caller_thread: run work in the thread that calls `loop`, one at a time (for bodies that need the terminal).
    """

    def __init__(self, pool: Pool, *, max_concurrent: int, in_caller_thread: bool = False):
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent={max_concurrent} must be at least 1")
        self._pool = pool
        self._max_concurrent = 1 if in_caller_thread else max_concurrent
        self.in_caller_thread = in_caller_thread
        self._ready: list[tuple[int, int, _Queued]] = []
        self._order = itertools.count()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[tuple[Work, Grant] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._expected = 0

    def submit(self, work: Work) -> None:
        """Queue work. Called from the loop's thread, or before it starts."""
        heapq.heappush(self._ready, (-work.priority, next(self._order), _Queued(work)))

    def post(self, event: Callable[[], None]) -> None:
        """Have `event` called in the loop's thread. Safe from any thread and from signal handlers."""
        self._events.put(event)

    def expect(self) -> Callable[[Callable[[], None]], None]:
        """Announce an event from outside: the loop does not end before the returned function has posted it."""
        self._expected += 1

        def arrived(event: Callable[[], None]) -> None:
            def receive() -> None:
                self._expected -= 1
                event()

            self.post(receive)

        return arrived

    def drain(self) -> None:
        """Start nothing more of what is queued."""
        self._ready.clear()

    def loop(self) -> None:
        """Run until nothing is queued, running or expected."""
        try:
            while True:
                self._start()
                if not self._running and not self._ready and not self._expected and self._events.empty():
                    return
                self._events.get()()
        finally:
            for _ in self._threads:
                self._jobs.put(None)

    def _start(self) -> None:
        overtaken: list[tuple[int, int, _Queued]] = []
        while self._ready and self._running < self._max_concurrent:
            item = heapq.heappop(self._ready)
            queued = item[2]
            grant = self._pool.take(queued.work.ask)
            if grant is None:
                overtaken.append(item)
                if queued.passed >= PASSES:
                    break
                continue
            for earlier in overtaken:
                earlier[2].passed += 1
            self._launch(queued.work, grant)
        for item in overtaken:
            heapq.heappush(self._ready, item)

    def _launch(self, work: Work, grant: Grant) -> None:
        self._running += 1
        if self.in_caller_thread:
            self._execute(work, grant)
            return
        if len(self._threads) < self._running:
            thread = threading.Thread(target=self._serve, name=f"step-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put((work, grant))

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._execute(*job)

    def _execute(self, work: Work, grant: Grant) -> None:
        try:
            result = work.run(grant)
        except BaseException as error:
            failure = error

            def fail() -> None:
                self._finish(grant)
                raise failure

            self.post(fail)
            return

        def finish() -> None:
            self._finish(grant)
            work.done(result)

        self.post(finish)

    def _finish(self, grant: Grant) -> None:
        self._running -= 1
        self._pool.give(grant)
