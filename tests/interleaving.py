"""Threads that take turns, one at a time, in an order drawn from a seed: a schedule that fails, fails again."""

import random
import threading
from collections.abc import Callable, Sequence


class Stuck(AssertionError):
    """A schedule went on for too long without an end."""


class _Abandoned(BaseException):
    """Ends the threads of a schedule that has failed."""


class Interleaving:
    """Runs functions in threads of their own; each runs until it calls `pause`, when the next is drawn.

    A player's weight says how often it is drawn: a light one sleeps through most of what the others do.
    """

    def __init__(self, rng: random.Random, *, max_turns: int = 5000):
        self._rng = rng
        self._turns_left = max_turns
        self._locks: dict[int, threading.Lock] = {}
        self._weights: dict[int, float] = {}
        self._ended = threading.Lock()
        self._error: BaseException | None = None
        self._local = threading.local()

    def run(self, players: Sequence[Callable[[], None]], *, weights: Sequence[float]) -> None:
        """Return when all players have; raise the first error of one."""
        self._ended.acquire()
        threads = []
        for number, (player, weight) in enumerate(zip(players, weights, strict=True)):
            lock = self._locks[number] = threading.Lock()
            lock.acquire()
            self._weights[number] = weight
            threads.append(threading.Thread(target=self._play, args=(number, player)))
        for thread in threads:
            thread.start()
        self._hand_over(None)
        self._ended.acquire()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Let another player go on, or the same. Outside a player it does nothing."""
        mine = getattr(self._local, "number", None)
        if mine is not None:
            self._hand_over(mine)
            if self._error is not None:
                raise _Abandoned

    def _play(self, number: int, player: Callable[[], None]) -> None:
        self._local.number = number
        self._locks[number].acquire()
        try:
            if self._error is None:
                player()
        except _Abandoned:
            pass
        except BaseException as error:
            self._error = self._error or error
        del self._weights[number]
        if self._weights:
            self._hand_over(None)
        else:
            self._ended.release()

    def _hand_over(self, mine: int | None) -> None:
        self._turns_left -= 1
        if self._turns_left < 0 and self._error is None:
            self._error = Stuck("the schedule does not come to an end")
        numbers = list(self._weights)
        number = self._rng.choices(numbers, weights=list(self._weights.values()))[0] if len(numbers) > 1 else numbers[0]
        if number == mine:
            return
        self._locks[number].release()
        if mine is not None:
            self._locks[mine].acquire()
