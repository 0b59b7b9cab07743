"""Bodies in worker processes: results, output, inputs, errors. How processes end is in `test_processes.py`."""

import hashlib
import json
import os
import pickle
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from marin_storage import Store

from marin_pipe.execution.backends.local import LocalBackend
from marin_pipe.execution.backends.transport import prepare
from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.metrics import read_metrics
from marin_pipe.execution.resources import CPU, GPU

Run = Callable[..., Any]


def test_result_and_manifest_are_what_the_body_made(run: Run, bodies: Any) -> None:
    files = {"a.txt": "alpha", "sub/b c.txt": "beta", "odd\n#?é.txt": ""}
    ran = run(bodies.write_files(files))
    assert ran.value == {"words": 3, "share": 1.0}
    assert ran.result.result_type == "Count"
    expected = [
        (name, len(text), "sha256:" + hashlib.sha256(text.encode()).hexdigest()) for name, text in sorted(files.items())
    ]
    assert [(entry.path, entry.size, entry.digest) for entry in ran.result.manifest] == expected


def test_a_body_without_output_has_an_empty_manifest(run: Run, bodies: Any) -> None:
    assert run(bodies.process_id()).result.manifest == ()


def test_workers_are_reused_and_are_not_the_driver(run: Run, bodies: Any) -> None:
    pids = {run(bodies.process_id(number)).value for number in range(5)}
    assert len(pids) == 1
    assert os.getpid() not in pids


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [1, [2]], {"a": {"b": None}}, "snowman \N{SNOWMAN}"])
def test_json_results_come_back_as_they_were(run: Run, bodies: Any, value: Any) -> None:
    back = run(bodies.give_back(value)).value
    assert back == value
    assert type(back) is type(value)


def test_everything_printed_is_logged(run: Run, bodies: Any) -> None:
    log = run(bodies.print_everywhere()).log
    assert set(log) == {
        "from print",
        "from stderr",
        "INFO library: from logging",
        "from the descriptor",
        "from a child",
        "from C",
    }


def test_a_silent_body_leaves_no_log(run: Run, bodies: Any, store: Store) -> None:
    ran = run(bodies.process_id())
    assert store.list_files(ran.attempt) == []


def test_secrets_are_not_logged(run: Run, bodies: Any) -> None:
    ran = run(bodies.print_text("the key is s3cr3t-value, keep it"), secrets={"s3cr3t-value": "KEY"})
    assert ran.log == ("the key is [KEY redacted], keep it",)


def test_the_context_reaches_storage(run: Run, bodies: Any, store: Store) -> None:
    step = bodies.use_context()
    first = run(step, seed=17)
    earlier = first.attempt.replace("attempts", "work")
    ran = run(step, seed=18, resources=CPU(2), earlier_work=(earlier,))
    assert ran.value == [18, "CPU(count=2, memory=None)", [f"{store.url}/{earlier}"]]
    assert store.read(f"{earlier}/state").data == b"half way"
    progress = json.loads(store.read(f"{ran.attempt}/progress.json").data)
    assert (progress["done"], progress["total"], progress["unit"], progress["message"]) == (
        4,
        10,
        "documents",
        "reading",
    )
    assert [(row["step"], row["loss"]) for row in read_metrics(store, ran.attempt)] == [(1, 2.5)]
    assert any(line.endswith("a line by ctx.log") for line in ran.log)


def test_what_a_body_does_to_its_process_is_undone(run: Run, bodies: Any) -> None:
    before = run(bodies.surroundings(1)).value
    run(bodies.dirty())
    assert run(bodies.surroundings(2)).value == before
    assert before[:2] == [None, True]
    assert before[2] == os.getcwd()


def test_usage_counts_memory_and_cpu_of_this_body_only(run: Run, bodies: Any) -> None:
    large = run(bodies.use_memory(200)).result.usage
    small = run(bodies.use_memory(1)).result.usage
    assert large.peak_memory_bytes > 200 << 20 > small.peak_memory_bytes > 1 << 20
    assert 0.2 <= run(bodies.burn(0.2, in_child=False)).result.usage.cpu_s < 1
    assert 0.2 <= run(bodies.burn(0.2, in_child=True)).result.usage.cpu_s < 1
    assert run(bodies.burn(0.0, in_child=False)).result.usage.cpu_s < 0.1


