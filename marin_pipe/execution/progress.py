"""`ctx.progress(total, unit)`: how far a body is, kept in the attempt's `progress.json` for whoever watches."""

import threading
import time
from types import TracebackType

from marin_storage import StorageError, Store

from marin_pipe.execution.errors import plain_text
from marin_pipe.execution.records import Progress as ProgressRecord
from marin_pipe.execution.records import encode
from marin_pipe.execution.secret import redact, refuse_secrets_in_result
from marin_pipe.execution.segments import FLUSHER

WRITE_EVERY_S = 2.0


class Progress:
    """Counts towards `total`. Written in the background at most every 2 s, and at the end. Thread-safe.

    Also a context manager that writes the last count when it ends.
    """

    def __init__(self, store: Store, key: str, *, total: float | None, unit: str) -> None:
        refuse_secrets_in_result(unit, where="the unit of the progress")
        self._store, self._key = store, key
        self.total, self.unit = total, plain_text(unit)
        self.done: float = 0
        self.message = ""
        self._lock = threading.Lock()
        self._written: tuple[float, str] | None = None

    def update(self, count: float = 1, message: str | None = None) -> None:
        """Add `count`."""
        with self._lock:
            self.done += count
        self._changed(message)

    def set(self, done: float, message: str | None = None) -> None:
        """Say how much is done in all."""
        self.done = done
        self._changed(message)

    def close(self) -> None:
        """Write the last count. Idempotent."""
        FLUSHER.cancel(self._write_in_background)
        self._write()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _changed(self, message: str | None) -> None:
        if message is not None:
            self.message = redact(plain_text(message))
        FLUSHER.schedule(self._write_in_background, delay_s=WRITE_EVERY_S)

    def _write_in_background(self) -> None:
        try:
            self._write()
        except StorageError:
            # Only a display: tried again with the next count, and `close` raises what lasts.
            FLUSHER.schedule(self._write_in_background, delay_s=WRITE_EVERY_S)

    def _write(self) -> None:
        with self._lock:
            now = (self.done, self.message)
            if now == self._written:
                return
            record = ProgressRecord(
                done=self.done, total=self.total, unit=self.unit, updated=time.time(), message=self.message
            )
            self._store.write(self._key, encode(record))
            self._written = now
