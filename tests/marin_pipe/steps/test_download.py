"""Files from the web, from archives and from a hub, through the engine."""

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub, Repository
from file_server import FileServer, dropped_after, status
from marin_corpus.errors import BadConfig, BadInput

from marin_pipe import InputFile, Secret, StepContext, run
from marin_pipe.execution.errors import GraphError
from marin_pipe.steps.download import download, hugging_face_dataset, unpack
from marin_pipe.steps.sources import read_documents

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_" + "a1B2" * 9


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


CONTENT = zip_of(
    {"texts/a.txt": b"first text", "texts/b.txt": b"second text", "noise.bin": random.Random(1).randbytes(99_999)}
)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    server = FileServer(CONTENT)
    yield server
    server.close()


def test_from_the_web_to_documents(server: FileServer, tmp_path: Path) -> None:
    files = unpack(download(server.url, sha256=DIGEST, file_name="texts.zip"))
    documents = read_documents(files / "texts", source="web")
    report = run({"documents": documents}, root=str(tmp_path), backend="inline")
    assert report.exit_code == 0, report
    found = documents.load(root=str(tmp_path))
    assert (found.num_documents, found.sources) == (2, {"web": 2})
    run({"documents": documents}, root=str(tmp_path), backend="inline")
    assert len(server.ranges) == 1


def test_a_failed_step_is_resumed_where_it_stopped(server: FileServer, tmp_path: Path) -> None:
    server.faults = [dropped_after(50_000), status(404)]
    step = download(server.url, sha256=DIGEST, file_name="texts.zip")
    assert run({"file": step}, root=str(tmp_path), backend="inline").exit_code == 1
    report = run({"file": step}, root=str(tmp_path), backend="inline")
    assert report.exit_code == 0, report
    assert server.ranges == [None, "bytes=50000-", "bytes=50000-"]
    assert (step.load(root=str(tmp_path)).path / "texts.zip").read_bytes() == CONTENT


def test_a_killed_step_leaves_its_bytes_and_their_version(server: FileServer, tmp_path: Path) -> None:
    """Killed before its commit, when the whole file is there; and midway, of a file that is another one by now."""
    ctx = StepContext.for_test(tmp_path / "1")
    download.fn(server.url, sha256=DIGEST, ctx=ctx)
    again = StepContext.for_test(tmp_path / "2", earlier_work=["earlier"])
    (tmp_path / "2").mkdir()
    (tmp_path / "1" / "work").rename(tmp_path / "2" / "earlier")
    download.fn(server.url, sha256=DIGEST, ctx=again)
    assert server.ranges == [None, f"bytes={len(CONTENT)}-"]  # to which there is no more
    assert (again.local_output() / "data.bin").read_bytes() == CONTENT

    (tmp_path / "2" / "earlier" / "partial").write_bytes(b"older" * 1000)
    (tmp_path / "2" / "earlier" / "partial.version").write_text('"1"')
    server.etag = '"2"'
    server.ranges.clear()
    shutil.rmtree(tmp_path / "2" / "work")
    (again.local_output() / "data.bin").unlink()
    third = StepContext.for_test(tmp_path / "2", earlier_work=["earlier"])
    download.fn(server.url, sha256=DIGEST, ctx=third)
    assert server.ranges == ["bytes=5000-"]  # answered with all of the new file
    assert (third.local_output() / "data.bin").read_bytes() == CONTENT
    assert (tmp_path / "2" / "earlier" / "partial").read_bytes() == b"older" * 1000


def test_another_file_is_not_published(server: FileServer, tmp_path: Path) -> None:
    ctx = StepContext.for_test(tmp_path)
    with pytest.raises(BadInput, match="not the file that was asked for"):
        download.fn(server.url, sha256="0" * 64, ctx=ctx)
    assert list(ctx.local_output().iterdir()) == []


