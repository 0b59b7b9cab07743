"""Real processes that race for one object: exactly one wins, and it is the one that is told so."""

from collections.abc import Callable

import pytest
import racers
from marin_storage import open_store


@pytest.mark.parametrize(
    ("kind", "num_processes", "num_turns"),
    [
        ("local", 2, 50),
        ("local", 8, 20),
        ("gcs", 2, 10),
        ("s3", 2, 10),
        pytest.param("gcs", 8, 20, marks=pytest.mark.slow),
        pytest.param("s3", 8, 20, marks=pytest.mark.slow),
        pytest.param("seaweed", 4, 3, marks=pytest.mark.slow),
    ],
)
def test_one_process_wins(kind: str, num_processes: int, num_turns: int, open_root: Callable[[str], str]) -> None:
    url = open_root(kind)
    store = open_store(url)
    store.create("replaced", b"start")
    won = racers.race(url, num_processes, num_turns)
    for winners in (*won[racers.CREATE], *won[racers.REPLACE]):
        assert sum(winners) == 1
    for turn, winners in enumerate(won[racers.CREATE]):
        assert store.read(f"created/{turn}").data == racers.body(winners.index(True), turn)
    last = num_turns - 1
    assert store.read("replaced").data == racers.body(won[racers.REPLACE][last].index(True), last)
