"""`doctor` finds what is wrong, says how to mend it, and shows no secret."""

import shutil
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest
from marin_storage import ProbeResult

from marin_pipe.cli import doctor
from marin_pipe.cli.app import dispatch
from marin_pipe.execution.errors import ExitCode

REPOSITORY = Path(__file__).parents[3]


def test_a_sound_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "very_secret")
    assert dispatch(["doctor", "--root", str(tmp_path / "new")], program="marin-pipe") == 0
    out = capsys.readouterr().out
    assert "ok   Python 3." in out
    assert "ok   credentials of AWS: AWS_ACCESS_KEY_ID" in out
    assert "very_secret" not in out
    assert "note conditional writes not tried yet" in out
    assert f"note root {tmp_path / 'new'}: does not exist" in out
    assert "\nfail" not in out
    assert not (tmp_path / "new").exists()  # without --probe nothing is written


def test_the_probe_writes_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["doctor", "--probe", "--root", str(tmp_path)], program="marin-pipe") == 0
    assert f"ok   root {tmp_path}: conditional writes are honoured" in capsys.readouterr().out
    # Lock files of local storage stay: removing one would let two writers hold it at once.
    left = [path for path in tmp_path.rglob("*") if path.is_file() and ".marin_storage/locks" not in str(path)]
    assert left == []


def test_a_store_that_lies_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(doctor, "probe", lambda store, **_: ProbeResult(url=store.url, problems=("it lies",)))
    code = dispatch(["doctor", "--probe", "--root", str(tmp_path)], program="marin-pipe")
    assert code == ExitCode.FAILED
    assert f"fail root {tmp_path}: it lies\n     -> use another store" in capsys.readouterr().out


def test_a_root_of_unknown_kind_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["doctor", "--root", "ftp://x/y"], program="marin-pipe") == ExitCode.FAILED
    assert "\nfail root ftp://x/y: " in capsys.readouterr().out


def test_a_missing_extra_fails_only_where_the_root_needs_it(monkeypatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: None)
    needed = {check.what: check for check in doctor.cloud_checks("gs://bucket/x") if check.level == "fail"}
    assert list(needed) == ["gcsfs is not installed, and gs://bucket/x needs it"]
    assert needed.popitem()[1].fix == 'python -m pip install "marin-pipe[gcs]"'
    # What is not there is not "ok".
    assert {check.level for check in doctor.cloud_checks("outputs")} == {"note"}


def test_only_extras_that_this_version_uses_are_looked_for() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    sources = "".join(
        path.read_text() for path in [*REPOSITORY.glob("marin_pipe/**/*.py"), *REPOSITORY.glob("lib/**/*.py")]
    )
    for cloud in doctor._CLOUDS:
        assert cloud.extra in project["optional-dependencies"]
        assert f"import {cloud.module}" in sources


def test_credentials_are_missed_where_the_root_needs_them(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    levels = {check.what: check.level for check in doctor.cloud_checks("s3://bucket/x")}
    assert levels["credentials of AWS: none found"] == "warn"
    assert levels["credentials of Google Cloud: none found"] == "note"


def test_a_disk_that_is_nearly_full_is_a_warning(tmp_path: Path, capsys, monkeypatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 2**40, 2**30))
    assert dispatch(["doctor", "--root", str(tmp_path)], program="marin-pipe") == 0
    assert f"warn 1.0 GiB free at {tmp_path}\n     -> " in capsys.readouterr().out
