"""Near-duplicates of a set of documents: candidates by MinHash, every one of them compared by true Jaccard similarity.

1. Documents that share a band key form buckets; buckets that share a document form clusters.
2. Clusters are dealt to groups whose shingles fit into memory. For each group the texts of its documents alone are
   read, and compared (`verify`); every comparison is written to `pairs/group-00000.parquet`.
3. The attributes `near_duplicate`, `near_duplicate_of` (the id of the kept document, which comes before) and
   `near_duplicate_jaccard` are written, and `report.json`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marin_corpus.dedup.clusters import Buckets, share_buckets
from marin_corpus.dedup.groups import Group, deal
from marin_corpus.dedup.shingles import ShingleConfig, shingle_texts
from marin_corpus.dedup.signatures import BATCH_ROWS, SignatureSet
from marin_corpus.dedup.verify import Verified, verify
from marin_corpus.documents.attributes import AttributeWriter, write_attributes_manifest
from marin_corpus.documents.read import DocumentPart, DocumentSet, opened_part, rows_by_part
from marin_corpus.errors import BadConfig
from marin_corpus.output import Output

SCHEMA = pa.schema(
    [("near_duplicate", pa.bool_()), ("near_duplicate_of", pa.string()), ("near_duplicate_jaccard", pa.float64())]
)
REPORT = "report.json"
_PAIRS = pa.schema([("id", pa.string()), ("kept_id", pa.string()), ("jaccard", pa.float64()), ("similar", pa.bool_())])
_NUM_SAMPLES = 10
_SAMPLE_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True)
class NearDuplicateConfig:
    """Which candidates are duplicates, and what comparing them may cost."""

    min_jaccard: float = 0.8
    """Of the sets of shingles. Candidates below are kept."""
    max_kept_in_bucket: int = 100
    """A bucket in which more documents than this prove different is given up; see `verify`."""
    group_shingles: int = 16 << 20
    """Shingles of the documents that one worker compares: 8 bytes each. A larger cluster is cut into runs of documents
    in order, each compared for itself; the report says how many documents that concerns."""

    def __post_init__(self) -> None:
        if not 0 < self.min_jaccard <= 1:
            raise BadConfig(f"min_jaccard={self.min_jaccard} must be above 0 and at most 1")
        if self.max_kept_in_bucket < 1:
            raise BadConfig(f"max_kept_in_bucket={self.max_kept_in_bucket} must be at least 1")
        if self.group_shingles < 1:
            raise BadConfig(f"group_shingles={self.group_shingles} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class NearDuplicateStatistics:
    """What was found. Counts of documents unless said otherwise."""

    num_documents: int
    num_without_shingles: int
    """Without a word; never duplicates here."""
    num_candidates: int
    """That share a bucket with another."""
    num_pairs: int
    """Pairs that were compared by true Jaccard."""
    num_similar_pairs: int
    num_rejected_pairs: int
    precision: float | None
    """Of the candidate pairs that were compared: similar ones / all. None without pairs."""
    num_duplicates: int
    num_spared: int
    """That share a cluster of candidates with an earlier document, and would be dropped without verification."""
    num_undecided: int
    """Kept because a bucket of theirs was given up; see `max_kept_in_bucket`."""
    num_in_cut_clusters: int
    """In clusters too large for one group; see `group_shingles`."""
    cluster_sizes: dict[str, int]
    """Number of verified clusters (a kept document with its duplicates) by size."""
    candidate_cluster_sizes: dict[str, int]
    """The same of the clusters of candidates, before verification."""


@dataclass(frozen=True, kw_only=True)
class _Rows:
    part: DocumentPart
    rows: np.ndarray
    """Ascending."""


@dataclass(frozen=True, kw_only=True)
class _GroupJob:
    """Documents to compare, numbered in the order of their parts and rows, and their buckets."""

    documents: tuple[_Rows, ...]
    bucket_M: np.ndarray
    document_M: np.ndarray
    shingles: ShingleConfig
    config: NearDuplicateConfig


@dataclass(frozen=True, kw_only=True)
class _AttributeJob:
    part: DocumentPart
    rows: np.ndarray
    kept_ids: tuple[str, ...]
    jaccard: np.ndarray


def find_near_duplicates(
    documents: DocumentSet, signatures: SignatureSet, config: NearDuplicateConfig, output: Output
) -> NearDuplicateStatistics:
    """Mark every document that resembles a kept one before it; see above for what is written.

    Memory in the calling process: about 40 bytes for each document, and 50 for each bucket that it shares (measured
    with a million documents, of which two fifths share up to 14 each: 230 bytes a document); in a worker, 8 bytes for
    each of `config.group_shingles`, and a row group of text with its words. A row group that holds candidates of
    several groups is read for each of them.

    Raises:
        Mismatch: signatures of other documents.
    """
    signatures.check_made_for(documents)
    num_shingles_D = signatures.num_shingles()
    buckets = share_buckets(signatures.bands(), num_shingles_D > 0)
    cluster_D = buckets.clusters(len(num_shingles_D))
    groups, num_cut = deal(buckets, cluster_D, num_shingles_D, config.group_shingles)
    jobs = {
        f"pairs/group-{number:05d}.parquet": _GroupJob(
            documents=tuple(
                _Rows(part=part, rows=rows) for part, rows in rows_by_part(documents, group.positions) if len(rows)
            ),
            bucket_M=group.buckets.bucket_M,
            document_M=group.buckets.document_M,
            shingles=signatures.config.shingles,
            config=config,
        )
        for number, group in enumerate(groups)
    }
    found = list(output.run_shards(jobs, _compare_group).values())
    _write_attributes(documents, groups, found, output)
    statistics = _statistics(num_shingles_D, buckets, cluster_D, groups, found, num_cut)
    samples = [sample for group in found for sample in group["samples"]]
    report = {
        "config": asdict(config),
        "signatures": asdict(signatures.config),
        "statistics": asdict(statistics),
        # The borderline is what a reader wants to judge.
        "least_similar_duplicates": _closest([s for s in samples if s["similar"]], config),
        "most_similar_rejected": _closest([s for s in samples if not s["similar"]], config),
    }
    output.write_file(REPORT, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    return statistics


def _closest(samples: list[dict[str, Any]], config: NearDuplicateConfig) -> list[dict[str, Any]]:
    """The samples closest to the threshold; those of equal distance in order."""
    return sorted(samples, key=lambda sample: abs(sample["jaccard"] - config.min_jaccard))[:_NUM_SAMPLES]


def _compare_group(job: _GroupJob, path: Path) -> dict[str, Any]:
    """Compare the documents of a group; JSON of the duplicates, as [document, kept document, its id, similarity]."""
    ids: list[str] = []
    heads: list[str] = []
    shingles_D: list[np.ndarray] = []
    for chosen in job.documents:
        for batch in _read_rows(chosen):
            texts = batch["text"].to_pylist()
            shingles = shingle_texts(texts, job.shingles)
            shingles_D.extend(shingles.unique(document) for document in range(len(texts)))
            ids.extend(batch["id"].to_pylist())
            heads.extend(text[:_SAMPLE_CHARACTERS] for text in texts)
    verified = verify(
        Buckets(job.bucket_M, job.document_M),
        shingles_D,
        min_jaccard=job.config.min_jaccard,
        max_kept_in_bucket=job.config.max_kept_in_bucket,
    )
    similar_P = verified.jaccard_P >= job.config.min_jaccard
    columns = [
        [ids[document] for document in verified.document_P],
        [ids[kept] for kept in verified.kept_P],
        verified.jaccard_P,
        similar_P,
    ]
    pq.write_table(pa.table(columns, schema=_PAIRS), path, compression="zstd", compression_level=3)
    duplicates = np.flatnonzero(verified.duplicate_of_D != np.arange(len(ids)))
    return {
        "num_pairs": len(similar_P),
        "num_similar_pairs": int(similar_P.sum()),
        "num_undecided": len(verified.undecided),
        "duplicates": [
            [document, kept, ids[kept], similarity]
            for document, kept, similarity in zip(
                duplicates.tolist(),
                verified.duplicate_of_D[duplicates].tolist(),
                verified.jaccard_D[duplicates].tolist(),
                strict=True,
            )
        ],
        "samples": _samples(verified, similar_P, ids, heads, job.config.min_jaccard),
    }


def _read_rows(chosen: _Rows) -> Iterator[pa.Table]:
    """Ids and texts of some rows of a part, in order; only row groups that hold such rows are read."""
    with opened_part(chosen.part) as file:
        begin = 0
        for group in range(file.num_row_groups):
            end = begin + file.metadata.row_group(group).num_rows
            low, high = np.searchsorted(chosen.rows, [begin, end])
            if low < high:
                table = file.read_row_group(group, columns=["id", "text"]).take(chosen.rows[low:high] - begin)
                for first in range(0, table.num_rows, BATCH_ROWS):
                    yield table.slice(first, BATCH_ROWS)
            begin = end


def _samples(
    verified: Verified, similar_P: np.ndarray, ids: Sequence[str], heads: Sequence[str], min_jaccard: float
) -> list[dict[str, Any]]:
    """The pairs closest to the threshold on either side, with the beginnings of both texts."""
    distance_P = np.abs(verified.jaccard_P - min_jaccard)
    order = np.argsort(distance_P, kind="stable")
    chosen = [*order[similar_P[order]][:_NUM_SAMPLES], *order[~similar_P[order]][:_NUM_SAMPLES]]
    return [
        {
            "jaccard": round(float(verified.jaccard_P[pair]), 4),
            "similar": bool(similar_P[pair]),
            "id": ids[verified.document_P[pair]],
            "kept_id": ids[verified.kept_P[pair]],
            "begins": heads[verified.document_P[pair]],
            "kept_begins": heads[verified.kept_P[pair]],
        }
        for pair in chosen
    ]


def _write_attributes(
    documents: DocumentSet, groups: Sequence[Group], found: Sequence[dict[str, Any]], output: Output
) -> None:
    rows = sorted(
        (int(group.positions[document]), kept_id, similarity)
        for group, result in zip(groups, found, strict=True)
        for document, _, kept_id, similarity in result["duplicates"]
    )
    positions = np.array([row[0] for row in rows], dtype=np.int64)
    shards, used = {}, 0
    for part, part_rows in rows_by_part(documents, positions):
        own = rows[used : used + len(part_rows)]
        used += len(part_rows)
        shards[part.name] = _AttributeJob(
            part=part,
            rows=part_rows,
            kept_ids=tuple(row[1] for row in own),
            jaccard=np.array([row[2] for row in own], dtype=np.float64),
        )
    output.run_shards(shards, _write_part)
    write_attributes_manifest(output, documents, SCHEMA.names)


def _write_part(job: _AttributeJob, path: Path) -> dict[str, Any]:
    size = job.part.num_documents
    of: list[str | None] = [None] * size
    jaccard: list[float | None] = [None] * size
    for row, kept_id, similarity in zip(job.rows.tolist(), job.kept_ids, job.jaccard.tolist(), strict=True):
        of[row], jaccard[row] = kept_id, similarity
    with AttributeWriter(path, job.part, SCHEMA) as writer:
        writer.add(pa.table([[kept_id is not None for kept_id in of], of, jaccard], schema=SCHEMA))
    return {"num_documents": size}


def _statistics(
    num_shingles_D: np.ndarray,
    buckets: Buckets,
    cluster_D: np.ndarray,
    groups: Sequence[Group],
    found: Sequence[dict[str, Any]],
    num_cut: int,
) -> NearDuplicateStatistics:
    num_pairs = sum(result["num_pairs"] for result in found)
    num_similar = sum(result["num_similar_pairs"] for result in found)
    kept = [
        group.positions[duplicate[1]]
        for group, result in zip(groups, found, strict=True)
        for duplicate in result["duplicates"]
    ]
    _, num_members = np.unique(np.array(kept, dtype=np.int64), return_counts=True)
    num_candidates = len(np.unique(buckets.document_M))
    _, candidate_sizes = np.unique(cluster_D, return_counts=True)
    candidate_sizes = candidate_sizes[candidate_sizes > 1]
    return NearDuplicateStatistics(
        num_documents=len(num_shingles_D),
        num_without_shingles=int(np.count_nonzero(num_shingles_D == 0)),
        num_candidates=num_candidates,
        num_pairs=num_pairs,
        num_similar_pairs=num_similar,
        num_rejected_pairs=num_pairs - num_similar,
        precision=num_similar / num_pairs if num_pairs else None,
        num_duplicates=len(kept),
        num_spared=num_candidates - len(candidate_sizes) - len(kept),
        num_undecided=sum(result["num_undecided"] for result in found),
        num_in_cut_clusters=num_cut,
        cluster_sizes=_histogram(num_members + 1),
        candidate_cluster_sizes=_histogram(candidate_sizes),
    )


def _histogram(sizes: np.ndarray) -> dict[str, int]:
    return {str(size): count for size, count in sorted(Counter(sizes.tolist()).items())}
