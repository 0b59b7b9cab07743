"""What is particular to a local disk."""

import errno
import os
import socket
import threading
from pathlib import Path

import pytest
from marin_storage import (
    AlreadyExists,
    Conflict,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    RetryPolicy,
    StorageError,
    Store,
    Unavailable,
    open_store,
    posix,
)
from marin_storage import local as local_module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path, retry: RetryPolicy) -> Store:
    return open_store(str(root), retry=retry)


def temporary_files(root: Path) -> list[Path]:
    return list((root / ".marin_storage/temporary").iterdir())


def test_opening_and_reading_write_nothing(store: Store, root: Path) -> None:
    assert store.list_files("") == []
    assert list(store.list_directory("a").files) == []
    store.delete_tree("a")
    with pytest.raises(NotFound):
        store.read("a")
    with pytest.raises(Conflict):
        store.replace("a", b"x", version="1")
    assert not (root / "a").exists()


def test_listings_show_every_file_of_the_user_and_none_of_the_stores(store: Store, root: Path) -> None:
    names = [".hidden", ".marin_storage", "x.tmp", "x.lock", "~", "line\nbreak", "back\\slash", "data/.git/config"]
    for name in names:
        path = root / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    version = store.create("control", b"1")
    store.replace("control", b"2", version=version)
    assert {entry.key for entry in store.list_files("out")} == {f"out/{name}" for name in names}
    assert {entry.key for entry in store.list_files("")} == {"control", *(f"out/{name}" for name in names)}
    assert list(store.list_directory("").directories) == ["out"]


def test_names_that_are_not_unicode_are_carried_unchanged(store: Store, root: Path) -> None:
    name = os.fsdecode(b"latin-\xe9")
    (root / "out").mkdir(parents=True)
    (root / "out" / name).write_text("x")
    assert [entry.key for entry in store.list_files("out")] == [f"out/{name}"]
    assert store.read(f"out/{name}").data == b"x"
    store.write(f"out/{name}", b"y")
    assert (root / "out" / name).read_text() == "y"


@pytest.mark.parametrize("outcome", ["success", "refused"])
def test_no_temporary_file_stays_behind(store: Store, root: Path, outcome: str, tmp_path: Path) -> None:
    if outcome == "refused":
        store.write("key", b"theirs")
        with pytest.raises(AlreadyExists):
            store.create("key", b"ours")
        with pytest.raises(Conflict):
            store.replace("key", b"ours", version="0")
    else:
        version = store.create("key", b"1")
        store.replace("key", b"2", version=version)
        store.upload(tmp_path / "root/key", "copy")
    assert temporary_files(root) == []


def test_readers_see_nothing_or_all_of_it(store: Store) -> None:
    """A reader polls while objects of many pages are created and replaced."""
    bodies = [bytes([65 + number]) * 300_000 for number in range(20)]
    done = threading.Event()
    seen: set[bytes | None] = set()

    def poll() -> None:
        while not done.is_set():
            try:
                seen.add(store.read("key").data)
            except NotFound:
                seen.add(None)

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        version = store.create("key", bodies[0])
        for body in bodies[1:]:
            version = store.replace("key", body, version=version)
    finally:
        done.set()
        reader.join()
    assert seen - {None} <= set(bodies)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_create_without_hard_links(store: Store, root: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    store.create("new/key", b"first", durable=True)
    with pytest.raises(AlreadyExists):
        store.create("new/key", b"second")
    assert store.read("new/key").data == b"first"
    assert temporary_files(root) == []


def test_create_without_hard_links_has_one_winner(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    barrier = threading.Barrier(4, timeout=30)
    won: list[int] = []

    def create(number: int) -> None:
        for turn in range(20):
            barrier.wait()
            try:
                store.create(f"key{turn}", f"by {number}".encode())
            except AlreadyExists:
                continue
            won.append(turn)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))


