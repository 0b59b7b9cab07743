"""One suite for every kind of storage: what the engine relies on, and what its users' files need."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from marin_storage import AlreadyExists, Conflict, NotFound, Store, open_store
from strict_gcs import StrictGcs

ODD_NAMES = [
    "with space",
    "percent%20%",
    "hash#1",
    "question?x=1",
    "ampersand&plus+",
    "star*",
    "bracket[0]",
    "brace{0}",
    "quote'\"",
    "grüße-日本-🦜",
    "e\u0301-combining",
    ".hidden",
    "..twodots",
    "trailing.",
    "-dash",
    "~tilde",
    "semi;colon:equals=at@comma,",
]


def test_created_bytes_are_read_back_with_their_version(store: Store) -> None:
    version = store.create("step/commit.json", b'{"nonce": 1}', durable=True)
    blob = store.read("step/commit.json")
    assert (blob.data, blob.version) == (b'{"nonce": 1}', version)
    assert store.read("step/commit.json", version=version).data == b'{"nonce": 1}'


def test_create_refuses_what_exists_and_leaves_it(store: Store) -> None:
    store.create("key", b"first")
    with pytest.raises(AlreadyExists):
        store.create("key", b"second")
    assert store.read("key").data == b"first"


def test_create_of_an_empty_body_refuses_what_exists(store: Store) -> None:
    store.create("key", b"first")
    with pytest.raises(AlreadyExists):
        store.create("key", b"")
    assert store.read("key").data == b"first"


def test_an_empty_object_counts_as_existing(store: Store) -> None:
    store.create("key", b"")
    with pytest.raises(AlreadyExists):
        store.create("key", b"second")
    assert store.read("key").data == b""


def test_create_of_the_same_bytes_is_our_own_repeated(store: Store) -> None:
    version = store.create("key", b"with a nonce")
    assert store.create("key", b"with a nonce") == version


def test_replace_needs_the_present_version(store: Store) -> None:
    first = store.create("lease", b"epoch 1")
    second = store.replace("lease", b"epoch 2", version=first)
    assert second != first
    with pytest.raises(Conflict):
        store.replace("lease", b"epoch 2 of another", version=first)
    assert store.read("lease").data == b"epoch 2"
    store.replace("lease", b"epoch 3", version=second, durable=True)
    assert store.read("lease").data == b"epoch 3"


def test_replace_of_an_absent_object_is_a_conflict(store: Store) -> None:
    version = store.create("lease", b"epoch 1")
    store.delete("lease")
    with pytest.raises(Conflict):
        store.replace("lease", b"epoch 2", version=version)
    with pytest.raises(NotFound):
        store.read("lease")


def test_delete_with_an_outdated_version_is_refused(store: Store) -> None:
    first = store.create("key", b"1")
    second = store.replace("key", b"2", version=first)
    with pytest.raises(Conflict):
        store.delete("key", version=first)
    assert store.read("key").data == b"2"
    store.delete("key", version=second)
    with pytest.raises(NotFound):
        store.read("key")


def test_delete_may_be_repeated(store: Store) -> None:
    version = store.write("key", b"1")
    store.delete("key", version=version)
    store.delete("key", version=version)
    store.delete("key")
    assert store.list_files("") == []


def test_a_read_that_names_an_outdated_version_is_refused(store: Store) -> None:
    first = store.create("key", b"old bytes")
    store.replace("key", b"new bytes", version=first)
    with pytest.raises(Conflict):
        store.read("key", version=first)
    with pytest.raises(Conflict):
        store.read_range("key", 0, 3, version=first)


def test_write_overwrites(store: Store) -> None:
    store.write("a/progress.json", b"1")
    store.write("a/progress.json", b"2")
    assert store.read("a/progress.json").data == b"2"


@pytest.mark.parametrize("call", ["read", "stat", "digest"])
def test_what_is_absent_is_not_found(store: Store, call: str) -> None:
    store.write("directory/file", b"x")
    for key in ("nothing", "directory", "directory/other", "directory/file/below"):
        with pytest.raises(NotFound):
            getattr(store, call)(key)


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 4, b"0123"),
        (3, 4, b"3456"),
        (8, 10, b"89"),
        (10, 5, b""),
        (50, 5, b""),
        (2, 0, b""),
        (0, 100, b"0123456789"),
    ],
)
def test_ranges(store: Store, start: int, length: int, expected: bytes) -> None:
    version = store.write("key", b"0123456789")
    assert store.read_range("key", start, length) == expected
    assert store.read_range("key", start, length, version=version) == expected


def test_range_of_an_empty_object(store: Store) -> None:
    store.write("key", b"")
    assert store.read_range("key", 0, 5) == b""


def test_stat_gives_size_version_and_time(store: Store) -> None:
    version = store.create("a/b", b"12345")
    entry = store.stat("a/b")
    assert (entry.key, entry.size_bytes) == ("a/b", 5)
    assert entry.version in (version, "")
    assert entry.modified > 1.7e9


def test_a_directory_is_listed_one_level_deep(store: Store) -> None:
    for key in ("s/commit.json", "s/lease.json", "s/attempts/1/output/x", "s/attempts/2/y", "s-other/z", "t"):
        store.write(key, key.encode())
    listing = store.list_directory("s")
    assert [(entry.key, entry.size_bytes) for entry in listing.files] == [("s/commit.json", 13), ("s/lease.json", 12)]
    assert list(listing.directories) == ["attempts"]
    root = store.list_directory("")
    assert ([entry.key for entry in root.files], list(root.directories)) == (["t"], ["s", "s-other"])
    assert list(store.list_directory("absent").files) == []


def test_all_files_are_listed_in_order_of_their_keys(store: Store) -> None:
    keys = ["d/b", "d/a/2", "d/a/1", "d/a-b", "d/.hidden/x", "e"]
    for key in keys:
        store.write(key, b"x")
    assert [entry.key for entry in store.list_files("d")] == sorted(key for key in keys if key.startswith("d/"))
    assert [entry.key for entry in store.list_files("")] == sorted(keys)
    assert store.list_files("absent") == []


def test_a_write_is_listed_at_once(store: Store) -> None:
    for number in range(5):
        store.create(f"d/{number}", b"x")
        assert len(store.list_files("d")) == number + 1
        assert len(store.list_directory("d").files) == number + 1


def test_another_connection_sees_what_was_written(store: Store) -> None:
    other = open_store(store.url)
    assert other.list_directory("d").files == [] or not other.list_directory("d").files
    store.create("d/key", b"x")
    assert [entry.key for entry in other.list_directory("d").files] == ["d/key"]


def test_delete_tree_removes_what_is_below_and_nothing_else(store: Store) -> None:
    for key in ("d/a", "d/b/c", "d-not", "da", "e/d/a"):
        store.write(key, b"x")
    assert store.delete_tree("d") == 2
    assert [entry.key for entry in store.list_files("")] == ["d-not", "da", "e/d/a"]
    assert store.delete_tree("d") == 0


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_carried_unchanged(store: Store, name: str) -> None:
    key = f"d/{name}/{name}"
    version = store.create(key, name.encode())
    assert store.read(key, version=version).data == name.encode()
    assert store.stat(key).size_bytes == len(name.encode())
    assert list(store.list_directory("d").directories) == [name]
    assert [entry.key for entry in store.list_files("d")] == [key]
    assert store.read_range(key, 0, 1) == name.encode()[:1]
    version = store.replace(key, b"2", version=version)
    assert store.delete_tree(f"d/{name}") == 1
    assert store.list_files("") == []


def test_libraries_read_and_write_through_paths(store: Store) -> None:
    path = store.path("d/with space")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"by a library")
    assert store.read("d/with space").data == b"by a library"
    assert [entry.key for entry in store.list_files("d")] == ["d/with space"]
    store.write("d/other", b"by the store")
    assert store.path("d/other").read_bytes() == b"by the store"


@pytest.mark.parametrize("size_bytes", [0, 1, 1 << 20])
def test_the_digest_is_that_of_the_content(store: Store, size_bytes: int) -> None:
    data = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
    store.write("key", data)
    algorithm, _, value = store.digest("key").partition(":")
    assert algorithm in ("sha256", "md5")
    assert value == hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()


def test_upload_copies_a_file(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"content" * 1000)
    store.upload(source, "d/target")
    assert store.read("d/target").data == source.read_bytes()
    source.write_bytes(b"other")
    assert store.read("d/target").data == b"content" * 1000
    store.upload(source, "d/target")
    assert store.read("d/target").data == b"other"


def test_upload_tree_keeps_relative_names(store: Store, tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/.d", "e #?"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert store.upload_tree(tmp_path / "tree", "out") == 4
    found = {entry.key: store.read(entry.key).data.decode() for entry in store.list_files("out")}
    assert found == {f"out/{name}": name for name in ("a", "b/c", "b/.d", "e #?")}


def test_large_objects(store: Store) -> None:
    data = hashlib.shake_256(b"seed").digest(3 << 20)
    store.write("large", data)
    assert store.read("large").data == data
    assert store.read_range("large", 1 << 20, 100) == data[1 << 20 :][:100]


def test_read_many_keeps_the_order(store: Store) -> None:
    keys = [f"d/{number:03d}" for number in range(20)]
    for key in keys:
        store.write(key, key.encode())
    assert [blob.data.decode() for blob in store.read_many(keys[::-1])] == keys[::-1]
    with pytest.raises(NotFound):
        store.read_many([*keys, "d/absent"])


def test_map_raises_the_first_error(store: Store) -> None:
    def fail(number: int) -> int:
        if number >= 3:
            raise ArithmeticError(number)
        return number

    assert store.map(fail, range(3)) == [0, 1, 2]
    with pytest.raises(ArithmeticError, match="3"):
        store.map(fail, range(10))


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b", ".marin_storage/x"])
def test_keys_that_break_the_grammar_are_refused(store: Store, key: str) -> None:
    for call in (store.read, store.stat, store.delete, store.digest, store.delete_tree):
        with pytest.raises(ValueError, match="not allowed"):
            call(key)
    with pytest.raises(ValueError, match="not allowed"):
        store.create(key, b"x")
    assert store.list_files("") == []


@pytest.mark.parametrize("num_threads", [2, 8])
def test_one_thread_wins_a_create(store: Store, num_threads: int) -> None:
    barrier = threading.Barrier(num_threads)

    def create(number: int, key: str) -> bool:
        barrier.wait()
        try:
            store.create(key, f"by {number}".encode())
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(num_threads) as pool:
        for turn in range(5):
            won = list(pool.map(create, range(num_threads), [f"race/{turn}"] * num_threads))
            assert sum(won) == 1
            assert store.read(f"race/{turn}").data == f"by {won.index(True)}".encode()


def test_increments_by_compare_and_swap_are_never_lost(store: Store) -> None:
    store.create("counter", b"0 start")

    def increment(number: int) -> None:
        for turn in range(3):
            while True:
                blob = store.read("counter")
                value = int(blob.data.split()[0]) + 1
                try:
                    store.replace("counter", f"{value} {number} {turn}".encode(), version=blob.version)
                except Conflict:
                    continue
                break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, range(4)))
    assert store.read("counter").data.split()[0] == b"12"


@pytest.mark.parametrize("kind", ["gs", "s3"])
def test_a_missing_bucket_is_no_empty_store(kind: str, strict_gcs: StrictGcs, moto_s3: object) -> None:
    del strict_gcs, moto_s3
    store = open_store(f"{kind}://absent-bucket/root")
    for call in (lambda: store.list_directory(""), lambda: store.create("key", b"x"), lambda: store.write("key", b"x")):
        with pytest.raises(Exception, match="bucket") as caught:
            call()
        assert not isinstance(caught.value, NotFound)
