"""Hashes of whole documents or of their paragraphs, part by part, and which hash occurred first.

Layout: for each part of documents `<part>.hashes`, raw little-endian u64 pairs (xxh3-128 of a normal form); for
documents also `<part>.ids`, their ids in the same form; and one manifest `hashes.json`.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xxhash

from marin_corpus.documents.read import DocumentPart, DocumentSet, check_made_for, read_batches
from marin_corpus.errors import BadConfig, Mismatch
from marin_corpus.files import Location, read_whole
from marin_corpus.manifest import encode_manifest, parts_of, read_manifest
from marin_corpus.output import Output

MANIFEST = "hashes.json"
_HASH_BYTES = 16
_HASHES_PER_PASS = 4 << 20
"""Hashes sorted at a time: about 300 MB."""
_PARAGRAPH = re.compile(r"[^\n]+\n*")


@dataclass(frozen=True, kw_only=True)
class NormalForm:
    """What two texts may differ in and still count as the same."""

    ignore_case: bool = False
    """Compare case-folded texts."""
    ignore_whitespace: bool = False
    """Runs of whitespace count as one space; leading and trailing ones do not count."""
    ignore_punctuation: bool = False
    """Characters of the Unicode categories P* do not count."""

    def apply(self, text: str) -> str:
        """The form that is compared."""
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = text.translate(_punctuation())
        if self.ignore_whitespace:
            text = " ".join(text.split())
        return text


@dataclass(frozen=True, kw_only=True)
class HashConfig:
    """What is hashed: whole documents, or their paragraphs (lines with the line ends that follow them)."""

    unit: Literal["document", "paragraph"]
    normal_form: NormalForm = NormalForm()
    min_characters: int = 0
    """Paragraphs whose normal form is shorter count as never repeated."""

    def __post_init__(self) -> None:
        if self.unit not in ("document", "paragraph"):
            raise BadConfig(f"unit={self.unit!r} must be 'document' or 'paragraph'")
        if self.min_characters < 0:
            raise BadConfig(f"min_characters={self.min_characters} must not be negative")
        if self.unit == "document" and self.min_characters:
            raise BadConfig(f"min_characters={self.min_characters} is for paragraphs; documents have none")


@cache
def _punctuation() -> dict[int, None]:
    return {code: None for code in range(0x110000) if unicodedata.category(chr(code)).startswith("P")}


def long_paragraphs(text: str, config: HashConfig) -> Iterator[tuple[int, int, str]]:
    """(start, end, normal form) of each paragraph that is long enough; `end` is after its line ends."""
    for match in _PARAGRAPH.finditer(text):
        # The line ends are no part of what is compared: the last paragraph may have none.
        form = config.normal_form.apply(match.group().rstrip("\n"))
        if len(form) >= config.min_characters and form and not form.isspace():
            yield match.start(), match.end(), form


def write_hashes(documents: DocumentSet, config: HashConfig, output: Output) -> list[dict[str, int]]:
    """Hash all documents or paragraphs, a part at a time.

    Returns:
        For each part `{"num_hashes": ...}`.
    """
    shards = {part.name: _HashJob(part=part, config=config) for part in documents.parts}
    summaries = list(output.run_shards(shards, _hash_part).values())
    parts = [
        {"name": part.name, "rows_digest": part.rows_digest, "num_hashes": summary["num_hashes"]}
        for part, summary in zip(documents.parts, summaries, strict=True)
    ]
    output.write_file(MANIFEST, encode_manifest("text hashes", {"config": asdict(config), "parts": parts}))
    return summaries


@dataclass(frozen=True, kw_only=True)
class _HashJob:
    part: DocumentPart
    config: HashConfig


def _hash_part(job: _HashJob, path: Path) -> dict[str, int]:
    config, digest = job.config, xxhash.xxh3_128_digest
    unchanged = config.unit == "document" and config.normal_form == NormalForm()
    num_hashes = 0
    with open(f"{path}.hashes", "wb") as hashes:
        if config.unit == "paragraph":
            for batch in read_batches(job.part, ["text"]):
                for text in batch["text"].to_pylist():
                    found = [digest(form.encode()) for _, _, form in long_paragraphs(text, config)]
                    hashes.write(b"".join(found))
                    num_hashes += len(found)
            return {"num_hashes": num_hashes}
        with open(f"{path}.ids", "wb") as ids:
            for batch in read_batches(job.part, ["id"] if unchanged else ["id", "text"]):
                own = bytes.fromhex("".join(batch["id"].to_pylist()))
                ids.write(own)
                # The id is the hash of the unchanged text, so that nothing but ids is read.
                forms = () if unchanged else map(config.normal_form.apply, batch["text"].to_pylist())
                hashes.write(own if unchanged else b"".join(digest(form.encode()) for form in forms))
                num_hashes += batch.num_rows
    return {"num_hashes": num_hashes}


@dataclass(frozen=True, kw_only=True)
class HashPart:
    """The hashes of one part of documents."""

    name: str
    url: str
    rows_digest: str
    num_hashes: int

    def hashes(self) -> np.ndarray:
        """[num_hashes, 2] uint64. Raises `CorruptData`."""
        return self._read(".hashes")

    def ids(self) -> np.ndarray:
        """[num_hashes, 2] uint64, the documents' ids; only where whole documents were hashed. Raises `CorruptData`."""
        return self._read(".ids")

    def _read(self, suffix: str) -> np.ndarray:
        data = read_whole(self.url + suffix, self.num_hashes * _HASH_BYTES, next="hash the documents again")
        return np.frombuffer(data, dtype="<u8").reshape(-1, 2)