@pytest.mark.parametrize(
    ("url", "name"), [("http://127.0.0.1/", None), ("http://127.0.0.1/x", "a/b"), ("http://127.0.0.1/x", "..")]
)
def test_a_file_needs_a_name(tmp_path: Path, url: str, name: str | None) -> None:
    with pytest.raises(BadConfig, match="no name for the file"):
        download.fn(url, sha256="0" * 64, file_name=name, ctx=StepContext.for_test(tmp_path))


def test_an_archive_from_outside(tmp_path: Path) -> None:
    (tmp_path / "texts.zip").write_bytes(CONTENT)
    step = unpack(InputFile(str(tmp_path / "texts.zip")))
    assert run({"files": step}, root=str(tmp_path / "root"), backend="inline").exit_code == 0
    done = step.load(root=str(tmp_path / "root"))
    assert (done.num_files, (done.path / "texts" / "b.txt").read_bytes()) == (3, b"second text")


# --- the hub ----------------------------------------------------------------------------------------------------------

EXPERIMENT = """
import json, sys
from marin_pipe import Secret, run
from marin_pipe.steps.download import hugging_face_dataset, tokenizer_from_hub

arguments = json.loads(sys.argv[2])
if "token" in arguments:
    arguments["token"] = Secret(arguments["token"])
kind = {"dataset": hugging_face_dataset, "model": tokenizer_from_hub}[arguments.pop("kind", "dataset")]
try:
    plan_only = arguments.pop("plan_only", False)
    step = kind(**arguments)
except Exception as error:
    print(json.dumps({"error": type(error).__name__, "message": str(error)}))
    sys.exit()
if plan_only:
    print(json.dumps(step.bound.canonical["files"]))
    sys.exit()
report = run({"step": step}, root=sys.argv[1], backend="inline")
assert report.exit_code == 0, report
print(json.dumps({"key": step.key, "result": step.load(root=sys.argv[1]).model_dump(mode="json")}))
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    pytest.importorskip("huggingface_hub")
    small = b'{"text": "a first text"}\n{"text": "a second text"}\n'
    large = b"".join(b'{"text": "text number %d of a large file"}\n' % number for number in range(200))
    files = {"data/small.jsonl": small, "data/large.jsonl": large, "README.md": b"# about"}
    tables = {f"{part}/0000.parquet": table([f"{part} {number}" for number in range(50)]) for part in ("train", "test")}
    tokenizer = {"tokenizer.json": json.dumps(byte_tokenizer()).encode(), "model.safetensors": b"0" * 5000}
    hub = FakeHub(
        [
            Repository("dataset", "people/speeches", COMMIT, files),
            Repository("dataset", "people/tables", COMMIT, {f"default/{name}": data for name, data in tables.items()}),
            Repository("dataset", "people/private", COMMIT, files, token=TOKEN),
            Repository("model", "people/model", COMMIT, tokenizer),
        ]
    )
    yield hub
    hub.close()


def table(texts: list[str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), buffer)
    return buffer.getvalue()


def byte_tokenizer() -> dict[str, object]:
    from marin_corpus.tokenizers.byte_tokenizer import byte_tokenizer_content

    return byte_tokenizer_content()


def ask(
    hub: FakeHub, root: Path, environment: dict[str, str] | None = None, /, **arguments: object
) -> dict[str, object]:
    """In a process of its own: the client reads where the hub is when it is imported."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    variables |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(root / "hf"), "HF_HUB_DISABLE_XET": "1", **(environment or {})}
    line = [sys.executable, "-c", EXPERIMENT, str(root / "outputs"), json.dumps(arguments)]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if TOKEN in variables.values():
        everything = done.stdout + done.stderr
        everything += "".join(path.read_text(errors="replace") for path in root.rglob("*") if path.is_file())
        assert TOKEN not in everything, "a secret was written down"
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_dataset_of_the_hub_becomes_documents(hub: FakeHub, tmp_path: Path) -> None:
    found = ask(hub, tmp_path, repository="people/speeches", revision=COMMIT, files="data/*.jsonl")
    assert found["result"]["num_documents"] == 202  # type: ignore[index]
    assert found["result"]["sources"] == {"people/speeches": 202}  # type: ignore[index]


