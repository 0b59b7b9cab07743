"""Batches made by a thread, ahead of the one that trains."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType

from marin_corpus.errors import BadConfig
from marin_corpus.loader.rows import Batch
from marin_corpus.order.permutation import Integers

# Batches that stores are asked to fetch ahead of the one being read: requests to an object store overlap.
_FETCHED_AHEAD = 4


class BatchIterator(Iterator[tuple[int, Batch]]):
    """(step, batch) from a thread that keeps `depth` of them ready. Ends before `stop_step`; None: never.

    What goes wrong in the thread is raised by `next`, behind the batches that were made before. `close`, or leaving
    a `with` block, ends the thread; `next` then ends the iteration.
    """

    def __init__(
        self,
        *,
        indices: Callable[[int], Integers],
        read: Callable[[Integers], Batch],
        prefetch: Callable[[Integers], None],
        start_step: int,
        stop_step: int | None,
        depth: int,
    ):
        if depth < 1:
            raise BadConfig(f"Loader.iterate: depth={depth} must be at least 1")
        self._ready: deque[tuple[int, Batch] | BaseException | None] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._depth = depth
        self._thread = threading.Thread(
            target=self._work, args=(indices, read, prefetch, start_step, stop_step), name="loader", daemon=True
        )
        self._thread.start()

    def __next__(self) -> tuple[int, Batch]:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._closed)
            if self._closed:
                raise StopIteration
            # An end or an error stays: whoever asks again gets it again.
            first = self._ready[0]
            if first is None:
                raise StopIteration
            if isinstance(first, BaseException):
                raise first
            self._ready.popleft()
            self._changed.notify_all()
            return first

    def close(self) -> None:
        """End the thread. It finishes the read it is in; no batch is handed out any more."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> "BatchIterator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _work(
        self,
        indices: Callable[[int], Integers],
        read: Callable[[Integers], Batch],
        prefetch: Callable[[Integers], None],
        step: int,
        stop_step: int | None,
    ) -> None:
        try:
            fetched = step
            while stop_step is None or step < stop_step:
                while fetched <= step + _FETCHED_AHEAD and (stop_step is None or fetched < stop_step):
                    # What cannot be read is reported when its turn comes, not before.
                    wanted = _or_none(indices, fetched)
                    if wanted is not None:
                        prefetch(wanted)
                    fetched += 1
                if not self._hand_over((step, read(indices(step)))):
                    return
                step += 1
            self._hand_over(None)
        except BaseException as error:
            # Anything at all: the thread that trains must not wait for ever.
            self._hand_over(error)

    def _hand_over(self, item: tuple[int, Batch] | BaseException | None) -> bool:
        """Wait for room and add an item; False if the iterator was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._ready) < self._depth)
            if not self._closed:
                self._ready.append(item)
                self._changed.notify_all()
            return not self._closed


def _or_none(indices: Callable[[int], Integers], step: int) -> Integers | None:
    try:
        return indices(step)
    except BadConfig:
        return None
