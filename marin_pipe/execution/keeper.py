"""Heartbeats for the leases a process holds. One timer thread; each beat runs in a thread of its own, so that a store
that hangs for one lease does not silence the others."""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from marin_storage import Conflict, StorageError, Store

from marin_pipe.execution import lease as leases
from marin_pipe.execution.lease import Held, LeaseTimes, boottime

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """What a holder wants to know. Called from the keeper's threads."""

    lost: Callable[[str], None]
    """The lease is gone, or could not be renewed in time; the argument says which."""
    cancelled: Callable[[str], None]
    """Somebody asked through the lease to stop; the argument says who."""


class Holding:
    """A held lease that is kept alive until `release`."""

    def __init__(self, keeper: "Keeper", held: Held, callbacks: Callbacks):
        self._keeper = keeper
        self._callbacks = callbacks
        self._lock = threading.Lock()  # one storage write to this lease at a time
        self._held = held
        self.due = 0.0
        self.lost: str | None = None
        self._cancel_told = False

    @property
    def held(self) -> Held:
        return self._held

    @property
    def confirmed_s(self) -> float:
        """When storage last confirmed the lease, by this machine's clock."""
        return self._held.confirmed_s

    def renew(self) -> None:
        """Begin a further epoch. Conflict if the lease was lost."""
        with self._lock:
            self._held = leases.renew(self._keeper.store, self._held)

    def release(self) -> None:
        """Stop beating and give the lease up; a lost lease is left alone.

        What the step came to stands already, so a store that fails here costs others a wait and nothing else.
        """
        self._keeper.forget(self)
        with self._lock:
            if self.lost is None:
                try:
                    leases.release(self._keeper.store, self._held)
                except Conflict:
                    # Taken over a moment ago: the commit decides, not the lease.
                    logger.info("lease of %s was taken over before its release", self._held.directory)
                except StorageError as error:
                    logger.warning(
                        "the lease of %s could not be released, others wait until it expires: %s",
                        self._held.directory,
                        error,
                    )

    def beat(self) -> None:
        with self._lock:
            if self.lost is not None:
                return
            try:
                self._held = leases.beat(self._keeper.beat_store, self._held)
            except Conflict as error:
                self.lose(f"another owner took it: {error}")
                return
            except StorageError as error:
                # Not lost yet: the next beat comes soon, and the keeper watches the deadline.
                logger.warning("heartbeat of %s failed, trying again: %s", self._held.directory, error)
                self._keeper.soon(self)
                return
            cancel = self._held.lease.cancel
        if cancel is not None and not self._cancel_told:
            self._cancel_told = True
            self._callbacks.cancelled(cancel)

    def lose(self, why: str) -> None:
        """Declare the lease lost, once."""
        if self.lost is None:
            self.lost = why
            self._keeper.forget(self)
            self._callbacks.lost(why)


class Keeper:
    """Keeps leases alive."""

    def __init__(self, store: Store, times: LeaseTimes):
        self.store = store
        self.times = times
        # A beat that takes longer than the time between beats is better tried again.
        self.beat_store = store.with_deadline(times.beat_s)
        self._condition = threading.Condition()
        self._holdings: set[Holding] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    def hold(self, held: Held, callbacks: Callbacks) -> Holding:
        """Keep `held` alive until the holding is released."""
        holding = Holding(self, held, callbacks)
        holding.due = holding.confirmed_s + self._interval()
        with self._condition:
            self._holdings.add(holding)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)
                self._thread.start()
        return holding

    def forget(self, holding: Holding) -> None:
        with self._condition:
            self._holdings.discard(holding)

    def soon(self, holding: Holding) -> None:
        """Beat again after a short while instead of at the next regular time."""
        with self._condition:
            holding.due = boottime() + self.times.beat_s / 5
            self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _interval(self) -> float:
        return self.times.beat_s * random.uniform(0.8, 1.0)  # noqa: S311  jitter, not a secret

    def tick(self) -> None:
        """Start the beats that are due, and declare lost what was not confirmed for too long."""
        with self._condition:
            now = boottime()
            expired = [h for h in self._holdings if now - h.confirmed_s >= self.times.give_up_s]
            due = [h for h in self._holdings if h.due <= now and h not in expired]
            for holding in due:
                holding.due = now + self._interval()
        for holding in expired:
            holding.lose(f"no heartbeat reached storage for {self.times.give_up_s:.0f} s")
        for holding in due:
            threading.Thread(target=holding.beat, name="lease-beat", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.tick()
            with self._condition:
                if self._closed:
                    return
                self._condition.wait(self._until_next())

    def _until_next(self) -> float:
        now = boottime()
        # A new holding needs its first beat only after an interval, so waking this often misses none.
        wake = now + self.times.beat_s / 2
        for holding in self._holdings:
            wake = min(wake, holding.due, holding.confirmed_s + self.times.give_up_s)
        return max(wake - now, 0.001)
