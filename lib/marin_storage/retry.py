"""When to try again, how long to wait, and what to say meanwhile."""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from marin_storage.backend import Transient
from marin_storage.errors import Unavailable, UnknownOutcome

logger = logging.getLogger("marin_storage")


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Bounds on one storage call. Clock, sleep and randomness are parameters so that tests need not wait.

    `try_s` bounds one request (transfers get a second more per MiB); no try begins `total_s` after the call.
    """

    tries: int = 8
    total_s: float = 300.0
    try_s: float = 60.0
    base_s: float = 0.5
    cap_s: float = 32.0
    log_every_s: float = 30.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"tries={self.tries} must be at least 1: the first try counts")
        for name in ("total_s", "try_s", "base_s", "cap_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive: no storage call waits without bound")

    def pause_s(self, failures: int) -> float:
        """Full jitter: uniform below an exponentially growing limit, so that clients do not return in step."""
        return self.random() * min(self.cap_s, self.base_s * 2.0 ** (failures - 1))


class RetryLog:
    """Says that a store is being retried, at most once per `log_every_s` over all calls to it."""

    def __init__(self, policy: RetryPolicy):
        self._policy = policy
        self._silent_until = float("-inf")

    def note(self, call: str, tries: str, pause_s: float, error: Exception) -> None:
        now = self._policy.clock()
        if now >= self._silent_until:
            self._silent_until = now + self._policy.log_every_s
            logger.warning("retrying (%s) in %.1f s: %s [%s]", tries, pause_s, error, call)


class Tries:
    """The state of one call that has failed at least once. Made at the first failure: successes pay nothing for it."""

    def __init__(self, policy: RetryPolicy, log: RetryLog, call: str, started_s: float):
        self._policy = policy
        self._log = log
        self._call = call
        self._failures = 0
        self._give_up_at = started_s + policy.total_s
        self._ambiguous = False

    def pause(self, error: Transient, *, mutates: bool = False) -> None:
        """Wait before the next try, or raise `Unavailable` (`UnknownOutcome` if a write may have been applied)."""
        self._failures += 1
        self._ambiguous |= mutates and error.applied is not False
        pause_s = max(self._policy.pause_s(self._failures), error.retry_after_s or 0.0)
        if self._failures >= self._policy.tries:
            self.give_up(error, f"{self._failures} tries failed")
        if self._policy.clock() + pause_s >= self._give_up_at:
            self.give_up(error, f"no success within {self._policy.total_s:g} s")
        self._log.note(self._call, f"{self._failures + 1}/{self._policy.tries}", pause_s, error)
        self._policy.sleep(pause_s)

    def give_up(self, error: Exception, why: str) -> None:
        if self._ambiguous:
            raise UnknownOutcome(
                f"{self._call}: {why}, the last with: {error}. The write may or may not have been applied: "
                f"read the object before deciding anything, and delete nothing that it may name."
            ) from error
        raise Unavailable(f"{self._call}: {why}, the last with: {error}. Try again when the store answers.") from error