def fail_with(number: int, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_half_written(
    store: Store, root: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = store.create("old", b"kept")
    write = os.write
    num_calls = 0

    def short_write(descriptor: int, data: bytes) -> int:
        nonlocal num_calls
        num_calls += 1
        if num_calls % 2:
            return write(descriptor, bytes(data)[: len(data) // 2])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", short_write)
    with pytest.raises(OutOfSpace, match="Free some space"):
        store.create("new", b"0123456789")
    with pytest.raises(OutOfSpace):
        store.replace("old", b"0123456789", version=version)
    monkeypatch.undo()
    assert [entry.key for entry in store.list_files("")] == ["old"]
    assert store.read("old").data == b"kept"
    assert temporary_files(root) == []


def test_short_writes_are_continued(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:3]))
    store.create("key", b"0123456789")
    monkeypatch.undo()
    assert store.read("key").data == b"0123456789"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
@pytest.mark.parametrize("operation", ["create", "replace", "write", "delete", "read", "list"])
def test_a_refused_operation_names_the_path(
    store: Store, root: Path, number: int, operation: str, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = store.create("d/key", b"x")
    for name in ("open", "scandir"):
        fail_with(number, monkeypatch, name)
    calls = {
        "create": lambda: store.create("d/new", b"x"),
        "replace": lambda: store.replace("d/key", b"y", version=version),
        "write": lambda: store.write("d/key", b"y"),
        "delete": lambda: store.delete("d/key"),
        "read": lambda: store.read("d/key"),
        "list": lambda: store.list_files("d"),
    }
    with pytest.raises(PermissionDenied, match=str(root)):
        calls[operation]()
    assert clock.pauses_s == []


def test_an_input_output_error_of_a_sync_is_final(store: Store, clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports it once and then forgets: a retry would succeed although the data are lost."""
    store.create("first", b"x")
    fail_with(errno.EIO, monkeypatch, "fsync")
    with pytest.raises(StorageError, match="Input/output error"):
        store.create("key", b"x", durable=True)
    assert clock.pauses_s == []


def test_a_directory_in_the_way_is_no_object(store: Store) -> None:
    store.write("a/b", b"x")
    with pytest.raises(StorageError):
        store.write("a", b"y")
    with pytest.raises(StorageError):
        store.create("a/b/c", b"y")
    assert store.read("a/b").data == b"x"


def test_a_stopped_lock_holder_does_not_block_for_ever(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix, "LOCK_WAIT_S", 0.001)
    store.write("key", b"x")
    stopped = open_store(str(root)).backend
    assert isinstance(stopped, local_module.LocalBackend)
    with stopped._lock("key"), pytest.raises(Unavailable, match="locked by another process"):
        store.write("key", b"y")
    store.write("key", b"z")
    assert store.read("key").data == b"z"


def test_deleting_a_tree_leaves_its_locks(store: Store, root: Path) -> None:
    version = store.create("step/lease", b"1")
    store.replace("step/lease", b"2", version=version)
    locks = sorted((root / ".marin_storage/locks").iterdir())
    store.delete_tree("step")
    assert sorted((root / ".marin_storage/locks").iterdir()) == locks != []


def test_linked_files_and_directories_are_listed_and_never_followed_by_deletion(store: Store, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "inner").mkdir(parents=True)
    (elsewhere / "inner/file").write_text("kept")
    store.write("out/plain", b"x")
    out = tmp_path / "root/out"
    (out / "directory").symlink_to(elsewhere)
    (out / "file").symlink_to(elsewhere / "inner/file")
    assert [entry.key for entry in store.list_files("out")] == ["out/directory/inner/file", "out/file", "out/plain"]
    assert store.delete_tree("out") == 3
    assert (elsewhere / "inner/file").read_text() == "kept"
    assert not out.exists()


ODD = ("dangling", "loop", "itself", "socket", "pipe")


@pytest.fixture
def odd_files(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories with one file, and something that looks like one."""
    for name in ODD:
        store.write(f"{name}/file", b"x")
    (root / "dangling/odd").symlink_to("nowhere")
    (root / "loop/odd").symlink_to(root / "loop")
    (root / "itself/odd").symlink_to("odd")
    os.mkfifo(root / "pipe/odd")
    monkeypatch.chdir(root / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("odd")


@pytest.mark.usefixtures("odd_files")
@pytest.mark.parametrize("name", ODD)
def test_what_is_no_file_is_listed_without_bytes_and_cannot_be_read(store: Store, name: str) -> None:
    listed = {entry.key: entry.size_bytes for entry in store.list_files(name)}
    assert listed[f"{name}/file"] == 1
    (odd,) = (key for key, size_bytes in listed.items() if size_bytes == 0)
    assert odd.startswith(f"{name}/odd")
    for read in (store.read, store.digest, lambda key: store.read_range(key, 0, 1)):
        with pytest.raises(NotFound, match=r"no file|not a regular file"):
            read(odd)


@pytest.mark.usefixtures("odd_files")
@pytest.mark.parametrize("name", ["dangling", "itself", "socket", "pipe"])
def test_its_name_is_taken(store: Store, name: str) -> None:
    assert [entry.key for entry in store.list_directory(name).files] == [f"{name}/file", f"{name}/odd"]
    with pytest.raises(AlreadyExists):
        store.create(f"{name}/odd", b"x")


def test_a_directory_is_listed_once_whatever_links_lead_to_it(store: Store, root: Path, tmp_path: Path) -> None:
    store.write("one/inner/file", b"x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for link, target in (
        ("again", "one"),
        ("here", "."),
        ("above", ".."),
        ("one/inner/back", ".."),
        ("far", elsewhere),
    ):
        (root / link).symlink_to(target)
    assert store.list_directory("").directories == ["far", "one"]
    assert store.list_directory("one/inner").directories == []
    assert [entry.key for entry in store.list_directory("again/inner").files] == ["again/inner/file"]


def test_a_pipe_among_the_files_does_not_stop_their_syncing(store: Store, root: Path) -> None:
    store.write("out/file", b"x")
    os.mkfifo(root / "out/fifo")
    with pytest.raises(StorageError, match="fifo"):
        store.make_durable("out")


def test_upload_tree_from_a_directory_that_does_not_exist(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.upload_tree(tmp_path / "absent", "out")


def test_local_path_leads_to_the_bytes(store: Store) -> None:
    store.write("a/b c#?", b"x")
    path = store.local_path("a/b c#?")
    assert path is not None
    assert path.read_bytes() == b"x"


def test_two_backends_of_one_root_are_one_store(store: Store, root: Path) -> None:
    other = open_store(f"file://{root}")
    version = store.create("key", b"1")
    other.replace("key", b"2", version=version)
    with pytest.raises(Conflict):
        store.replace("key", b"3", version=version)
