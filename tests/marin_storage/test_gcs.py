"""Google Cloud Storage: the traps of its client library, and replies that are lost, late or wrong."""

import asyncio
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from marin_storage import (
    AlreadyExists,
    NotFound,
    PermissionDenied,
    RetryPolicy,
    StorageError,
    Store,
    Transient,
    Unavailable,
    UnknownOutcome,
    gcs_client,
    open_store,
)
from marin_storage import gcs as gcs_module
from strict_gcs import READING, FaultKind, StrictGcs

BEFORE_OR_AFTER = [
    FaultKind.UNAVAILABLE_BEFORE,
    FaultKind.UNAVAILABLE_AFTER,
    FaultKind.REPLY_LOST,
    FaultKind.TOO_MANY_REQUESTS,
]
GCSFS_BOUNDARY = b"head\n--==0==\nContent-Type: text/plain\n\ntail\n--==0==--"


@pytest.fixture
def store(strict_gcs: StrictGcs, retry: RetryPolicy) -> Store:
    del strict_gcs
    return open_store("gs://bucket/root", retry=retry)


@pytest.mark.parametrize("kind", BEFORE_OR_AFTER)
@pytest.mark.parametrize("count", [1, 3])
def test_disturbed_writes_are_applied_exactly_once(
    store: Store, strict_gcs: StrictGcs, kind: FaultKind, count: int
) -> None:
    strict_gcs.inject(kind, count=count)
    version = store.create("key", b"ours")
    assert store.read("key", version=version).data == b"ours"
    strict_gcs.inject(kind, count=count)
    version = store.replace("key", b"ours, second", version=version)
    assert store.read("key", version=version).data == b"ours, second"
    strict_gcs.inject(kind, count=count)
    store.delete("key", version=version)
    assert strict_gcs.buckets["bucket"] == {}


@pytest.mark.parametrize("kind", BEFORE_OR_AFTER)
def test_disturbed_writes_over_anothers_object_are_refused(
    store: Store, strict_gcs: StrictGcs, kind: FaultKind
) -> None:
    open_store("gs://bucket/root").create("key", b"theirs")
    strict_gcs.inject(kind)
    with pytest.raises(AlreadyExists):
        store.create("key", b"ours")
    assert store.read("key").data == b"theirs"


@pytest.mark.parametrize("kind", BEFORE_OR_AFTER)
def test_disturbed_reads_succeed(store: Store, strict_gcs: StrictGcs, kind: FaultKind) -> None:
    store.write("d/key", b"x")
    for call in (store.read, store.stat, store.digest):
        strict_gcs.inject(kind, methods=READING)
        call("d/key")
    strict_gcs.inject(kind, methods=READING)
    assert len(store.list_files("")) == 1


def test_a_backend_makes_one_request_a_try(store: Store, strict_gcs: StrictGcs) -> None:
    """The library's own retries would hide a lost reply, and multiply every deadline."""
    strict_gcs.inject(FaultKind.UNAVAILABLE_AFTER, count=100)
    with pytest.raises(Transient):
        store.backend.create("key", b"x", durable=False)
    assert len(strict_gcs.requests) == 1


def test_a_silent_server_is_given_up(strict_gcs: StrictGcs, clock) -> None:
    policy = RetryPolicy(tries=2, try_s=0.2, clock=clock, sleep=clock.sleep)
    store = open_store("gs://bucket/root", retry=policy)
    strict_gcs.inject(FaultKind.SILENT, methods=("GET", "POST"), count=10)
    with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
        store.read("key")
    with pytest.raises(UnknownOutcome):
        store.create("key", b"x")


def test_a_heartbeat_does_not_wait_for_a_silent_server_as_long_as_others(strict_gcs: StrictGcs, clock) -> None:
    policy = RetryPolicy(clock=clock, sleep=clock.sleep, random=lambda: 0.0)
    store = open_store("gs://bucket/root", retry=policy).with_deadline(0.6)
    version = store.create("lease", b"beat 1")
    strict_gcs.inject(FaultKind.SILENT)
    store.replace("lease", b"beat 2", version=version)
    assert store.read("lease").data == b"beat 2"
    assert strict_gcs.buckets["bucket"]["root/lease"].data == b"beat 2"


def test_a_server_that_is_not_there_is_unavailable(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="no connection") as caught:
        store.create("key", b"x")
    assert not isinstance(caught.value, UnknownOutcome)


def test_permission_denied_is_final_and_says_where(store: Store, strict_gcs: StrictGcs, clock) -> None:
    strict_gcs.inject(FaultKind.FORBIDDEN, count=100)
    with pytest.raises(PermissionDenied, match=r"403 somebody .*/b/bucket/o"):
        store.create("key", b"x")
    assert clock.pauses_s == []


def test_a_body_that_holds_the_clients_boundary_is_stored_whole(store: Store) -> None:
    store.create("key", GCSFS_BOUNDARY)
    assert store.read("key").data == GCSFS_BOUNDARY


