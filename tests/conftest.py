"""What every test may rely on: nothing of the caller's shell reaches it, and property tests repeat exactly."""

import os

import hypothesis
import pytest

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
