"""Stores that break their word are found out and refused."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults import Fault, FaultyBackend
from marin_storage import (
    Conflict,
    Entry,
    RetryPolicy,
    StorageError,
    Store,
    Unavailable,
    Unsuitable,
    ensure_writable,
    open_store,
    probe,
)
from strict_gcs import StrictGcs

RECORD = ".marin_pipe/store.json"


class Liar(FaultyBackend):
    """Accepts what it should refuse, in the ways named by `lies`."""

    def __init__(self, inner: Any, lies: set[str]):
        super().__init__(inner)
        self.lies = lies
        self.listings = 0

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        if "create" in self.lies:
            return self.write(key, data)
        if "no create" in self.lies:
            raise StorageError("501 NotImplemented: If-None-Match")
        return super().create(key, data, durable=durable)

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        if "replace" in self.lies:
            return self.write(key, data)
        if "no replace" in self.lies:
            raise Conflict("always")
        return super().replace(key, data, version=version, durable=durable)

    def delete(self, key: str, *, version: str | None = None) -> None:
        if "keep" not in self.lies:
            super().delete(key, version=None if "delete" in self.lies else version)

    def list_files(self, prefix: str) -> list[Entry]:
        return [] if "list" in self.lies else super().list_files(prefix)


LIES = {
    "create": "a second create of one object was accepted",
    "replace": "a replacement that named an outdated version was accepted",
    "delete": "a deletion that named an outdated version was accepted",
    "list": "missing from the listing",
    "keep": "a deletion that named an outdated version was accepted",
    "no create": "does not offer what conditional writes need (501 NotImplemented: If-None-Match)",
    "no replace": "a replacement that named the present version was refused",
}


@pytest.fixture
def lying(open_root: Callable[[str], str], retry: RetryPolicy) -> Callable[[str], Store]:
    """Makes a store that lies in one way."""

    def make(lie: str) -> Store:
        return Store(Liar(open_store(open_root("memory")).backend, {lie}), retry=retry)

    return make


def test_an_honest_store_passes_and_is_left_as_it_was(store: Store) -> None:
    store.write("data", b"x")
    result = probe(store, prefix="probes")
    assert (result.passed, result.problems, result.url) == (True, (), store.url)
    assert [entry.key for entry in store.list_files("")] == ["data"]


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_named(lying: Callable[[str], Store], lie: str) -> None:
    result = probe(lying(lie))
    assert not result.passed
    assert LIES[lie] in "; ".join(result.problems)


@pytest.mark.parametrize("lie", LIES)
def test_a_liar_is_refused_with_the_way_out_and_its_price(lying: Callable[[str], Store], lie: str) -> None:
    store = lying(lie)
    with pytest.raises(Unsuitable, match="--single-writer") as caught:
        ensure_writable(store, RECORD)
    message = str(caught.value)
    assert LIES[lie] in message
    assert "both do the work" in message
    assert "overwrites" in message
    assert store.list_files(".marin_pipe") == []


def test_a_single_writer_may_use_a_liar_and_is_warned(
    lying: Callable[[str], Store], caplog: pytest.LogCaptureFixture
) -> None:
    store = lying("create")
    with caplog.at_level(logging.WARNING):
        assert not ensure_writable(store, RECORD, single_writer=True).passed
    assert "both do the work" in caplog.text
    with pytest.raises(Unsuitable):
        ensure_writable(store, RECORD)


def test_a_store_that_passed_is_not_probed_again(store: Store) -> None:
    assert ensure_writable(store, RECORD).passed
    assert [entry.key for entry in store.list_files("")] == [RECORD]
    counting = FaultyBackend(open_store(store.url).backend)
    assert ensure_writable(Store(counting), RECORD).passed
    assert counting.mutations == 0


def test_the_result_of_another_store_does_not_count(store: Store) -> None:
    """A root that was copied to another store brings the record along."""
    store.write(RECORD, json.dumps({"format": 1, "url": "gs://elsewhere", "conditional_writes": True}).encode())
    counting = FaultyBackend(open_store(store.url).backend)
    ensure_writable(Store(counting), RECORD)
    assert counting.mutations > 0
    assert json.loads(store.read(RECORD).data)["url"] == store.url


def test_a_damaged_record_is_made_anew(store: Store) -> None:
    """Torn by a power failure, say: asked again, the store answers the same."""
    store.write(RECORD, b"{half")
    assert ensure_writable(store, RECORD).passed
    assert json.loads(store.read(RECORD).data)["url"] == store.url


def test_an_outage_is_no_lie(open_root: Callable[[str], str], retry: RetryPolicy) -> None:
    backend = FaultyBackend(
        open_store(open_root("memory")).backend, dict.fromkeys(range(2, 10), Fault.TOO_MANY_REQUESTS)
    )
    with pytest.raises(Unavailable):
        ensure_writable(Store(backend, retry=retry), RECORD)


def test_a_place_where_nothing_can_be_written_is_no_liar() -> None:
    with pytest.raises(Unsuitable, match="nothing can be written to /proc/outputs") as caught:
        ensure_writable(open_store("/proc/outputs"), RECORD, single_writer=True)
    assert "--single-writer" not in str(caught.value)


def test_lost_replies_do_not_make_an_honest_store_a_liar(
    strict_gcs: StrictGcs, open_root: Callable[[str], str], retry: RetryPolicy
) -> None:
    del strict_gcs
    for number in range(1, 9):
        for fault in (Fault.REPLY_LOST, Fault.FAILED):
            backend = FaultyBackend(open_store(open_root("memory")).backend, {number: fault})
            assert probe(Store(backend, retry=retry)).passed, (number, fault)


@pytest.fixture
def careless_gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An emulator from the package index, which ignores every condition."""
    import http.client

    from gcp_storage_emulator.server import create_server

    server = create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    address = f"127.0.0.1:{server._api._httpd.server_address[1]}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
    connection = http.client.HTTPConnection(address)
    connection.request("POST", "/storage/v1/b?project=test", '{"name": "bucket"}', {"Content-Type": "application/json"})
    assert connection.getresponse().read()
    connection.close()
    yield "gs://bucket/root"
    server.stop()


def test_an_emulator_that_ignores_conditions_is_refused(careless_gcs: str, retry: RetryPolicy) -> None:
    with pytest.raises(Unsuitable, match="a second create of one object was accepted"):
        ensure_writable(open_store(careless_gcs, retry=retry), RECORD)
