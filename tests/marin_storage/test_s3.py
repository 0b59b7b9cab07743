"""S3: the traps of its client library, and replies that are lost or refused."""

import asyncio
import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
from marin_storage import (
    AlreadyExists,
    PermissionDenied,
    RetryPolicy,
    StorageError,
    Store,
    Transient,
    Unavailable,
    UnknownOutcome,
    open_store,
)
from marin_storage import s3 as s3_module


@pytest.fixture
def store(moto_s3: object, retry: RetryPolicy) -> Store:
    del moto_s3
    return open_store("s3://bucket/root", retry=retry)


Fault = Callable[[], BaseException]


def client_error(code: str, status: int, message: str = "injected") -> botocore.exceptions.ClientError:
    reply = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(reply, "injected")


def lost() -> botocore.exceptions.HTTPClientError:
    return botocore.exceptions.ConnectionClosedError(endpoint_url="injected")


class Disturbed:
    """Stands before the client of a store: fails calls of one operation before or after they are applied."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.faults: list[tuple[str, Fault, bool]] = []
        self.defaults: dict[str, dict[str, Any]] = {}
        assert isinstance(store.backend, s3_module.S3Backend)
        filesystem = store.backend._filesystem
        connect = filesystem.set_session

        async def set_session(*args: Any, **kwargs: Any) -> Any:
            self.client = await connect(*args, **kwargs)
            return self

        monkeypatch.setattr(filesystem, "set_session", set_session)

    def fail(self, operation: str, error: Fault, *, applied: bool = False, count: int = 1) -> None:
        self.faults += [(operation, error, applied)] * count

    def __getattr__(self, operation: str) -> Any:
        async def call(**kwargs: Any) -> Any:
            self.calls.append((operation, kwargs))
            kwargs |= self.defaults.get(operation, {})
            fault = next((fault for fault in self.faults if fault[0] == operation), None)
            if fault is None:
                return await getattr(self.client, operation)(**kwargs)
            self.faults.remove(fault)
            if fault[2]:
                await getattr(self.client, operation)(**kwargs)
            raise fault[1]()

        return call


@pytest.fixture
def client(store: Store, monkeypatch: pytest.MonkeyPatch) -> Disturbed:
    return Disturbed(store, monkeypatch)


DISTURBANCES: list[tuple[Fault, bool]] = [
    (lambda: client_error("SlowDown", 503), False),
    (lambda: client_error("InternalError", 500), True),
    (lambda: client_error("ConditionalRequestConflict", 409), False),
    (lambda: client_error("RequestTimeout", 400), False),
    (lost, False),
    (lost, True),
]


@pytest.mark.parametrize(("error", "applied"), DISTURBANCES)
@pytest.mark.parametrize("count", [1, 3])
def test_disturbed_writes_are_applied_exactly_once(
    store: Store, client: Disturbed, error: Fault, applied: bool, count: int
) -> None:
    client.fail("put_object", error, applied=applied, count=1)
    client.fail("put_object", error, count=count - 1)
    version = store.create("key", b"ours")
    assert store.read("key", version=version).data == b"ours"
    client.faults.clear()
    client.fail("put_object", error, applied=applied)
    version = store.replace("key", b"ours, second", version=version)
    assert store.read("key", version=version).data == b"ours, second"
    client.fail("delete_object", error, applied=applied)
    store.delete("key", version=version)
    assert store.list_files("") == []


@pytest.mark.parametrize(("error", "applied"), DISTURBANCES)
def test_disturbed_writes_over_anothers_object_are_refused(
    store: Store, client: Disturbed, error: Fault, applied: bool
) -> None:
    open_store("s3://bucket/root").create("key", b"theirs")
    if not applied:
        client.fail("put_object", error)
    with pytest.raises(AlreadyExists):
        store.create("key", b"ours")
    assert store.read("key").data == b"theirs"


def test_a_failed_condition_needs_no_element_in_the_reply(store: Store, client: Disturbed) -> None:
    """The client library reports a bare 412, as SeaweedFS sends it, as EINVAL."""
    store.write("key", b"theirs")
    client.fail("put_object", lambda: client_error("412", 412, "Precondition Failed"))
    with pytest.raises(AlreadyExists):
        store.create("key", b"ours")


def test_the_condition_goes_with_empty_bodies_too(store: Store, client: Disturbed) -> None:
    """The client library turns an exclusive open without content into an unconditional overwrite."""
    store.write("key", b"theirs")
    with pytest.raises(AlreadyExists):
        store.create("key", b"")
    assert client.calls[-2][1]["IfNoneMatch"] == "*"
    assert store.read("key").data == b"theirs"


def test_a_backend_makes_one_request_a_try(store: Store, client: Disturbed) -> None:
    client.fail("put_object", lambda: client_error("SlowDown", 503), count=100)
    with pytest.raises(Transient):
        store.backend.create("key", b"x", durable=False)
    assert len(client.calls) == 1


def test_a_client_that_hangs_is_given_up(moto_s3: object, clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `Expect: 100-continue`, for which the client waits without bound."""
    del moto_s3
    policy = RetryPolicy(tries=2, try_s=0.2, clock=clock, sleep=clock.sleep)
    store = open_store("s3://bucket/root", retry=policy)

    class Hanging(Disturbed):
        def __getattr__(self, operation: str) -> Any:
            async def call(**kwargs: Any) -> Any:
                del kwargs
                await asyncio.Event().wait()

            return call

    Hanging(store, monkeypatch)
    with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
        store.read("key")
    with pytest.raises(UnknownOutcome):
        store.create("key", b"x")


