"""`StepContext`, progress and metrics, without a backend."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from marin_storage import Store, Unavailable, open_store

from marin_pipe.execution import progress as progress_module
from marin_pipe.execution import segments
from marin_pipe.execution.context import StepContext
from marin_pipe.execution.metrics import Metrics, read_metrics
from marin_pipe.execution.progress import Progress
from marin_pipe.execution.resources import CPU, GPU


class TestForTest:
    def test_a_step_can_be_called_as_a_plain_function(self, tmp_path: Path) -> None:
        ctx = StepContext.for_test(tmp_path, seed=7, resources=GPU(count=2))
        (ctx.output / "a.txt").write_text("alpha")
        (ctx.work / "state").write_text("half")
        assert (tmp_path / "attempt/output/a.txt").read_text() == "alpha"
        assert (tmp_path / "work/state").read_text() == "half"
        assert (ctx.seed, ctx.resources, ctx.should_stop(), ctx.earlier_work) == (7, GPU(count=2), False, ())
        assert StepContext.for_test(tmp_path).resources == CPU()

    def test_nothing_is_made_before_it_is_touched(self, tmp_path: Path) -> None:
        StepContext.for_test(tmp_path).close()
        assert list(tmp_path.iterdir()) == []

    def test_earlier_work_is_newest_first(self, tmp_path: Path) -> None:
        for name in ("old", "new"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "state").write_text(name)
        ctx = StepContext.for_test(tmp_path, earlier_work=("new", "old"))
        assert [(path / "state").read_text() for path in ctx.earlier_work] == ["new", "old"]

    def test_a_stop_can_be_played(self, tmp_path: Path) -> None:
        assert StepContext.for_test(tmp_path, should_stop=True).should_stop()
        answers = iter([False, True, False])
        ctx = StepContext.for_test(tmp_path, should_stop=lambda: next(answers))
        assert [ctx.should_stop(), ctx.should_stop(), ctx.should_stop()] == [False, True, True]


def attempt(store: Store, **changes: Any) -> StepContext:
    options: dict[str, Any] = {
        "name": "clean",
        "directory": "clean-0123456789abcdef",
        "attempt": "000002-abcdef",
        "earlier_work": ("clean-0123456789abcdef/work/000001-fedcba",),
        "resources": CPU(),
        "seed": 0,
        "work_mark": b"mark",
        "stopped": lambda: False,
    }
    return StepContext.for_attempt(store, **options | changes)


class TestLocalOutput:
    def test_on_a_disk_it_is_the_output(self, tmp_path: Path) -> None:
        ctx = attempt(open_store(str(tmp_path)))
        (ctx.local_output() / "a.txt").write_text("alpha")
        assert (ctx.output / "a.txt").read_text() == "alpha"

    def test_elsewhere_it_is_uploaded_when_the_body_ends(self) -> None:
        store = open_store("memory://local-output")
        ctx = attempt(store)
        folder = ctx.local_output()
        assert ctx.local_output() == folder
        (folder / "sub").mkdir()
        (folder / "sub/a b.txt").write_text("alpha")
        assert store.list_files("") == []
        ctx.finish()
        ctx.close()
        assert store.read("clean-0123456789abcdef/attempts/000002-abcdef/output/sub/a b.txt").data == b"alpha"
        assert not folder.exists()


class TestProgress:
    def test_the_last_count_is_written_at_the_end(self, tmp_path: Path) -> None:
        store = open_store(str(tmp_path))
        with Progress(store, "progress.json", total=100, unit="files") as progress:
            progress.update()
            progress.update(9, "nearly")
            progress.set(50)
        record = json.loads(store.read("progress.json").data)
        assert (record["done"], record["total"], record["unit"], record["message"]) == (50, 100, "files", "nearly")

    def test_many_counts_are_few_writes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = open_store(str(tmp_path))
        writes: list[bytes] = []
        monkeypatch.setattr(store, "write", lambda _, data: writes.append(data))
        with Progress(store, "progress.json", total=None, unit="") as progress:
            for _ in range(10_000):
                progress.update()
        assert 1 <= len(writes) <= 5
        assert json.loads(writes[-1])["done"] == 10_000

    def test_a_storage_error_in_the_background_does_not_reach_the_body(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(progress_module, "WRITE_EVERY_S", 60.0)
        store = open_store(str(tmp_path))
        write = store.write

        def refuse(*_: object) -> str:
            raise Unavailable("down")

        monkeypatch.setattr(store, "write", refuse)
        progress = Progress(store, "progress.json", total=None, unit="")
        progress.update()
        progress._write_in_background()
        monkeypatch.setattr(store, "write", write)
        progress.close()
        assert json.loads(store.read("progress.json").data)["done"] == 1

    def test_a_second_count_replaces_the_first(self, tmp_path: Path) -> None:
        ctx = StepContext.for_test(tmp_path)
        ctx.progress(10, "files").update(3)
        ctx.progress(20, "rows").update(5)
        ctx.close()
        record = json.loads((tmp_path / "attempt/progress.json").read_text())
        assert (record["done"], record["total"], record["unit"]) == (5, 20, "rows")


class FloatLike:
    def __float__(self) -> float:
        return 2.5


class TestMetrics:
    def test_rows_come_back(self, tmp_path: Path) -> None:
        store = open_store(str(tmp_path))
        metrics = Metrics(store, "a")
        metrics.log(1, {"loss": 2.0, "tokens": 3, "done": True, "rate": FloatLike()})
        metrics.log(2, {"loss": math.nan, "low": -math.inf, "high": math.inf})
        metrics.close()
        first, second = (
            {name: value for name, value in row.items() if name != "t"} for row in read_metrics(store, "a")
        )
        assert first == {"step": 1, "loss": 2.0, "tokens": 3, "done": 1, "rate": 2.5}
        assert math.isnan(second.pop("loss"))
        assert second == {"step": 2, "low": -math.inf, "high": math.inf}

    def test_stored_rows_are_strict_json(self, tmp_path: Path) -> None:
        store = open_store(str(tmp_path))
        metrics = Metrics(store, "a")
        metrics.log(1, {"loss": math.nan})
        metrics.close()

        def refuse(constant: str) -> float:
            raise AssertionError(constant)

        row = json.loads(store.read("a/metrics/000001.jsonl").data, parse_constant=refuse)
        assert row["loss"] == "NaN"

    @pytest.mark.parametrize("values", [{"loss": "2.0"}, {"loss": None}, {"loss": [1]}, {"step": 1}, {"t": 1}, {3: 1}])
    def test_what_is_no_number_or_name_is_refused(self, tmp_path: Path, values: Any) -> None:
        metrics = Metrics(open_store(str(tmp_path)), "a")
        with pytest.raises(ValueError, match="metric"):
            metrics.log(1, values)
        metrics.close()

    def test_segments_are_closed_by_size(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(segments, "SEGMENT_BYTES", 1000)
        store = open_store(str(tmp_path))
        metrics = Metrics(store, "a")
        for step in range(100):
            metrics.log(step, {"loss": step})
        metrics.close()
        assert len(store.list_files("a/metrics")) > 3
        assert [row["step"] for row in read_metrics(store, "a")] == list(range(100))
        assert [row["step"] for row in read_metrics(store, "a", after=1)][-1] == 99

    def test_no_metrics_no_files(self, tmp_path: Path) -> None:
        Metrics(open_store(str(tmp_path)), "a").close()
        assert list(tmp_path.iterdir()) == []


def test_the_flusher_calls_early_and_late_requests_in_order() -> None:
    import threading

    flusher = segments.Flusher()
    called: list[str] = []
    done = threading.Event()

    def note(name: str) -> Callable[[], None]:
        return lambda: called.append(name)

    cancelled = note("cancelled")
    flusher.schedule(cancelled, delay_s=0.01)
    flusher.cancel(cancelled)
    flusher.schedule(note("late"), delay_s=0.15)
    flusher.schedule(done.set, delay_s=0.2)
    flusher.schedule(note("early"), delay_s=0.0)
    assert done.wait(20)
    assert called == ["early", "late"]