def test_tables_in_folders_are_what_is_read_unless_said_otherwise(hub: FakeHub, tmp_path: Path) -> None:
    found = ask(hub, tmp_path, repository="people/tables", revision=COMMIT)
    assert found["result"]["num_documents"] == 100  # type: ignore[index]


def test_files_are_known_by_the_hubs_digests_without_being_fetched(hub: FakeHub, tmp_path: Path) -> None:
    """Asking what would run reads no file's content."""
    hub.requests.clear()
    found = ask(hub, tmp_path, repository="people/speeches", revision=COMMIT, files="data/*.jsonl", plan_only=True)
    assert [request for request in hub.requests if "resolve" in request] == []
    small, large = (hub.repositories[0].files[f"data/{name}.jsonl"] for name in ("small", "large"))
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(small) + small, usedforsecurity=False).hexdigest()
    assert found["$files"] == [
        ["large.jsonl", len(large), f"sha256:{hashlib.sha256(large).hexdigest()}"],
        ["small.jsonl", len(small), f"git:{git_sha1}"],
    ]


def test_a_private_dataset_needs_its_token(hub: FakeHub, tmp_path: Path) -> None:
    arguments = {"repository": "people/private", "revision": COMMIT, "files": "data/small.jsonl"}
    refused = ask(hub, tmp_path / "without", **arguments)
    assert (refused["error"], "does not show it to us" in str(refused["message"])) == ("GraphError", True)
    assert not (tmp_path / "without" / "outputs").exists()
    served = ask(hub, tmp_path / "with", {"HF_TOKEN": TOKEN}, token="HF_TOKEN", **arguments)
    assert served["result"]["num_documents"] == 2  # type: ignore[index]
    public = ask(hub, tmp_path / "public", **{**arguments, "repository": "people/speeches"}, source="people/private")
    assert public["key"] == served["key"], "a token bears no identity"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repository": "people/absent"}, "no dataset people/absent"),
        ({"revision": "f" * 40}, f"no revision {'f' * 40}"),
        ({"revision": "main"}, "must be the 40 hex digits of a commit"),
        ({"repository": "no such name!"}, "must be 'organisation/name'"),
        ({"files": "data/*.parquet"}, "no file matches"),
        ({"token": "HF_TOKEN"}, "HF_TOKEN is not set"),
        ({"token": "OTHER"}, "HF_TOKEN alone"),
    ],
)
def test_what_the_hub_does_not_have_is_said_before_anything_runs(
    hub: FakeHub, tmp_path: Path, arguments: dict[str, str], message: str
) -> None:
    answer = ask(
        hub, tmp_path, **{"repository": "people/speeches", "revision": COMMIT, "files": "data/*.jsonl", **arguments}
    )
    assert answer["error"] in ("GraphError", "ConfigurationError")
    assert message in str(answer["message"])
    assert not (tmp_path / "outputs").exists()


def test_an_unreachable_hub_is_said_to_be_one(hub: FakeHub, tmp_path: Path) -> None:
    answer = ask(hub, tmp_path, {"HF_ENDPOINT": "http://127.0.0.1:9"}, repository="people/speeches", revision=COMMIT)
    assert (answer["error"], "cannot be asked" in str(answer["message"])) == ("GraphError", True)


def test_a_tokenizer_of_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    hub.requests.clear()
    found = ask(hub, tmp_path, kind="model", repository="people/model", revision=COMMIT)
    assert found["result"]["vocab_size"] == 258  # type: ignore[index]
    assert [request for request in hub.requests if "safetensors" in request] == []


def test_the_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(GraphError, match=r"marin-pipe\[hf\]"):
        hugging_face_dataset("people/speeches", revision=COMMIT)


def test_a_secret_of_another_name_is_refused() -> None:
    with pytest.raises(GraphError, match="HF_TOKEN alone"):
        hugging_face_dataset("people/speeches", revision=COMMIT, token=Secret("MY_TOKEN"))