class TestInputs:
    def test_artifacts_arrive_typed_and_located(self, run: Run, bodies: Any) -> None:
        upstream = bodies.write_files({"a.txt": "alpha"})
        inputs = {upstream: run(upstream)}
        assert run(bodies.read_count(upstream, file="a.txt"), inputs=inputs).value == "1:alpha"
        sources = bodies.Sources(first=upstream, names=("x",))
        assert run(bodies.read_sources(sources), inputs=inputs).value == "Sources:1:output"

    def test_paths_inside_an_output(self, run: Run, bodies: Any) -> None:
        upstream = bodies.write_files({"sub/b.txt": "beta"})
        ran = run(upstream)
        path = upstream / "sub/b.txt"
        assert run(bodies.read_path(path), inputs={upstream: ran}).value == "beta"
        missing = run(bodies.read_path(upstream / "sub/c.txt"), inputs={upstream: ran}).failed
        assert missing.error_type == "MissingOutput"
        assert "'sub/c.txt'" in missing.message
        assert "'sub/b.txt'" in missing.message

    @pytest.mark.parametrize("damage", ["missing", "short", "long"])
    def test_damaged_inputs_are_never_read(self, run: Run, bodies: Any, store: Store, damage: str) -> None:
        upstream = bodies.write_files({"a.txt": "alpha", "b.txt": damage})
        ran = run(upstream)
        file = Path(store.url, ran.attempt, "output/a.txt")
        file.unlink() if damage == "missing" else file.write_text("alph" if damage == "short" else "alpha!")
        failed = run(bodies.read_count(upstream, file="a.txt"), inputs={upstream: ran}).failed
        assert (failed.error_type, failed.exit_code, failed.retryable) == ("CorruptOutput", 5, False)
        assert "'a.txt'" in failed.message
        assert "run --force write_files" in failed.message

    def test_a_flipped_bit_is_found_by_digests(self, run: Run, bodies: Any, store: Store) -> None:
        upstream = bodies.write_files({"a.txt": "alpha", "b.txt": "flipped"})
        ran = run(upstream)
        Path(store.url, ran.attempt, "output/a.txt").write_text("alphb")
        consumer = bodies.read_count(upstream, file="a.txt")
        failed = run(consumer, inputs={upstream: ran}, verify="digests").failed
        assert failed.exit_code == 5
        assert "'a.txt' has digest" in failed.message

    def test_the_graph_behind_an_input_does_not_travel(self, bodies: Any, tmp_path: Path) -> None:
        from marin_pipe.execution.backends.base import Task

        step = bodies.give_back(0)
        for _ in range(3000):
            step = bodies.give_back(step)
        task = Task(
            step=step,
            root=str(tmp_path),
            directory=step.directory,
            attempt="000001-abcdef",
            earlier_work=(),
            inputs={},
            resources=CPU(),
        )
        assert len(pickle.dumps(prepare(task))) < 2000


