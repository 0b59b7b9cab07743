"""The live table of a launch, on a terminal that only this test sees."""

import io
import re
import threading
from collections.abc import Iterator

import pytest
from marin_storage import Store, open_store
from rich.console import Console

from marin_pipe.cli import live as module
from marin_pipe.cli.live import Live
from marin_pipe.execution.graph import Graph, build_graph
from marin_pipe.execution.records import Progress, encode
from marin_pipe.execution.report import EventKind, StepEvent
from marin_pipe.execution.step import step


@step
def number(n: int) -> int:
    return n


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    monkeypatch.setattr(module, "make_console", lambda: Console(file=out, force_terminal=True, width=100))
    return out


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    store = open_store(f"memory://{request.node.name}")
    yield store
    store.delete_tree("a-0000000000000000")


GRAPH: Graph = build_graph([number(n).named(f"n{n}") for n in range(20)])


def event(kind: EventKind, name: str, text: str = "") -> StepEvent:
    return StepEvent(kind=kind, name=name, directory=f"{name}-0000000000000000", text=text)


def shown(live: Live) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(live._render())
    return capture.get()


def test_the_table_follows_the_steps(screen: io.StringIO, store: Store) -> None:
    with Live(GRAPH, store) as live:
        live.event(event("started", "a", "no output yet"))
        live.event(event("waiting", "b", "host, pid 1 works on it"))
        live.event(event("cached", "c"))
        assert re.search(r"^a +\S+ m?s +no output yet", shown(live), re.MULTILINE)
        assert re.search(r"^b +\S+ m?s +host, pid 1 works on it", shown(live), re.MULTILINE)
        assert "1 of 20 steps, 1 cached" in shown(live)
        live.event(event("built", "a"))
        live.event(event("failed", "b", "ValueError: no"))
        assert "3 of 20 steps, 1 cached, 1 built, 1 failed" in shown(live)
        assert "works on it" not in shown(live)
    assert "failed  b  ValueError: no" in screen.getvalue()


def test_a_stop_is_announced_and_is_the_end_of_no_step(screen: io.StringIO, store: Store) -> None:
    with Live(GRAPH, store) as live:
        live.event(event("started", "a", "no output yet"))
        live.event(StepEvent(kind="stopping", name="", directory="", text="Ctrl-C: steps save"))
        assert "0 of 20 steps" in shown(live)
        assert re.search(r"^a +", shown(live), re.MULTILINE)
        live.tell("root", "/x is new")
    assert "stop    Ctrl-C: steps save\n" in screen.getvalue().replace("\r", "")
    assert "root    /x is new" in screen.getvalue()


@pytest.mark.usefixtures("screen")
def test_many_running_steps_do_not_fill_the_screen(store: Store) -> None:
    with Live(GRAPH, store) as live:
        for n in range(20):
            live.event(event("started", f"n{n}"))
        assert len(shown(live).splitlines()) == 14
        assert "and 8 more" in shown(live)


@pytest.mark.usefixtures("screen")
def test_progress_comes_from_storage(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRESS_EVERY_S", 0.01)
    progress = Progress(done=1500, total=3000, unit="documents", updated=0.0, message="cleaning")
    store.create("a-0000000000000000/attempts/000001-aaaaaa/progress.json", encode(progress))
    with Live(GRAPH, store) as live:
        live.event(event("started", "a", "no output yet"))
        while "1,500 of 3,000 documents cleaning" not in (table := shown(live)):
            assert "no output yet" in table


def test_events_from_many_threads_never_lock_each_other_out(
    screen: io.StringIO, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REFRESHES_PER_S", 1000)
    with Live(GRAPH, store) as live:

        def work(name: str) -> None:
            for n in range(100):
                live.event(event("started", f"{name}{n}"))
                live.event(event("built", f"{name}{n}"))

        threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in "xyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert not any(thread.is_alive() for thread in threads)
        assert "300 of 20 steps, 300 built" in shown(live)
    assert screen.getvalue().count("built   x") == 100
