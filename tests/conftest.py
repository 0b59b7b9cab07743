"""What every test may rely on: nothing of the caller's shell reaches it, and property tests repeat exactly."""

import os
from collections.abc import Iterator

import hypothesis
import pytest
from servers import MotoS3, use_s3
from strict_gcs import StrictGcs

# A test is judged by what it asserts, never by how fast this machine was; and what failed once fails again.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

_FOREIGN = ("MARIN_PIPE_", "AWS_", "GOOGLE_", "STORAGE_EMULATOR_")
# Trust roots say how to reach machines, not which account to use.
_KEPT = {"AWS_CA_BUNDLE"}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No storage root, credentials or colours of the person who runs the tests; child processes inherit this."""
    for name in os.environ:
        if name.startswith(_FOREIGN) and name not in _KEPT:
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")


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
def _s3_server() -> Iterator[MotoS3]:
    server = MotoS3()
    yield server
    server.close()


@pytest.fixture
def moto_s3(_s3_server: MotoS3, monkeypatch: pytest.MonkeyPatch) -> MotoS3:
    """An S3 server with the empty bucket "bucket", to which this process and its children connect."""
    use_s3(_s3_server.url, monkeypatch)
    _s3_server.reset()
    return _s3_server
