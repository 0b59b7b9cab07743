"""Servers and stores that the storage tests share."""

import http.client
import itertools
import logging
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from marin_storage import RetryPolicy, Store, open_store
from strict_gcs import StrictGcs


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pauses_s: list[float] = []

    def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.now_s += pause_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def retry(clock: Clock) -> RetryPolicy:
    """The default policy, in no time."""
    return RetryPolicy(clock=clock, sleep=clock.sleep, random=random.Random(0).random)


@pytest.fixture(scope="session")
def _gcs_server() -> Iterator[StrictGcs]:
    with StrictGcs() as server:
        yield server


@pytest.fixture
def strict_gcs(_gcs_server: StrictGcs, monkeypatch: pytest.MonkeyPatch) -> StrictGcs:
    """An empty strict store with the bucket "bucket", to which this process and its children connect."""
    _gcs_server.reset()
    _gcs_server.buckets["bucket"] = {}
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", _gcs_server.url)
    return _gcs_server


@pytest.fixture(scope="session")
def _s3_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def moto_s3(_s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An S3 server with the empty bucket "bucket", to which this process and its children connect."""
    use_s3(_s3_server, monkeypatch)
    connection = http.client.HTTPConnection(_s3_server.removeprefix("http://"))
    for method, path in (("POST", "/moto-api/reset"), ("PUT", "/bucket")):
        connection.request(method, path)
        assert connection.getresponse().read() is not None
    connection.close()
    return _s3_server


def use_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


_numbers = itertools.count()
KINDS = ("local", "memory", "gcs", "s3")


@pytest.fixture
def open_root(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The URL of a new, empty root on a kind of storage."""

    def url_of(kind: str) -> str:
        if kind == "local":
            return str(tmp_path / "root")
        if kind == "gcs":
            request.getfixturevalue("strict_gcs")
            return "gs://bucket/some/root"
        if kind == "s3":
            request.getfixturevalue("moto_s3")
            return "s3://bucket/some/root"
        return f"memory://test-{next(_numbers)}"

    return url_of


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, open_root: Callable[[str], str], retry: RetryPolicy) -> Store:
    """An empty store of each kind."""
    return open_store(open_root(request.param), retry=retry)