def test_the_client_library_loses_such_a_body(store: Store) -> None:
    """Why requests of our own: should this fail some day, the library has been repaired."""
    import gcsfs

    filesystem = gcsfs.GCSFileSystem(use_listings_cache=False)
    filesystem.pipe_file("bucket/root/key", GCSFS_BOUNDARY)
    assert store.read("key").data == b"head"


def test_libraries_are_told_of_a_truncated_body(store: Store) -> None:
    path = store.path("key")
    path.write_bytes(GCSFS_BOUNDARY)
    assert store.read("key").data == GCSFS_BOUNDARY
    with pytest.raises(Exception, match="MD5 checksum failed"):
        path.fs.pipe_file(path.path, GCSFS_BOUNDARY)


def test_bytes_changed_on_the_way_are_noticed(store: Store, strict_gcs: StrictGcs) -> None:
    strict_gcs.inject(FaultKind.CORRUPTED)
    with pytest.raises(StorageError, match="changed on the way"):
        store.create("key", b"some bytes")


def test_importing_the_client_does_not_probe_buckets_over_grpc() -> None:
    script = (
        "import os; import marin_storage.gcs, gcsfs; "
        "assert os.environ['GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT'] == 'false'; print(gcsfs.GCSFileSystem.__module__)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GCSFS")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "gcsfs.core"


def test_listings_are_not_cached_for_libraries_either(store: Store) -> None:
    path = store.path("d")
    store.write("d/1", b"x")
    assert len(list(path.iterdir())) == 1
    store.write("d/2", b"x")
    assert len(list(path.iterdir())) == 2


@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
def test_listings_of_several_pages(store: Store, strict_gcs: StrictGcs, page_size: int) -> None:
    keys = [f"d/{directory}/{number}" for directory in "abc" for number in range(3)] + ["d/x", "d/y"]
    for key in keys:
        store.write(key, b"x")
    strict_gcs.page_size = page_size
    assert [entry.key for entry in store.list_files("d")] == sorted(keys)
    listing = store.list_directory("d")
    assert ([entry.key for entry in listing.files], list(listing.directories)) == (["d/x", "d/y"], ["a", "b", "c"])


def test_markers_of_directories_are_no_files(store: Store) -> None:
    other = open_store("gs://bucket")
    for name in ("root/", "root/d/", "root/d/empty/"):
        other.backend.write(name, b"")
    store.write("d/key", b"x")
    assert [entry.key for entry in store.list_files("")] == ["d/key"]
    listing = store.list_directory("d")
    assert ([entry.key for entry in listing.files], list(listing.directories)) == (["d/key"], ["empty"])
    store.delete_tree("d")
    assert list(store.list_directory("").directories) == []


def test_objects_without_md5_are_digested_by_reading(store: Store, strict_gcs: StrictGcs) -> None:
    data = hashlib.shake_256(b"seed").digest(100_000)
    store.write("key", data)
    strict_gcs.with_md5 = False
    assert store.digest("key") == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert store.read("key").data == data


async def no_sleep(_pause_s: float) -> None:
    """Instead of `asyncio.sleep`."""


@pytest.mark.parametrize("kind", [None, *BEFORE_OR_AFTER])
def test_large_files_are_uploaded_in_parts(
    store: Store, strict_gcs: StrictGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: FaultKind | None
) -> None:
    monkeypatch.setattr(gcs_module, "SINGLE_REQUEST_BYTES", 1 << 20)
    monkeypatch.setattr(gcs_client, "PART_BYTES", 1 << 20)
    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    data = hashlib.shake_256(b"seed").digest((5 << 19) + 7)
    (tmp_path / "file").write_bytes(data)
    if kind is not None:
        strict_gcs.inject(kind, methods=("PUT",), skip=1)
    store.upload(tmp_path / "file", "d/large")
    assert store.read("d/large").data == data
    assert store.digest("d/large") == f"md5:{hashlib.md5(data, usedforsecurity=False).hexdigest()}"
    assert sum("upload_id=" in request for request in strict_gcs.requests) >= 3


def test_names_that_no_store_can_carry_are_refused(store: Store) -> None:
    key = os.fsdecode(b"latin-\xe9")
    with pytest.raises(ValueError, match="not valid Unicode"):
        store.create(key, b"x")
    with pytest.raises(ValueError, match="not valid Unicode"):
        store.read(key)


def test_a_line_break_in_a_name(store: Store) -> None:
    store.write("d/line\nbreak", b"x")
    assert [entry.key for entry in store.list_files("d")] == ["d/line\nbreak"]
    assert store.delete_tree("d") == 1


def test_a_pinned_read_of_what_was_deleted_is_not_found(store: Store) -> None:
    version = store.create("key", b"x")
    store.delete("key")
    with pytest.raises(NotFound):
        store.read("key", version=version)