def test_a_server_that_is_not_there_is_unavailable(
    moto_s3: object, retry: RetryPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    del moto_s3
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="no connection") as caught:
        open_store("s3://bucket/root", retry=retry).create("key", b"x")
    assert not isinstance(caught.value, UnknownOutcome)


def test_permission_denied_is_final_and_says_where(store: Store, client: Disturbed, clock) -> None:
    client.fail("put_object", lambda: client_error("AccessDenied", 403, "no such right"))
    with pytest.raises(PermissionDenied, match=r"AccessDenied no such right .*root/key"):
        store.create("key", b"x")
    assert clock.pauses_s == []


def test_missing_credentials_are_named(store: Store, client: Disturbed) -> None:
    client.fail("get_object", botocore.exceptions.NoCredentialsError)
    with pytest.raises(PermissionDenied, match="aws configure"):
        store.read("key")


def test_a_store_without_conditional_writes_is_not_retried(store: Store, client: Disturbed, clock) -> None:
    client.fail("put_object", lambda: client_error("NotImplemented", 501))
    with pytest.raises(StorageError, match="NotImplemented"):
        store.create("key", b"x")
    assert clock.pauses_s == []


def test_the_store_is_given_the_means_to_check_the_body(store: Store, client: Disturbed, tmp_path: Path) -> None:
    """Every S3 store compares `Content-MD5`; newer checksum headers are refused by some."""
    (tmp_path / "file").write_bytes(b"some bytes")
    for call in (lambda: store.create("key", b"some bytes"), lambda: store.upload(tmp_path / "file", "copy")):
        call()
        sent = base64.b64decode(client.calls[-1][1]["ContentMD5"])
        assert sent == hashlib.md5(b"some bytes", usedforsecurity=False).digest()


def test_a_body_changed_on_the_way_is_sent_again(store: Store, client: Disturbed) -> None:
    client.fail("put_object", lambda: client_error("BadDigest", 400))
    store.create("key", b"some bytes")
    assert store.read("key").data == b"some bytes"


@pytest.mark.parametrize(
    ("reply", "algorithm"),
    [
        ({}, "md5"),
        ({"ServerSideEncryption": "AES256"}, "md5"),
        ({"ServerSideEncryption": "aws:kms"}, "sha256"),
        ({"SSECustomerAlgorithm": "AES256"}, "sha256"),
        ({"ETag": '"0123456789abcdef0123456789abcdef-3"'}, "sha256"),
        ({"ETag": '"opaque"'}, "sha256"),
    ],
)
def test_an_etag_is_a_digest_only_if_it_is_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, reply: dict[str, str], algorithm: str
) -> None:
    data = b"some bytes"
    store.write("key", data)
    backend = store.backend
    assert isinstance(backend, s3_module.S3Backend)
    head = backend._run("head_object", "key")
    monkeypatch.setattr(backend, "_run", lambda *_, **__: {**head, **reply})
    monkeypatch.setattr(backend, "read_range", lambda _key, start, length, **_: data[start : start + length])
    expected = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    assert store.digest("key") == f"{algorithm}:{expected}"


def test_large_files_are_uploaded_in_parts(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SINGLE_REQUEST_BYTES", "PART_BYTES"):
        monkeypatch.setattr(s3_module, name, 5 << 20)
    data = hashlib.shake_256(b"seed").digest(12 << 20)
    (tmp_path / "file").write_bytes(data)
    store.upload(tmp_path / "file", "d/large")
    assert store.read("d/large").data == data
    assert "-" in store.stat("d/large").version  # several parts
    assert store.digest("d/large") == f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
def test_more_objects_than_one_reply_or_one_batch_holds(
    store: Store, client: Disturbed, monkeypatch: pytest.MonkeyPatch, page_size: int
) -> None:
    client.defaults["list_objects_v2"] = {"MaxKeys": page_size}
    monkeypatch.setattr(s3_module, "_DELETE_BATCH", page_size)
    keys = [f"d/{directory}/{number}" for directory in "abc" for number in range(2)] + ["d/x", "d/y"]
    for key in keys:
        store.write(key, b"x")
    assert [entry.key for entry in store.list_files("d")] == keys
    listing = store.list_directory("d")
    assert ([entry.key for entry in listing.files], list(listing.directories)) == (["d/x", "d/y"], ["a", "b", "c"])
    assert store.delete_tree("d") == len(keys)
    assert store.list_files("") == []


def test_a_bucket_needs_no_region_in_the_code(store: Store) -> None:
    """A region given to the client makes its bucket creation illegal; it comes from the environment alone."""
    assert "client_kwargs" not in store.backend.storage_options


def test_endpoints_are_not_mixed_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("key", b"x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    other = open_store("s3://bucket/root", retry=RetryPolicy(tries=1))
    with pytest.raises(Unavailable):
        other.read("key")
    assert store.read("key").data == b"x"
