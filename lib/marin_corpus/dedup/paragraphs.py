"""Repeated paragraphs: of equal paragraphs the first in the whole set is kept, the others become edits.

Exact, where a Bloom filter would also remove some paragraphs that occur once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from marin_corpus.dedup.hashes import HashConfig, HashSet, first_occurrences, long_paragraphs
from marin_corpus.documents.attributes import SPANS, AttributeWriter, write_attributes_manifest
from marin_corpus.documents.read import DocumentPart, DocumentSet, read_batches
from marin_corpus.output import Output

SCHEMA = pa.schema(
    [
        ("repeated_paragraph_spans", SPANS),
        ("num_repeated_paragraphs", pa.int64()),
        ("repeated_paragraph_characters", pa.int64()),
        ("repeated_paragraph_fraction", pa.float64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class _ParagraphJob:
    part: DocumentPart
    config: HashConfig
    repeated: bytes
    """A bit for each hashed paragraph of the part."""
    num_hashes: int


def find_repeated_paragraphs(documents: DocumentSet, hashes: HashSet, output: Output) -> list[dict[str, Any]]:
    """Mark every paragraph that occurs earlier in the set, within the same document too.

    Writes the attributes `repeated_paragraph_spans` (edits that remove the paragraphs with the line ends after them),
    `num_repeated_paragraphs`, `repeated_paragraph_characters` and `repeated_paragraph_fraction` (of the text's
    characters). Memory: 8 bytes for each paragraph, and about 300 MB.

    Args:
        documents: the documents.
        hashes: their hashes, of unit "paragraph".
        output: where the files go.

    Returns:
        For each part `{"num_documents": ..., "sums": {...}}`.

    Raises:
        Mismatch: hashes of other documents, or of whole documents.
    """
    hashes.check_made_for(documents, unit="paragraph")
    first_P = first_occurrences(hashes.parts)
    shards, begin = {}, 0
    for part, hashed in zip(documents.parts, hashes.parts, strict=True):
        end = begin + hashed.num_hashes
        repeated = first_P[begin:end] != np.arange(begin, end)
        shards[part.name] = _ParagraphJob(
            part=part, config=hashes.config, repeated=np.packbits(repeated).tobytes(), num_hashes=hashed.num_hashes
        )
        begin = end
    summaries = list(output.run_shards(shards, _write_spans).values())
    write_attributes_manifest(output, documents, SCHEMA.names)
    return summaries


def _write_spans(job: _ParagraphJob, path: Path) -> dict[str, Any]:
    packed = np.frombuffer(job.repeated, dtype=np.uint8)
    repeated = iter(np.unpackbits(packed, count=job.num_hashes).tolist())
    total_paragraphs = total_characters = 0
    with AttributeWriter(path, job.part, SCHEMA) as writer:
        for batch in read_batches(job.part, ["text"]):
            rows = []
            for text in batch["text"].to_pylist():
                paragraphs = [(start, end) for start, end, _ in long_paragraphs(text, job.config) if next(repeated)]
                characters = sum(end - start for start, end in paragraphs)
                rows.append((_merge(paragraphs), len(paragraphs), characters, characters / max(1, len(text))))
                total_paragraphs += len(paragraphs)
                total_characters += characters
            writer.add(pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA))
    assert next(repeated, None) is None, "hashes and paragraphs differ in number"
    return {
        "num_documents": job.part.num_documents,
        "sums": {"num_repeated_paragraphs": total_paragraphs, "repeated_paragraph_characters": total_characters},
    }


def _merge(paragraphs: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """One edit for each run of paragraphs without a gap."""
    spans: list[dict[str, Any]] = []
    for start, end in paragraphs:
        if spans and spans[-1]["end"] == start:
            spans[-1]["end"] = end
        else:
            spans.append({"start": start, "end": end, "replacement": ""})
    return spans
