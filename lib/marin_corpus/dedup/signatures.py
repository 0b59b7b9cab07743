"""Band keys of a set of documents in files.

Layout: for each part of documents `<part>.bands`, a raw little-endian u64 matrix [1 + bands, documents]: first the
number of each document's shingles, then its key in each band; and one manifest `signatures.json`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from marin_corpus.dedup.minhash import MinHashConfig, band_keys, signatures
from marin_corpus.dedup.shingles import ShingleConfig, shingle_texts
from marin_corpus.documents.read import DocumentPart, DocumentSet, check_made_for, read_batches
from marin_corpus.files import Location, read_range
from marin_corpus.manifest import encode_manifest, parts_of, read_manifest
from marin_corpus.output import Output

MANIFEST = "signatures.json"
BATCH_ROWS = 1024
"""Texts that are shingled at a time."""


@dataclass(frozen=True, kw_only=True)
class _SignatureJob:
    part: DocumentPart
    config: MinHashConfig


def write_signatures(documents: DocumentSet, config: MinHashConfig, output: Output) -> list[dict[str, int]]:
    """Sign all documents, a part at a time: 8 bytes for each document and band, and as much in memory for a part.

    Returns:
        For each part `{"num_documents": ..., "num_without_shingles": ...}`.
    """
    shards = {part.name: _SignatureJob(part=part, config=config) for part in documents.parts}
    summaries = list(output.run_shards(shards, _sign_part).values())
    parts = [
        {"name": part.name, "rows_digest": part.rows_digest, "num_documents": part.num_documents}
        for part in documents.parts
    ]
    output.write_file(MANIFEST, encode_manifest("MinHash signatures", {"config": asdict(config), "parts": parts}))
    return summaries


def _sign_part(job: _SignatureJob, path: Path) -> dict[str, int]:
    blocks = [np.zeros((1 + job.config.num_bands, 0), dtype=np.uint64)]
    for batch in read_batches(job.part, ["text"]):
        for begin in range(0, batch.num_rows, BATCH_ROWS):
            texts = batch["text"].slice(begin, BATCH_ROWS).to_pylist()
            shingles = shingle_texts(texts, job.config.shingles)
            keys_BD = band_keys(signatures(shingles, job.config), job.config)
            blocks.append(np.vstack([shingles.counts_D.astype(np.uint64), keys_BD]))
    matrix = np.concatenate(blocks, axis=1).astype("<u8")
    matrix.tofile(f"{path}.bands")
    return {"num_documents": matrix.shape[1], "num_without_shingles": int(np.count_nonzero(matrix[0] == 0))}


@dataclass(frozen=True, kw_only=True)
class SignaturePart:
    """The band keys of one part of documents."""

    name: str
    url: str
    rows_digest: str
    num_documents: int


@dataclass(frozen=True, kw_only=True)
class SignatureSet:
    """The band keys of a set of documents, in the order of its parts."""

    url: str
    config: MinHashConfig
    parts: tuple[SignaturePart, ...]

    @classmethod
    def open(cls, url: Location) -> "SignatureSet":
        """Read the manifest `signatures.json` below a path or URL. Raises `Mismatch`, `CorruptData`."""
        from upath import UPath

        folder = UPath(url)
        manifest = read_manifest(folder, MANIFEST, kind="MinHash signatures")
        config: dict[str, Any] = manifest["config"]
        return cls(
            url=str(folder),
            config=MinHashConfig(**{**config, "shingles": ShingleConfig(**config["shingles"])}),
            parts=parts_of(manifest, folder, SignaturePart),
        )

    def check_made_for(self, documents: DocumentSet) -> None:
        """Raises `Mismatch` unless these are signatures of exactly these documents."""
        check_made_for(documents, self.parts, what=f"the signatures of {self.url}")

    def num_shingles(self) -> np.ndarray:
        """Of each document, int64. Raises `CorruptData`."""
        return self._row(0).astype(np.int64)

    def bands(self) -> Iterator[np.ndarray]:
        """For each band, the keys of all documents, uint64. Raises `CorruptData`."""
        for band in range(self.config.num_bands):
            yield self._row(1 + band)

    def _row(self, row: int) -> np.ndarray:
        rows = [np.zeros(0, dtype="<u8")]
        for part in self.parts:
            size_bytes = 8 * part.num_documents
            data = read_range(f"{part.url}.bands", row * size_bytes, size_bytes, next="make the signatures again")
            rows.append(np.frombuffer(data, dtype="<u8"))
        return np.concatenate(rows)
