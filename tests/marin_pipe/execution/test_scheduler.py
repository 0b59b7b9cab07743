"""The scheduler on plain functions: order, bounds, resources, events; no step and no process."""

import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_pipe import CPU, GPU
from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.machine import Capacity, Grant, Pool
from marin_pipe.execution.scheduler import PASSES, Scheduler, Work


def make(cpus: float = 4, gpus: int = 0, *, max_concurrent: int = 4, inline: bool = False) -> Scheduler:
    pool = Pool(Capacity(cpus=cpus, memory_bytes=2**30, gpus=tuple(range(gpus)), gpu_kind="NVIDIA H100"))
    return Scheduler(pool, max_concurrent=max_concurrent, in_caller_thread=inline)


def work(run: Any, *, priority: int = 0, ask: Any = None, done: Any = None) -> Work:
    return Work(priority=priority, ask=ask or CPU(1), run=run, done=done or (lambda _: None))


def test_longest_path_starts_first() -> None:
    started: list[int] = []
    scheduler = make(max_concurrent=1)
    priorities = list(range(20))
    random.Random(7).shuffle(priorities)
    for priority in priorities:
        scheduler.submit(work(lambda _, p=priority: started.append(p), priority=priority))
    scheduler.loop()
    assert started == sorted(priorities, reverse=True)


@given(
    asks=st.lists(
        st.sampled_from([CPU(1), CPU(2), CPU(3), CPU(4), CPU(1, memory="512MiB"), GPU(count=1)]), max_size=30
    ),
    limit=st.integers(1, 5),
)
def test_never_more_at_once_than_the_machine_has(asks: list[Any], limit: int) -> None:
    lock = threading.Lock()
    now = {"cpus": 0.0, "memory": 0, "jobs": 0, "most": 0}
    devices: set[int] = set()
    scheduler = make(cpus=4, gpus=2, max_concurrent=limit)
    ended: list[Any] = []

    def body(grant: Grant) -> Any:
        with lock:
            now["cpus"] += grant.ask.count if isinstance(grant.ask, CPU) else grant.ask.cpus  # type: ignore[union-attr]
            now["memory"] += grant.ask.memory_bytes
            now["jobs"] += 1
            now["most"] = max(now["most"], now["jobs"])
            assert now["cpus"] <= 4
            assert now["memory"] <= 2**30
            assert not devices & set(grant.devices)
            devices.update(grant.devices)
        with lock:
            now["cpus"] -= grant.ask.count if isinstance(grant.ask, CPU) else grant.ask.cpus  # type: ignore[union-attr]
            now["memory"] -= grant.ask.memory_bytes
            now["jobs"] -= 1
            devices.difference_update(grant.devices)
        return grant.ask

    for ask in asks:
        scheduler.submit(work(body, ask=ask, done=ended.append))
    scheduler.loop()
    assert sorted(map(repr, ended)) == sorted(map(repr, asks))
    assert now["most"] <= limit


def test_big_work_is_not_starved_by_small_work() -> None:
    order: list[str] = []
    scheduler = make(cpus=2, max_concurrent=2)
    small_left = [200]

    def small_done(_: Any) -> None:
        # Every small job that ends brings another one: an endless stream as seen by the big one.
        if small_left[0]:
            small_left[0] -= 1
            scheduler.submit(work(lambda _g: order.append("small"), priority=5, done=small_done))

    for _ in range(2):
        scheduler.submit(work(lambda _g: order.append("small"), priority=5, done=small_done))
    scheduler.submit(work(lambda _g: order.append("big"), priority=9, ask=CPU(2)))
    # The big one does not fit from the moment a small one runs.
    scheduler.loop()
    assert order.index("big") <= 3 * PASSES


def test_work_submitted_by_an_end_runs_too_and_the_loop_ends() -> None:
    seen: list[int] = []
    scheduler = make()

    def chain(n: int) -> Work:
        def done(value: int) -> None:
            seen.append(value)
            if n < 50:
                scheduler.submit(chain(n + 1))

        return work(lambda _: n, done=done)

    scheduler.submit(chain(0))
    scheduler.loop()
    assert seen == list(range(51))


def test_the_loop_waits_for_what_is_expected_from_outside() -> None:
    scheduler = make()
    arrived = scheduler.expect()
    seen: list[str] = []
    thread = threading.Timer(0.05, lambda: arrived(lambda: seen.append("event")))
    thread.start()
    scheduler.loop()
    thread.join()
    assert seen == ["event"]


def test_drain_keeps_what_runs_and_starts_nothing_more() -> None:
    seen: list[str] = []
    scheduler = make(max_concurrent=1)

    def first(_: Grant) -> None:
        seen.append("first")
        scheduler.post(scheduler.drain)

    scheduler.submit(work(first, priority=2))
    scheduler.submit(work(lambda _: seen.append("second"), priority=1))
    # The event of the drain is queued before the end of the first, which frees the only slot.
    scheduler.loop()
    assert seen == ["first"]


def test_inline_runs_in_the_thread_of_the_loop() -> None:
    threads: list[threading.Thread] = []
    scheduler = make(inline=True)
    for _ in range(3):
        scheduler.submit(work(lambda _: threads.append(threading.current_thread())))
    scheduler.loop()
    assert threads == [threading.current_thread()] * 3


def test_an_error_of_the_engine_itself_is_raised_by_the_loop() -> None:
    scheduler = make()
    scheduler.submit(work(lambda _: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        scheduler.loop()


def test_first_alternative_that_the_machine_has_is_chosen() -> None:
    pool = Pool(Capacity(cpus=2, memory_bytes=2**30, gpus=(0,), gpu_kind="NVIDIA H100 80GB HBM3"))
    assert pool.choose((GPU("H100", count=8), GPU("H100"), CPU(1)), step="train") == GPU("H100")
    with pytest.raises(ConfigurationError, match=r"train asks for what this machine does not have.*there are 1 GPUs"):
        pool.choose((GPU("H100", count=8),), step="train")
    with pytest.raises(ConfigurationError, match=r"memory is 1\.0 GiB"):
        pool.choose((CPU(1, memory="2GiB"),), step="train")
