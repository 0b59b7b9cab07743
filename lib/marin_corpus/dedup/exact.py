"""Exact duplicates of documents: of texts that are equal (or have equal normal forms) the first is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from marin_corpus.dedup.hashes import HashPart, HashSet, first_occurrences
from marin_corpus.documents.attributes import AttributeWriter, write_attributes_manifest
from marin_corpus.documents.read import DocumentPart, DocumentSet, rows_by_part
from marin_corpus.errors import Mismatch
from marin_corpus.output import Output

SCHEMA = pa.schema([("exact_duplicate", pa.bool_()), ("exact_duplicate_of", pa.string())])


@dataclass(frozen=True, kw_only=True)
class _ExactJob:
    part: DocumentPart
    rows: np.ndarray
    """The duplicates' rows within the part."""
    kept_ids: np.ndarray
    """[rows, 2] uint64: the id of the document that is kept in place of each."""


def find_exact_duplicates(
    documents: DocumentSet, hashes: HashSet, output: Output, *, against: Sequence[HashSet] = ()
) -> list[dict[str, Any]]:
    """Mark every document whose hash occurs earlier in the set, or anywhere in the sets `against`.

    Writes the attributes `exact_duplicate` and `exact_duplicate_of`, the id of the kept document or null.
    Memory: 8 bytes for each document of all sets, 40 for each duplicate, and about 300 MB.

    Args:
        documents: the documents.
        hashes: their hashes, of unit "document".
        output: where the files go.
        against: hashes, of the same normal form, of sets that come before this one.

    Returns:
        For each part `{"num_documents": ..., "sums": {"exact_duplicate": ...}}`.

    Raises:
        Mismatch: hashes of other documents, of paragraphs, or of another normal form.
    """
    hashes.check_made_for(documents, unit="document")
    for other in against:
        other.check_unit("document")
        if other.config != hashes.config:
            raise Mismatch(
                f"{other.url} holds hashes of another normal form than {hashes.url}",
                why=f"{other.config.normal_form} instead of {hashes.config.normal_form}",
                next="hash both sets in the same way",
            )
    parts = [part for other in (*against, hashes) for part in other.parts]
    first_D = first_occurrences(parts)
    duplicates = np.flatnonzero(first_D != np.arange(len(first_D)))
    ends = np.cumsum([part.num_hashes for part in parts])
    own_begin = len(first_D) - documents.num_documents
    duplicates = duplicates[duplicates >= own_begin]
    kept_ids = _ids_at(first_D[duplicates], parts, ends)
    shards, used = {}, 0
    for part, rows in rows_by_part(documents, duplicates - own_begin):
        shards[part.name] = _ExactJob(part=part, rows=rows, kept_ids=kept_ids[used : used + len(rows)])
        used += len(rows)
    summaries = list(output.run_shards(shards, _write_exact).values())
    write_attributes_manifest(output, documents, SCHEMA.names)
    return summaries


def _ids_at(positions: np.ndarray, parts: Sequence[HashPart], ends: np.ndarray) -> np.ndarray:
    """The ids [positions, 2] of documents by their position over all parts."""
    ids = np.zeros((len(positions), 2), dtype="<u8")
    owner = np.searchsorted(ends, positions, side="right")
    for number in np.unique(owner):
        chosen = owner == number
        begin = ends[number] - parts[number].num_hashes
        ids[chosen] = parts[number].ids()[positions[chosen] - begin]
    return ids


def _write_exact(job: _ExactJob, path: Path) -> dict[str, Any]:
    duplicate = np.zeros(job.part.num_documents, dtype=bool)
    duplicate[job.rows] = True
    of: list[str | None] = [None] * job.part.num_documents
    for row, kept in zip(job.rows.tolist(), job.kept_ids, strict=True):
        of[row] = kept.tobytes().hex()
    with AttributeWriter(path, job.part, SCHEMA) as writer:
        writer.add(pa.table([pa.array(duplicate), pa.array(of, pa.string())], schema=SCHEMA))
    return {"num_documents": job.part.num_documents, "sums": {"exact_duplicate": int(duplicate.sum())}}
