"""Processes that race for the same objects. A module of its own, so that spawned processes can import it."""

import multiprocessing
import sys
from collections.abc import Sequence
from typing import Any

from marin_storage import AlreadyExists, Conflict, open_store

CREATE, REPLACE = "create", "replace"


def race(url: str, num_processes: int, num_turns: int) -> dict[str, list[list[bool]]]:
    """Race to create an object and to replace one, in spawned processes: for each turn, which racers won."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(num_processes, timeout=60), context.Queue()
    racers = [
        context.Process(target=_race, args=(sys.path, url, racer, num_turns, barrier, results), daemon=True)
        for racer in range(num_processes)
    ]
    for process in racers:
        process.start()
    won = dict(results.get(timeout=60) for _ in racers)
    for process in racers:
        process.join(timeout=60)
        assert process.exitcode == 0
    results.close()
    return {
        kind: [[won[racer][kind][turn] for racer in range(num_processes)] for turn in range(num_turns)]
        for kind in (CREATE, REPLACE)
    }


def body(racer: int, turn: int) -> bytes:
    return f"turn {turn}, by {racer}".encode()


def _race(path: Sequence[str], url: str, racer: int, num_turns: int, barrier: Any, results: Any) -> None:
    sys.path[:] = path
    store = open_store(url)
    won: dict[str, list[bool]] = {CREATE: [], REPLACE: []}
    for turn in range(num_turns):
        data = body(racer, turn)
        version = store.read("replaced").version
        barrier.wait()
        try:
            store.create(f"created/{turn}", data)
            won[CREATE].append(True)
        except AlreadyExists:
            won[CREATE].append(False)
        barrier.wait()
        try:
            store.replace("replaced", data, version=version)
            won[REPLACE].append(True)
        except Conflict:
            won[REPLACE].append(False)
        barrier.wait()
    results.put((racer, won))
