"""Resumable shards: nothing is done twice, nothing stale or damaged is taken over, bytes do not depend on workers."""

import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marin_storage import open_store

from marin_pipe import run, step
from marin_pipe.execution.context import StepContext
from marin_pipe.execution.errors import ConfigurationError, GraphError
from marin_pipe.execution.shards import ShardsStopped, process_shards


def shout(text: str, path: Path) -> dict[str, int]:
    """Write `text` in capitals."""
    path.write_text(text.upper())
    return {"characters": len(text)}


def fail_on_bad(text: str, path: Path) -> int:
    if text == "bad" and not os.environ.get("SHARDS_REPAIRED"):
        path.write_text("half of")
        raise ValueError("bad shard")
    # One line a call: how often each shard was made.
    with open(os.environ["SHARDS_CALLS"], "a") as calls:
        calls.write(f"{text}\n")
    path.write_text(text.upper())
    return len(text)


def write_index_or_itself(text: str, path: Path) -> None:
    """A file of the shard's own name if that has a suffix, else an index beside it."""
    (path if path.suffix else path.with_name(path.name + ".idx")).write_text(text)


def write_nothing(text: str, path: Path) -> None:
    del text, path


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class Attempts:
    """Attempts of one step below a directory, each of which sees the work of those before."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    def next(self, **options: Any) -> StepContext:
        earlier = [f"work/{number}" for number in range(self.count, 0, -1)]
        self.count += 1
        return StepContext(
            store=open_store(str(self.root)),
            name="shards",
            attempt_key=f"attempts/{self.count}",
            work_key=f"work/{self.count}",
            earlier_work_keys=earlier,
            **options,
        )

    @property
    def output(self) -> Path:
        return self.root / f"attempts/{self.count}/output"


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "root")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    file = tmp_path / "calls"
    file.touch()
    monkeypatch.setenv("SHARDS_CALLS", str(file))

    def take() -> list[str]:
        made = file.read_text().split()
        file.write_text("")
        return made

    return take


def test_files_and_summaries(attempts: Attempts) -> None:
    shards = {"b.txt": "bb", "sub/a b.txt": "a", "c.txt": "ccc"}
    summaries = process_shards(attempts.next(), shards, shout)
    assert list(summaries.items()) == [(name, {"characters": len(text)}) for name, text in shards.items()]
    assert files(attempts.output) == {name: text.upper().encode() for name, text in shards.items()}


def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    shards = {f"part-{number}": f"text {number}" for number in range(5)}
    results = []
    for workers in (1, 2):
        attempts = Attempts(tmp_path / str(workers))
        summaries = process_shards(attempts.next(), shards, shout, workers=workers)
        results.append((list(summaries.items()), files(attempts.output)))
    assert results[0] == results[1]


def test_only_unfinished_shards_are_made_again(
    attempts: Attempts, calls: Callable[[], list[str]], monkeypatch: Any
) -> None:
    shards = {"1": "one", "2": "two", "3": "bad", "4": "four"}
    with pytest.raises(ValueError, match="bad shard"):
        process_shards(attempts.next(), shards, fail_on_bad)
    assert calls() == ["one", "two"]
    with pytest.raises(ValueError, match="bad shard"):
        process_shards(attempts.next(), shards, fail_on_bad)
    assert calls() == []
    monkeypatch.setenv("SHARDS_REPAIRED", "1")
    summaries = process_shards(attempts.next(), shards, fail_on_bad)
    assert calls() == ["bad", "four"]
    assert summaries == {"1": 3, "2": 3, "3": 3, "4": 4}
    assert files(attempts.output) == {"1": b"ONE", "2": b"TWO", "3": b"BAD", "4": b"FOUR"}


def test_a_changed_value_is_made_again(attempts: Attempts, calls: Callable[[], list[str]]) -> None:
    process_shards(attempts.next(), {"1": "one", "2": "two"}, fail_on_bad)
    calls()
    process_shards(attempts.next(), {"1": "one", "2": "deux"}, fail_on_bad)
    assert calls() == ["deux"]


def test_changed_code_makes_all_again(attempts: Attempts) -> None:
    process_shards(attempts.next(), {"1": "one"}, write_title)
    process_shards(attempts.next(), {"1": "one"}, shout)
    assert files(attempts.output) == {"1": b"ONE"}


def write_title(text: str, path: Path) -> None:
    path.write_text(text.title())


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "remove note"])
def test_damaged_work_is_never_taken_over(attempts: Attempts, calls: Callable[[], list[str]], damage: str) -> None:
    process_shards(attempts.next(), {"1": "one", "2": "two"}, fail_on_bad)
    calls()
    # The output has its own name for the same bytes; a crash of the machine may have lost both.
    shutil.rmtree(attempts.output)
    file = attempts.root / "work/1/shards/data/1+/1"
    if damage == "flip":
        file.write_bytes(b"ONF")
    elif damage == "cut":
        file.write_bytes(b"")
    elif damage == "remove":
        file.unlink()
    else:
        (attempts.root / "work/1/shards/done/1.json").unlink()
    process_shards(attempts.next(), {"1": "one", "2": "two"}, fail_on_bad)
    assert calls() == ["one"]
    assert files(attempts.output) == {"1": b"ONE", "2": b"TWO"}


def write_index(text: str, path: Path) -> int:
    """Two files, named after the shard."""
    path.with_name(path.name + ".txt").write_text(text)
    path.with_name(path.name + ".idx").write_text(str(len(text)))
    return len(text)


def write_elsewhere(_text: str, path: Path) -> None:
    path.with_name("other").write_text("")


def write_directory(_text: str, path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_shard_may_write_several_files(attempts: Attempts, workers: int) -> None:
    shards = {"a": "one", "sub/b": "three"}
    assert process_shards(attempts.next(), shards, write_index, workers=workers) == {"a": 3, "sub/b": 5}
    expected = {"a.idx": b"3", "a.txt": b"one", "sub/b.idx": b"5", "sub/b.txt": b"three"}
    assert files(attempts.output) == expected
    shutil.rmtree(attempts.output)
    (attempts.root / "work/1/shards/data/a+/a.idx").write_bytes(b"4")
    assert process_shards(attempts.next(), shards, write_index, workers=workers) == {"a": 3, "sub/b": 5}
    assert files(attempts.output) == expected


def test_shards_of_one_place_do_not_disturb_each_other(attempts: Attempts) -> None:
    process_shards(attempts.next(), {"a/b": "inner", "a": "outer"}, write_index)
    assert files(attempts.output)["a/b.txt"] == b"inner"
    assert files(attempts.output)["a.txt"] == b"outer"


@pytest.mark.parametrize(
    ("shards", "function", "message"),
    [
        ({"a": "one"}, write_elsewhere, "must begin with 'a'"),
        ({"a": "one"}, write_directory, "writes files only"),
        ({"a": "one", "a.idx": "two"}, write_index_or_itself, "both wrote 'a.idx'"),
    ],
)
def test_files_out_of_place_are_refused(
    attempts: Attempts, shards: dict[str, str], function: Callable[[str, Path], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        process_shards(attempts.next(), shards, function)


def apply_function(value: dict[str, Any], path: Path) -> None:
    path.write_text(value["function"](value["text"]))


def test_a_changed_function_within_a_value_makes_its_shard_again(attempts: Attempts, tmp_path: Path) -> None:
    def run(source: str) -> bytes:
        (tmp_path / "user_function.py").write_text(source)
        spec = importlib.util.spec_from_file_location("user_function", tmp_path / "user_function.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["user_function"] = module
        spec.loader.exec_module(module)
        process_shards(attempts.next(), {"a": {"function": module.change, "text": "Text"}}, apply_function)
        return files(attempts.output)["a"]

    try:
        assert run("def change(text):\n    return text.upper()\n") == b"TEXT"
        assert run("def change(text):\n    return text.swapcase()\n") == b"tEXT"
    finally:
        sys.modules.pop("user_function", None)


def test_a_stop_keeps_what_is_finished(attempts: Attempts, calls: Callable[[], list[str]]) -> None:
    answers = iter([False, False, True])
    with pytest.raises(ShardsStopped):
        process_shards(attempts.next(stopped=lambda: next(answers)), {"1": "a", "2": "b", "3": "c"}, fail_on_bad)
    assert calls() == ["a", "b"]
    process_shards(attempts.next(), {"1": "a", "2": "b", "3": "c"}, fail_on_bad)
    assert calls() == ["c"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(stops=st.lists(st.integers(0, 6), max_size=4), count=st.integers(1, 6))
def test_any_history_of_stops_ends_in_the_same_bytes(
    tmp_path: Path, calls: Callable[[], list[str]], stops: list[int], count: int
) -> None:
    folder = tmp_path / hashlib.sha256(repr((stops, count)).encode()).hexdigest()[:8]
    attempts = Attempts(folder)
    shards = {f"part-{number}": f"t{number}" for number in range(count)}
    made: list[str] = []
    calls()
    for stop in [*stops, None]:
        asked = iter([False] * (99 if stop is None else stop) + [True])
        try:
            process_shards(attempts.next(stopped=lambda asked=asked: next(asked)), shards, fail_on_bad)
        except ShardsStopped:
            assert stop is not None
        made += calls()
    assert sorted(made) == sorted(shards.values())
    assert files(attempts.output) == {name: text.upper().encode() for name, text in shards.items()}


def test_a_remote_store_gets_the_same_files() -> None:
    store = open_store("memory://shards")

    def context(number: int) -> StepContext:
        return StepContext(
            store=store,
            name="shards",
            attempt_key=f"attempts/{number}",
            work_key=f"work/{number}",
            earlier_work_keys=[f"work/{n}" for n in range(number - 1, 0, -1)],
        )

    process_shards(context(1), {"sub/1": "one"}, shout)
    summaries = process_shards(context(2), {"sub/1": "one", "2": "two"}, shout)
    assert summaries == {"sub/1": {"characters": 3}, "2": {"characters": 3}}
    assert store.read("attempts/2/output/sub/1").data == b"ONE"
    assert store.read("attempts/2/output/2").data == b"TWO"
    assert "work/2/shards/data/sub/1+/1" not in [entry.key for entry in store.list_files("work/2")]


class Change(NamedTuple):
    """A shard that brings its function along."""

    text: str
    change: Callable[[str], str]


def capitals(text: str) -> str:
    return text.upper()


def apply_change(value: Change, path: Path) -> None:
    path.write_text(value.change(value.text))


def test_a_value_may_hold_a_function_that_is_declared_callable(attempts: Attempts) -> None:
    process_shards(attempts.next(), {"1": Change("one", capitals)}, apply_change)
    assert files(attempts.output) == {"1": b"ONE"}


def test_errors_name_what_is_wrong(attempts: Attempts) -> None:
    with pytest.raises(ConfigurationError, match="workers=0"):
        process_shards(attempts.next(), {"1": "a"}, shout, workers=0)
    with pytest.raises(GraphError, match=r"shards\['1'\]"):
        process_shards(attempts.next(), {"1": object()}, shout)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="shard '1': write_nothing wrote no file"):
        process_shards(attempts.next(), {"1": "a"}, write_nothing)
    ctx = StepContext(store=open_store("memory://no"), name="s", attempt_key="a", work_key="w")
    with pytest.raises(ConfigurationError, match="memory"):
        process_shards(ctx, {"1": "a"}, shout, workers=2)


@step
def shout_all(count: int, *, ctx: StepContext) -> int:
    """Shards in a pool of processes."""
    return len(process_shards(ctx, {str(number): "text" for number in range(count)}, shout, workers=2))


@pytest.mark.parametrize("backend", ["inline", "local"])
def test_pools_of_one_process_come_and_go(tmp_path: Path, backend: Literal["inline", "local"]) -> None:
    """`multiprocessing` warns of its helper process if a step's end killed it; warnings are errors here."""
    for count in (2, 3):
        report = run({"shout": shout_all(count)}, root=str(tmp_path), backend=backend)
        assert report.exit_code == 0, report
    logs = [file.read_text() for file in tmp_path.glob("shout_all-*/attempts/*/log/*")]
    assert [text for text in logs if "killed" in text or "Warning" in text] == []
