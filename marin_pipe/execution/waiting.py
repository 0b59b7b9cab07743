"""Waits for steps of other live owners: looks at their leases now and then, and says when one is worth another try."""

import logging
import threading
from collections.abc import Callable

from marin_storage import StorageError, Store

from marin_pipe.execution.lease import Taken, Watch
from marin_pipe.execution.observe import read_lease
from marin_pipe.execution.records import Lease

logger = logging.getLogger(__name__)

FIRST_LOOK_S = {True: 0.05, False: 1.0}
SLOWEST_LOOK_S = {True: 1.0, False: 10.0}
"""By whether the store is on this machine: a look costs nothing here and a request elsewhere."""


class LeaseWatcher:
    """One waiting thread per occupied step. Storage has no notifications, so waiting means looking."""

    def __init__(self, store: Store):
        self._store = store
        self._local = store.local_path("") is not None or store.url.startswith("memory:")
        self._closed = threading.Event()

    def watch(self, directory: str, watch: Watch, taken: Taken, then: Callable[[], None]) -> None:
        """Call `then` (from a thread) once the lease was released or its owner is believed dead."""
        thread = threading.Thread(
            target=self._wait, args=(directory, watch, taken, then), name="lease-watch", daemon=True
        )
        thread.start()

    def close(self) -> None:
        """Wake all waiting threads; each calls its `then`."""
        self._closed.set()

    def _wait(self, directory: str, watch: Watch, taken: Taken, then: Callable[[], None]) -> None:
        pause_s = FIRST_LOOK_S[self._local]
        current: tuple[Lease, str] | None = (taken.lease, taken.version)
        while current is not None and current[0].owner is not None:
            if watch.expired(Taken(lease=current[0], version=current[1])) or self._closed.wait(pause_s):
                break
            pause_s = min(pause_s * 1.5, SLOWEST_LOOK_S[self._local])
            try:
                current = read_lease(self._store, directory)
            except StorageError as error:
                logger.warning("cannot look at the lease of %s, trying again: %s", directory, error)
        then()
