"""One thread that copies what all running bodies print from their pipes to their logs."""

import os
import selectors
import threading
import time

from marin_pipe.execution.backends.base import LogSink

_READ_BYTES = 1 << 16
_FULL_BYTES = 1 << 15
_PAUSE_S = 0.01
"""Lines printed one by one are then copied in batches: waking up for each would cost more than the step."""


class Stream:
    """The read end of one body's pipe."""

    def __init__(self, pump: "Pump", descriptor: int, sink: LogSink) -> None:
        self._pump, self._descriptor, self._sink = pump, descriptor, sink
        self._lock = threading.Lock()
        self._open = True

    def finish(self) -> None:
        """Copy what is in the pipe and close it. Processes the body left behind can no longer write to the log."""
        self._pump.detach(self._descriptor)
        with self._lock:
            # At most what a pipe holds: a process that never stops writing cannot keep us here.
            for _ in range(_DRAIN_READS):
                if not self._copy():
                    break
            self._open = False
            os.close(self._descriptor)

    def copy(self) -> bool:
        """Copy once; whether more is likely waiting."""
        with self._lock:
            return self._open and self._copy() >= _FULL_BYTES

    def _copy(self) -> int:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._sink.write(data)
        return len(data)


_DRAIN_READS = 64


class Pump:
    """Starts its thread with the first stream."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def attach(self, descriptor: int, sink: LogSink) -> Stream:
        """Copy from `descriptor` to `sink` until the stream is finished; takes the descriptor over."""
        os.set_blocking(descriptor, False)
        stream = Stream(self, descriptor, sink)
        with self._lock:
            self._selector.register(descriptor, selectors.EVENT_READ, stream)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="marin_pipe-pump", daemon=True)
                self._thread.start()
        return stream

    def detach(self, descriptor: int) -> None:
        with self._lock:
            self._selector.unregister(descriptor)

    def close(self) -> None:
        """End the thread. All streams must be finished."""
        if self._closed:
            return
        self._closed = True
        os.write(self._wake_write, b"x")
        if self._thread is not None:
            self._thread.join()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _loop(self) -> None:
        while not self._closed:
            # Streams come and go while this waits: epoll and kqueue allow it.
            full = [key.data.copy() for key, _ in self._selector.select() if key.data is not None]
            if full and not any(full):
                time.sleep(_PAUSE_S)