class TestOwnProcess:
    def test_environment_is_set_before_the_process_starts(self, run: Run, bodies: Any) -> None:
        pool = run(bodies.process_id(1)).value
        step = bodies.environment_value("SPECIAL").environment({"SPECIAL": "yes"})
        assert run(step).value == "yes"
        assert run(bodies.process_id(2).environment({"SPECIAL": "yes"})).value != pool
        assert run(bodies.environment_value("SPECIAL")).value is None
        assert run(bodies.process_id(3)).value == pool

    @pytest.mark.parametrize(
        ("visible", "expected"), [(None, "0,2"), ("4,5,7", "4,7"), ("GPU-a, GPU-b ,GPU-c", "GPU-a,GPU-c")]
    )
    def test_an_accelerator_step_sees_its_devices(
        self, run: Run, bodies: Any, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: str
    ) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        step = bodies.environment_value("CUDA_VISIBLE_DEVICES")
        assert run(step, resources=GPU(count=2), devices=(0, 2)).value == expected

    def test_a_device_the_driver_does_not_see_is_refused(
        self, run: Run, bodies: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        with pytest.raises(ConfigurationError, match="device 1"):
            run(bodies.process_id(), resources=GPU(), devices=(1,))


class TestFailures:
    def test_the_traceback_begins_with_the_users_frames(self, run: Run, bodies: Any) -> None:
        failed = run(bodies.fail_with(ValueError)).failed
        assert (failed.outcome, failed.error_type, failed.message, failed.exit_code) == (
            "failed",
            "ValueError",
            "the reason",
            1,
        )
        lines = failed.traceback.splitlines()
        assert "in fail_with" in lines[1]
        assert any("in helper" in line for line in lines)
        assert lines[-1] == "ValueError: the reason"
        assert "run_body" not in failed.traceback

    @pytest.mark.parametrize(
        ("kind", "on", "retryable"),
        [
            (OSError, OSError, True),
            (FileNotFoundError, OSError, True),
            (ValueError, OSError, False),
            (ImportError, Exception, False),
        ],
    )
    def test_retryable_is_what_retry_on_covers(
        self, run: Run, bodies: Any, kind: type[Exception], on: type[Exception], retryable: bool
    ) -> None:
        assert run(bodies.fail_with(kind).retry(times=1, on=on)).failed.retryable is retryable

    def test_sys_exit_is_a_failure(self, run: Run, bodies: Any) -> None:
        failed = run(bodies.say_exit(0)).failed
        assert (failed.error_type, failed.exit_code) == ("SystemExit", 1)
        assert "return from the function" in failed.message

    def test_a_failed_import_names_the_module(self, run: Run, bodies: Any) -> None:
        failed = run(bodies.import_missing()).failed
        assert (failed.error_type, failed.retryable) == ("ModuleNotFoundError", False)
        assert "no_such_module_anywhere" in failed.message

    def test_the_worker_goes_on_after_a_failure(self, run: Run, bodies: Any) -> None:
        before = run(bodies.process_id(7)).value
        run(bodies.fail_with(KeyError))
        assert run(bodies.process_id(8)).value == before

    @pytest.mark.parametrize("which", ["text", "none", "subclass"])
    def test_a_result_that_does_not_fit_its_annotation(self, run: Run, bodies: Any, which: str) -> None:
        failed = run(bodies.wrong_result(which)).failed
        assert (failed.error_type, failed.retryable) == ("ResultError", False)
        assert "Count" in failed.message

    def test_a_wrong_item_in_a_result(self, run: Run, bodies: Any) -> None:
        assert run(bodies.wrong_list()).failed.error_type == "ResultError"

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("name", "bad\\xff"),
            ("link", "'link', a symbolic link to 'real'"),
            ("broken link", "'link', a symbolic link to 'nowhere'"),
            ("directory link", "'link', a symbolic link to 'folder'"),
            ("pipe", "'sub/pipe', a named pipe"),
            ("socket", "'socket', a socket"),
            ("linked output", "was replaced by a symbolic link to '/usr'"),
            ("linked attempt", "was replaced by a symbolic link to '"),
            ("file as output", "was replaced by a file"),
            ("pipe as output", "was replaced by a named pipe"),
        ],
    )
    def test_files_a_manifest_cannot_hold(self, run: Run, bodies: Any, kind: str, words: str) -> None:
        failed = run(bodies.odd_output(kind)).failed
        assert failed.error_type == "OutputError"
        assert words in failed.message
        assert "marin_pipe/execution" not in failed.traceback

    def test_an_edited_source_file_stops_the_step(self, run: Run, bodies: Any) -> None:
        failed = run(bodies.process_id(), source_files={bodies.__file__: "0" * 64}).failed
        assert (failed.error_type, failed.retryable) == ("SourceChanged", False)
        assert "backend_bodies.py" in failed.message


def test_steps_and_classes_of_a_script(tmp_path: Path, python: Callable[..., str]) -> None:
    """A script with a main guard: its functions and dataclasses reach workers, and its main part does not run there."""
    script = tmp_path / "experiment.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            import sys
            from concurrent.futures import ProcessPoolExecutor
            from dataclasses import dataclass

            from marin_pipe.execution.backends.base import Control, LoadedInput, Task
            from marin_pipe.execution.backends.local import LocalBackend
            from marin_pipe.execution.markers import Artifact
            from marin_pipe.execution.resources import CPU
            from marin_pipe.execution.step import step

            print("loaded as", __name__, file=sys.stderr)

            @dataclass(frozen=True)
            class Config:
                number: int

            class Answer(Artifact):
                value: int

            def double(config):
                return Config(config.number * 2)

            @step
            def compute(config: Config) -> Answer:
                assert isinstance(config, Config)
                with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
                    return Answer(value=list(pool.map(double, [config]))[0].number)

            @step
            def read(answer: Answer) -> int:
                assert type(answer) is Answer
                return answer.value

            class Silent:
                def write(self, data): pass

            def execute(backend, step, inputs=()):
                task = Task(step=step, root=sys.argv[1], directory=step.directory, attempt="000001-abcdef",
                            earlier_work=(), inputs=dict(inputs), resources=CPU())
                return backend.execute(task, log=Silent(), control=Control())

            if __name__ == "__main__":
                backend = LocalBackend(max_workers=1)
                first = compute(Config(number=21))
                done = execute(backend, first)
                loaded = LoadedInput(directory=first.directory, data_url=sys.argv[1] + "/x", result=done.result,
                                     annotation=Answer, manifest=(), rebuild="")
                print("answer", done.result, execute(backend, read(first), {first.directory: loaded}).result)
                backend.close()
            """
        )
    )
    out = python(str(script), str(tmp_path / "root"))
    assert "answer {'value': 42} 42" in out
    assert "loaded as __main__" in out


def test_an_unknown_number_of_workers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_workers=0"):
        LocalBackend(max_workers=0)
