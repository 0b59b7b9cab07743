"""The checks that guard each safeguard fail when it is taken away: nobody can remove one unnoticed."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from faults import Fault, FaultyBackend
from marin_storage import (
    AlreadyExists,
    Blob,
    Conflict,
    RetryPolicy,
    StorageError,
    Store,
    Transient,
    open_store,
    posix,
    probe,
)
from marin_storage import gcs as gcs_module
from marin_storage import local as local_module
from marin_storage.gcs import GcsBackend
from marin_storage.gcs_client import GcsClient
from marin_storage.local import LocalBackend
from marin_storage.s3 import S3Backend
from strict_gcs import FaultKind, StrictGcs


def refused(error: type[StorageError], call: Callable[[], object]) -> bool:
    try:
        call()
    except error:
        return True
    return False


def check_create_is_exclusive(store: Store) -> None:
    store.create("key", b"first")
    assert refused(AlreadyExists, lambda: store.create("key", b"second"))
    assert store.read("key").data == b"first"


def check_replace_compares(store: Store) -> None:
    version = store.create("key", b"first")
    store.replace("key", b"second", version=version)
    assert refused(Conflict, lambda: store.replace("key", b"third", version=version))


def check_delete_compares(store: Store) -> None:
    version = store.create("key", b"first")
    store.replace("key", b"second", version=version)
    assert refused(Conflict, lambda: store.delete("key", version=version))


def check_reads_are_pinned(store: Store) -> None:
    version = store.create("key", b"first")
    store.replace("key", b"second", version=version)
    assert refused(Conflict, lambda: store.read("key", version=version))


def check_lost_replies_are_settled(store: Store) -> None:
    lossy = Store(FaultyBackend(store.backend, {1: Fault.REPLY_LOST}), retry=RetryPolicy(sleep=lambda _: None))
    assert not refused(AlreadyExists, lambda: lossy.create("key", b"ours"))


def check_a_rival_cannot_slip_in_between_comparison_and_rename(store: Store) -> None:
    rival = open_store(store.url).backend
    version = store.create("key", b"first")
    require_version = local_module.LocalBackend._require_version
    slipped_in = []

    def rival_comes_after_the_comparison(self: LocalBackend, path: str, expected: str) -> None:
        require_version(self, path, expected)
        if self is not rival:
            slipped_in.append(
                not refused(Transient, lambda: rival.replace("key", b"2", version=expected, durable=False))
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posix, "LOCK_WAIT_S", 0.0)
        patch.setattr(LocalBackend, "_require_version", rival_comes_after_the_comparison)
        store.replace("key", b"3", version=version)
    assert slipped_in == [False]


def check_readers_see_only_whole_objects(store: Store) -> None:
    seen: list[int] = []
    write = os.write

    def look_while_writing(descriptor: int, data: Any) -> int:
        written = write(descriptor, bytes(data)[:1])
        seen.extend(entry.size_bytes for entry in store.list_files(""))
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", look_while_writing)
        store.write("key", b"0123456789")
    assert set(seen) <= {10}


def overwrite_in_place(self: LocalBackend, data: bytes, durable: bool) -> str:
    """A sabotaged `_write_temporary` that writes where readers look."""
    del durable
    path = f"{self._base}key"
    os.makedirs(self._base, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    while data:
        data = data[os.write(descriptor, data) :]
    os.close(descriptor)
    return path


LOCAL_SABOTAGE: dict[str, tuple[Callable[[Store], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "link": (check_create_is_exclusive, lambda patch: patch.setattr(os, "link", os.replace)),
    "read-back": (
        check_lost_replies_are_settled,
        lambda patch: patch.setattr(Store, "_read_back", lambda *_: Blob(b"not looked at", "0")),
    ),
    "comparison before a replacement": (
        check_replace_compares,
        lambda patch: patch.setattr(LocalBackend, "_require_version", lambda *_: None),
    ),
    "comparison before a deletion": (
        check_delete_compares,
        lambda patch: patch.setattr(LocalBackend, "_require_version", lambda *_: None),
    ),
    "comparison of a pinned read": (
        check_reads_are_pinned,
        lambda patch: patch.setattr(local_module, "_version_of", lambda _data: "always the same"),
    ),
    "lock": (
        check_a_rival_cannot_slip_in_between_comparison_and_rename,
        lambda patch: patch.setattr(LocalBackend, "_lock", lambda *_: nullcontext()),
    ),
    "temporary file": (
        check_readers_see_only_whole_objects,
        lambda patch: patch.setattr(LocalBackend, "_write_temporary", overwrite_in_place),
    ),
}


@pytest.mark.parametrize("safeguard", LOCAL_SABOTAGE)
def test_a_local_safeguard_is_missed(safeguard: str, open_root: Callable[[str], str]) -> None:
    check, sabotage = LOCAL_SABOTAGE[safeguard]
    url = open_root("local")
    check(open_store(f"{url}/whole"))
    with pytest.MonkeyPatch.context() as patch:
        sabotage(patch)
        with pytest.raises(AssertionError):
            check(open_store(f"{url}/sabotaged"))


CONDITION_CHECKS = [check_create_is_exclusive, check_replace_compares, check_delete_compares, check_reads_are_pinned]


def drop_gcs_conditions(patch: pytest.MonkeyPatch) -> None:
    url = GcsClient._url

    def without_condition(self: GcsClient, api: str, rest: str, params: Any) -> Any:
        return url(self, api, rest, {name: value for name, value in params.items() if name != "ifGenerationMatch"})

    patch.setattr(GcsClient, "_url", without_condition)


def drop_s3_conditions(patch: pytest.MonkeyPatch) -> None:
    request = S3Backend._request

    def without_condition(self: S3Backend, operation: str, params: Any, size_bytes: int) -> Any:
        kept = {name: value for name, value in params.items() if name not in ("IfMatch", "IfNoneMatch")}
        return request(self, operation, kept, size_bytes)

    patch.setattr(S3Backend, "_request", without_condition)


@pytest.mark.parametrize("check", CONDITION_CHECKS)
@pytest.mark.parametrize(("kind", "sabotage"), [("gcs", drop_gcs_conditions), ("s3", drop_s3_conditions)])
def test_a_condition_is_missed(
    kind: str,
    sabotage: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Store], None],
    open_root: Callable[[str], str],
) -> None:
    url = open_root(kind)
    check(open_store(f"{url}/whole"))
    with pytest.MonkeyPatch.context() as patch:
        sabotage(patch)
        with pytest.raises(AssertionError):
            check(open_store(f"{url}/sabotaged"))
        assert not probe(open_store(f"{url}/probed")).passed


def check_corruption_is_noticed(store: Store, server: StrictGcs) -> None:
    server.inject(FaultKind.CORRUPTED)
    assert refused(StorageError, lambda: store.write("key", b"some bytes"))


def test_the_digest_of_a_write_is_missed(strict_gcs: StrictGcs) -> None:
    check_corruption_is_noticed(open_store("gs://bucket/whole"), strict_gcs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GcsBackend, "_require_md5", lambda *_: None)
        with pytest.raises(AssertionError):
            check_corruption_is_noticed(open_store("gs://bucket/sabotaged"), strict_gcs)


def check_changed_replies_are_noticed(store: Store) -> None:
    version = store.create("key", b"some bytes")
    get = GcsClient.get

    def changed_once(self: GcsClient, *args: Any, **params: Any) -> Any:
        reply = get(self, *args, **params)
        patch.setattr(GcsClient, "get", get)
        return type(reply)(reply.status, reply.headers, b"other" + reply.body[5:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GcsClient, "get", changed_once)
        assert store.read("key", version=version).data == b"some bytes"


def test_the_digest_of_a_read_is_missed(strict_gcs: StrictGcs, retry: RetryPolicy) -> None:
    del strict_gcs
    check_changed_replies_are_noticed(open_store("gs://bucket/whole", retry=retry))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gcs_module, "_stored_md5", lambda _headers: None)
        with pytest.raises(AssertionError):
            check_changed_replies_are_noticed(open_store("gs://bucket/sabotaged", retry=retry))
