"""`map_documents`: a function from a document to what takes its place, for every document of a set."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from marin_corpus.documents.read import DocumentPart, DocumentSet, read_batches
from marin_corpus.documents.schema import Document, encode_meta
from marin_corpus.documents.write import DocumentWriter, Written, write_documents_manifest
from marin_corpus.errors import BadConfig, BadInput, described
from marin_corpus.output import Output

DROPPED_BY_FUNCTION = "dropped by the function"
NO_TEXT = "no text"


@dataclass(frozen=True, slots=True)
class Drop:
    """Returned in place of a document that is to be left out, to have it counted under a reason of its own."""

    reason: str


Result: TypeAlias = Document | str | Drop | Iterable[Document] | None
"""A document, a text for it (source and meta stay), nothing, or several documents (a list or generator)."""

MapFunction: TypeAlias = Callable[[Document, Any], Result]


@dataclass(frozen=True, kw_only=True)
class _Job:
    part: DocumentPart
    function: MapFunction
    options: Any


def map_documents(documents: DocumentSet, function: MapFunction, options: Any = None, *, output: Output) -> Written:
    """Write what `function` makes of each document, part by part and in order, with a manifest.

    Memory: a row group of documents, and what the function returns for one of them.

    Args:
        documents: the documents.
        function: at the top level of a module; called as `function(document, options)`. What it returns must depend on
            its arguments alone. None, a `Drop` and no documents at all leave the document out, and are counted.
        options: plain data for the function.
        output: gets the parts, of the names that they have in `documents`, and `documents.json`.

    Raises:
        BadConfig: a function that worker processes cannot find by its name.
        BadInput: the function raised, or returned something else; names the document, its source, part and row.
    """
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name or "." in name:
        raise BadConfig(
            f"function={function!r} is not at the top level of a module",
            why="worker processes find it by its name",
            next="define it by def at the top level of a module, and give what it needs as options",
        )
    jobs = {part.name: _Job(part=part, function=function, options=options) for part in documents.parts}
    summaries = list(output.run_shards(jobs, _map_shard).values())
    parts = tuple(part for summary in summaries for part in summary["parts"])
    dropped: Counter[str] = Counter()
    for summary in summaries:
        dropped.update(summary["dropped"])
    write_documents_manifest(output, parts)
    return Written(parts=parts, dropped=dict(sorted(dropped.items())))


def _map_shard(job: _Job, path: Path) -> dict[str, Any]:
    dropped: Counter[str] = Counter()
    with DocumentWriter(path, part_text_bytes=None) as writer:
        for row, (identifier, text, source, meta) in enumerate(_rows(job.part)):
            try:
                reason = _map_one(job, text, source, meta, writer)
            except Exception as error:
                raise BadInput(
                    f"{job.function.__module__}.{job.function.__qualname__} failed for document {identifier} "
                    f"of source {source!r}, row {row} of {job.part.name}",
                    why=described(error),
                    next="correct the function, or let it return None to leave such a document out",
                ) from error
            if reason is not None:
                dropped[reason] += 1
    return {"parts": writer.summary(), "dropped": dict(sorted(dropped.items()))}


def _rows(part: DocumentPart) -> Iterator[tuple[str, str, str, str]]:
    for batch in read_batches(part):
        yield from zip(*(batch.column(name).to_pylist() for name in ("id", "text", "source", "meta")), strict=True)


def _map_one(job: _Job, text: str, source: str, meta: str, writer: DocumentWriter) -> str | None:
    """Write what the function makes of a document; the reason if that is nothing."""
    result = job.function(Document(text, source, json.loads(meta)), job.options)
    if isinstance(result, str):
        writer.add(result, source=source, meta=meta)
        return None
    if result is None:
        return DROPPED_BY_FUNCTION
    if isinstance(result, Drop):
        return result.reason
    if isinstance(result, Document):
        _add(result, writer)
        return None
    if not isinstance(result, Iterable):
        raise TypeError(f"it returned {_kind(result)}, which is no Document, str, Drop, None or iterable of Documents")
    num_written = 0
    for each in result:
        if not isinstance(each, Document):
            raise TypeError(f"among the documents that it returned is {_kind(each)}")
        _add(each, writer)
        num_written += 1
    return None if num_written else DROPPED_BY_FUNCTION


def _add(document: Document, writer: DocumentWriter) -> None:
    for name, value in (("text", document.text), ("source", document.source)):
        if not isinstance(value, str):
            raise TypeError(f"it returned a document whose {name} is {_kind(value)}")
    writer.add(document.text, source=document.source, meta=encode_meta(document.meta))


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"