@dataclass(frozen=True, kw_only=True)
class HashSet:
    """The hashes of a set of documents, in the order of its parts."""

    url: str
    config: HashConfig
    parts: tuple[HashPart, ...]

    @classmethod
    def open(cls, url: Location) -> "HashSet":
        """Read the manifest `hashes.json` below a path or URL. Raises `Mismatch`, `CorruptData`."""
        from upath import UPath

        folder = UPath(url)
        manifest = read_manifest(folder, MANIFEST, kind="text hashes")
        config: dict[str, Any] = manifest["config"]
        return cls(
            url=str(folder),
            config=HashConfig(**{**config, "normal_form": NormalForm(**config["normal_form"])}),
            parts=parts_of(manifest, folder, HashPart),
        )

    def check_made_for(self, documents: DocumentSet, *, unit: str) -> None:
        """Raises `Mismatch` unless these are hashes of this unit of exactly these documents."""
        self.check_unit(unit)
        check_made_for(documents, self.parts, what=f"the hashes of {self.url}")

    def check_unit(self, unit: str) -> None:
        """Raises `Mismatch` unless these are hashes of this unit."""
        if self.config.unit != unit:
            raise Mismatch(f"{self.url} holds hashes of each {self.config.unit}, not of each {unit}")


def first_occurrences(parts: Sequence[HashPart]) -> np.ndarray:
    """The position of the first occurrence of each hash, counted over all parts in order: int64, own if first.

    Memory: 8 bytes for each hash, and about 300 MB; more hashes than `_HASHES_PER_PASS` take several passes over the
    files.
    """
    offsets = np.cumsum([0] + [part.num_hashes for part in parts])
    first_H = np.arange(offsets[-1], dtype=np.int64)
    num_passes = max(1, -(-int(offsets[-1]) // _HASHES_PER_PASS))
    for number in range(num_passes):
        hashes, positions = [], []
        for part, offset in zip(parts, offsets, strict=False):
            hashes_P2 = part.hashes()
            chosen = np.flatnonzero(hashes_P2[:, 0] % np.uint64(num_passes) == number)
            hashes.append(hashes_P2[chosen])
            positions.append(chosen + offset)
        if hashes:
            hashes_N2, positions_N = np.concatenate(hashes), np.concatenate(positions)
            # A stable sort: equal hashes stay in order, so that the first of a run is the first occurrence.
            order = np.lexsort((hashes_N2[:, 1], hashes_N2[:, 0]))
            hashes_N2, positions_N = hashes_N2[order], positions_N[order]
            begins = np.ones(len(order), dtype=bool)
            begins[1:] = (hashes_N2[1:] != hashes_N2[:-1]).any(axis=1)
            first_H[positions_N] = positions_N[begins][np.cumsum(begins) - 1]
    return first_H
