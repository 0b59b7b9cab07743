"""`join_documents`: several sets of documents as one."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marin_corpus.documents.read import DocumentPart, DocumentSet
from marin_corpus.documents.write import Written, write_documents_manifest
from marin_corpus.files import open_binary
from marin_corpus.output import Output


@dataclass(frozen=True, kw_only=True)
class _JoinJob:
    part: DocumentPart


def join_documents(documents: Sequence[DocumentSet], output: Output) -> Written:
    """Write the parts of all sets, one set after another, as they are. `source` still tells the documents apart."""
    jobs = {
        f"{number:03d}-{part.name}": _JoinJob(part=part) for number, each in enumerate(documents) for part in each.parts
    }
    parts = tuple(output.run_shards(jobs, _copy_part).values())
    write_documents_manifest(output, parts)
    return Written(parts=parts, dropped={})


def _copy_part(job: _JoinJob, path: Path) -> dict[str, Any]:
    with open_binary(job.part.url) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    entry = asdict(job.part)
    del entry["url"]
    return {**entry, "name": path.name}
