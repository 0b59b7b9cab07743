"""Files from outside: their content is their identity, and a change is never missed."""

import hashlib
import os
import pickle
import shutil
import sys

import fsspec
import pytest
from pydantic import BaseModel

from marin_pipe.execution import inputs
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.inputs import InputChanged, InputFile, InputFiles


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Each test has caches of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(inputs, "_local", {})
    monkeypatch.setattr(inputs, "_remote", {})


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "data [1]"
    (made / "sub").mkdir(parents=True)
    (made / "b.txt").write_text("bb")
    (made / "a.txt").write_text("a")
    (made / "sub" / "c.txt").write_text("ccc")
    (made / "other.md").write_text("x")
    (made / ".hidden.txt").write_text("x")
    return made


def sha256(text):
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def listed(value):
    return [(entry.path, entry.size, entry.digest) for entry in value.resolved().entries]


def test_a_file_is_its_name_size_and_content(folder):
    assert listed(InputFile(folder / "b.txt")) == [("b.txt", 2, sha256("bb"))]
    assert InputFile(f"file://{folder}/b.txt").resolved().entries == InputFile(folder / "b.txt").resolved().entries
    assert InputFile(str(folder / "b.txt")).path.read_text() == "bb"


def test_a_glob_lists_files_relative_to_its_fixed_part(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert [name for name, _, _ in listed(InputFiles("*.txt"))] == ["a.txt", "b.txt"]
    assert listed(InputFiles("./sub/*")) == [("c.txt", 3, sha256("ccc"))]
    assert [name for name, _, _ in listed(InputFiles("**/*.txt"))] == ["a.txt", "b.txt", "sub/c.txt"]
    assert [name for name, _, _ in listed(InputFiles("s?b/*.txt"))] == ["sub/c.txt"]
    assert [path.read_text() for path in InputFiles("**/*.txt").paths] == ["a", "bb", "ccc"]


def test_identity_is_independent_of_the_place(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    monkey = InputFile(folder / "a.txt").resolved().__canonical__()
    assert InputFile(copy / "a.txt").resolved().__canonical__() == monkey
    (copy / "a.txt").write_text("A")
    assert InputFile(copy / "a.txt").resolved().__canonical__() != monkey
    os.rename(copy / "b.txt", copy / "a.txt")
    assert (
        InputFile(copy / "a.txt").resolved().__canonical__() != InputFile(folder / "b.txt").resolved().__canonical__()
    )


def test_what_is_not_there_is_an_error(folder):
    with pytest.raises(GraphError, match="there is no such file"):
        InputFile(folder / "missing.txt").resolved()
    with pytest.raises(GraphError, match=r"is a directory") as caught:
        InputFile(folder).resolved()
    assert "InputFiles(" in caught.value.next
    with pytest.raises(GraphError, match="no file matches"):
        InputFiles("/nowhere/*.txt").resolved()
    with pytest.raises(GraphError, match="has no wildcard"):
        InputFiles("/nowhere/a.txt").resolved()
    with pytest.raises(GraphError, match="empty"):
        InputFile("")


def test_an_unreadable_file_is_an_error(folder, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(inputs.hashlib, "file_digest", refuse)
    with pytest.raises(GraphError, match=r"cannot be read: .*Permission denied"):
        InputFile(folder / "a.txt").resolved()


def test_the_worker_notices_a_change(folder):
    one = pickle.loads(pickle.dumps(InputFile(folder / "a.txt").resolved()))  # noqa: S301
    many = pickle.loads(pickle.dumps(InputFiles(str(folder).replace("[", "[[]") + "/*.txt").resolved()))  # noqa: S301
    one.check()
    many.check()
    (folder / "a.txt").write_text("A")
    (folder / "z.txt").write_text("z")
    with pytest.raises(InputChanged, match=r"changed after the graph was built: a.txt") as caught:
        one.check()
    assert caught.value.next
    with pytest.raises(InputChanged, match=r"a\.txt, .*z\.txt"):
        many.check()
    (folder / "a.txt").unlink()
    with pytest.raises(InputChanged):
        one.check()


def test_a_worker_in_another_directory_finds_the_file(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    one, many = InputFile("a.txt").resolved(), InputFiles("*.txt").resolved()
    monkeypatch.chdir(tmp_path)
    one.check()
    many.check()
    assert one.path.read_text() == "a"
    assert [path.read_text() for path in many.paths] == ["a", "bb"]


# --- digests are remembered, but never wrongly -----------------------------------------------------------------------

BIG = "x" * (1 << 18)
OLD_NS = 1_000_000_000 * 10**9


@pytest.fixture
def reads(monkeypatch):
    """Counts how often a file was digested; files look as if they had been written long ago."""
    count = [0]
    real = hashlib.file_digest

    def counted(*args):
        count[0] += 1
        return real(*args)

    monkeypatch.setattr(inputs.hashlib, "file_digest", counted)
    return count


def settle(monkeypatch):
    """Let an hour pass."""
    real = inputs.time.time_ns
    monkeypatch.setattr(inputs.time, "time_ns", lambda: real() + 3600 * 10**9)


def test_an_old_file_is_read_once_per_machine(folder, reads, monkeypatch):
    settle(monkeypatch)
    (folder / "a.txt").write_text(BIG)
    first = listed(InputFile(folder / "a.txt"))
    assert listed(InputFile(folder / "a.txt")) == first
    assert reads == [1]
    inputs._local.clear()  # as in another process
    assert listed(InputFile(folder / "a.txt")) == first
    assert reads == [1]


def test_a_file_just_written_is_not_trusted(folder, reads):
    (folder / "a.txt").write_text(BIG)
    for _ in range(2):
        listed(InputFile(folder / "a.txt"))
    assert reads == [2]


def test_a_change_that_keeps_size_and_time_is_noticed(folder, monkeypatch):
    settle(monkeypatch)
    file = folder / "a.txt"
    file.write_text(BIG)
    os.utime(file, ns=(OLD_NS, OLD_NS))
    assert listed(InputFile(file)) == [("a.txt", len(BIG), sha256(BIG))]
    changed = "y" + BIG[1:]
    file.write_text(changed)
    os.utime(file, ns=(OLD_NS, OLD_NS))
    assert listed(InputFile(file)) == [("a.txt", len(BIG), sha256(changed))]


def test_a_broken_or_unwritable_cache_costs_a_reading_and_nothing_else(folder, tmp_path, reads, monkeypatch):
    settle(monkeypatch)
    (folder / "a.txt").write_text(BIG)
    expected = listed(InputFile(folder / "a.txt"))
    (kept,) = (tmp_path / "cache" / "marin_pipe" / "digests").iterdir()
    for content in ("", "[]", '{"digest": 3}'):
        kept.write_text(content)
        inputs._local.clear()
        assert listed(InputFile(folder / "a.txt")) == expected
    assert reads == [4]
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "b.txt"))
    inputs._local.clear()
    assert listed(InputFile(folder / "a.txt")) == expected


# --- other stores ----------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket():
    system = fsspec.filesystem("memory")
    system.pipe({"/bucket/a.txt": b"a", "/bucket/sub/b.txt": b"bb"})
    yield system
    system.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("url", "package", "fix"),
    [
        ("https://example.org/x", "aiohttp", "pip install aiohttp"),
        ("gs://bucket/x", "gcsfs", "'marin-pipe[gcs]'"),
        ("s3://bucket/*", "s3fs", "'marin-pipe[s3]'"),
        ("hf://datasets/people/speeches/*", "huggingface_hub", "'marin-pipe[hf]'"),
    ],
)
def test_a_store_whose_library_is_missing_says_what_to_install(url, package, fix, monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] == package or name == "fsspec.implementations.http":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys.modules["fsspec.registry"], "_registry", {})
    with pytest.raises(GraphError, match=f"cannot be read: .*{package}") as caught:
        (InputFiles(url) if "*" in url else InputFile(url)).resolved()
    assert fix in caught.value.next


@pytest.mark.usefixtures("bucket")
def test_whatever_a_store_raises_is_told_with_the_file(monkeypatch):
    class NoCredentials(Exception):
        pass

    def refuse(*_):
        raise NoCredentials("who are you?")

    with monkeypatch.context() as patch:
        patch.setattr(fsspec.filesystem("memory"), "info", refuse)
        with pytest.raises(GraphError) as caught:
            InputFile("memory://bucket/a.txt").resolved()
    assert caught.value.what == "InputFile('memory://bucket/a.txt') cannot be read: NoCredentials: who are you?"


@pytest.mark.usefixtures("bucket")
def test_files_of_any_store():
    assert listed(InputFile("memory://bucket/a.txt")) == [("a.txt", 1, sha256("a"))]
    assert [name for name, _, _ in listed(InputFiles("memory://bucket/**/*.txt"))] == ["a.txt", "sub/b.txt"]
    assert InputFile("memory://bucket/a.txt").path.read_text() == "a"
    assert [path.read_text() for path in InputFiles("memory://bucket/sub/*").paths] == ["bb"]
    with pytest.raises(GraphError, match="there is no such file"):
        InputFile("memory://bucket/missing").resolved()
    with pytest.raises(GraphError, match="no file matches"):
        InputFiles("memory://bucket/*.md").resolved()


def test_a_change_in_a_store_is_noticed_by_the_worker(bucket):
    file = InputFile("memory://bucket/a.txt").resolved()
    file.check()
    bucket.pipe({"/bucket/a.txt": b"A"})
    with pytest.raises(InputChanged, match=r"a.txt"):
        file.check()


@pytest.mark.parametrize(
    ("protocol", "info", "expected"),
    [
        ("gs", {"md5Hash": "CY9rzUYh03PK3k6DJie09g==", "crc32c": "x"}, "md5:CY9rzUYh03PK3k6DJie09g=="),
        (("gs", "gcs"), {"crc32c": "AAAAAA=="}, "crc32c:AAAAAA=="),
        ("s3", {"ETag": '"098f6bcd"'}, "etag:098f6bcd"),
        ("http", {"ETag": 'W/"weak"'}, sha256("a")),
        ("hf", {"blob_id": "2e65", "lfs": None}, "git:2e65"),
        ("hf", {"blob_id": "2e65", "lfs": {"sha256": "ca97", "size": 1}}, "sha256:ca97"),
        ("gs", {}, sha256("a")),
    ],
)
def test_the_checksum_of_the_store_is_used_where_it_is_one_of_the_content(bucket, protocol, info, expected):
    class System:
        def __init__(self):
            self.protocol = protocol

        def open(self, path, mode):
            return bucket.open(path, mode)

    assert inputs._remote_digest(System(), "/bucket/a.txt", info) == expected


class Model(BaseModel):
    data: InputFile


def test_a_model_keeps_the_handle_and_writes_its_text():
    model = Model(data=InputFile("a.txt"))
    assert model.data == InputFile("a.txt")
    assert model.model_dump_json() == '{"data":"a.txt"}'
