"""`consolidate`: drop and edit documents by what filters found out about them."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from marin_corpus.documents.attributes import SPANS, AttributePart, AttributeSet, read_attributes
from marin_corpus.documents.read import DocumentPart, DocumentSet, opened_part, read_batches
from marin_corpus.documents.schema import SCHEMA, encode_meta
from marin_corpus.documents.write import DocumentWriter, Written, write_documents_manifest
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.filters.edits import apply_spans, checked_spans, merge_spans
from marin_corpus.filters.expressions import columns_of, compile_expression
from marin_corpus.filters.rules import DropRules
from marin_corpus.manifest import encode_manifest
from marin_corpus.output import Output

DROPS = "drops.json"
EMPTY_AFTER_EDITS = "empty after edits"
_NUM_SAMPLES = 5
_EXCERPT_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class _Job:
    part: DocumentPart
    attributes: tuple[tuple[str, AttributePart], ...]
    """Each with the prefix of its columns."""
    drop: DropRules
    edits: tuple[str, ...]


def consolidate(
    documents: DocumentSet,
    attributes: Sequence[AttributeSet],
    *,
    drop: DropRules,
    edits: Sequence[str] = (),
    prefixes: Sequence[str] = (),
    output: Output,
) -> Written:
    """Write the documents that no expression drops, with the edits applied, part by part, and say what was dropped.

    The first reason whose expression holds counts, so drops (told in the order of `drop`) and kept documents add up to
    all. Edited texts have ids of
    their own and `edited_from` in their meta, the id before; an edited text without anything but whitespace is dropped.
    Memory: a batch of documents and the attributes of one part.

    Args:
        documents: the documents.
        attributes: attributes of exactly these documents.
        drop: (reason, expression) pairs. An expression is SQL over the columns of all attributes and of the documents
            (id, text, source, meta), evaluated for one document at a time. NaN counts as null, and so does what has no
            value, such as x / 0. It must not be null for a document that no earlier reason drops: write
            COALESCE(column, value) to say what a null means.
        edits: columns of spans to apply; where they overlap, see `merge_spans`.
        prefixes: one for each of `attributes`, put before the names of its columns: tells equal names apart.
        output: gets the parts, `documents.json`, and `drops.json`: for each reason its expression, number of documents,
            bytes of text, and the first few of them with the values that the expression saw.

    Raises:
        Mismatch: attributes of other documents.
        BadConfig: an expression, edit or reason that cannot be used, or a column of two attribute sets.
        BadInput: an expression that is null, or a span outside its text; names the document.
    """
    for attribute_set in attributes:
        attribute_set.check_made_for(documents)
    prefixes = tuple(prefixes) or ("",) * len(attributes)
    columns = _check_columns(attributes, prefixes)
    _check_rules(drop, edits, columns)
    jobs = {}
    for index, part in enumerate(documents.parts):
        its_attributes = tuple((prefix, each.parts[index]) for prefix, each in zip(prefixes, attributes, strict=True))
        jobs[part.name] = _Job(part=part, attributes=its_attributes, drop=tuple(drop), edits=tuple(edits))
        if index == 0:
            # Types show in the files only. All parts of a set have the same.
            _check_types(jobs[part.name])
    summaries = list(output.run_shards(jobs, _consolidate_shard).values())
    parts = tuple(part for summary in summaries for part in summary["parts"])
    reports = [_add_up(summaries, reason, expression) for reason, expression in drop]
    if edits:
        reports.append(_add_up(summaries, EMPTY_AFTER_EDITS, None))
    num_edited = sum(summary["num_edited"] for summary in summaries)
    num_kept = sum(part["num_documents"] for part in parts)
    fields = {
        "num_documents": documents.num_documents,
        "num_kept": num_kept,
        "num_edited": num_edited,
        "reasons": reports,
    }
    output.write_file(DROPS, encode_manifest("drops", fields))
    write_documents_manifest(output, parts)
    return Written(parts=parts, dropped={report["reason"]: report["num_documents"] for report in reports})


def _check_columns(attributes: Sequence[AttributeSet], prefixes: Sequence[str]) -> list[str]:
    if len(prefixes) != len(attributes):
        raise BadConfig(f"prefixes={tuple(prefixes)} must have one for each of the {len(attributes)} attributes")
    owners = dict.fromkeys(SCHEMA.names, "the documents")
    for prefix, attribute_set in zip(prefixes, attributes, strict=True):
        for column in attribute_set.columns:
            if prefix + column in owners:
                raise BadConfig(
                    f"the column {prefix + column!r} of {attribute_set.url} is also one of {owners[prefix + column]}",
                    next='give prefixes, one for each of the attributes, such as prefixes=("", "other_")',
                )
            owners[prefix + column] = attribute_set.url
    return list(owners)


def _check_rules(drop: DropRules, edits: Sequence[str], columns: Sequence[str]) -> None:
    known = dict.fromkeys(columns)
    reasons: set[str] = set()
    for reason, expression in drop:
        if not reason or reason == EMPTY_AFTER_EDITS or reason in reasons:
            raise BadConfig(
                f"drop has the reason {reason!r}, which is empty, given twice or reserved",
                next="give each expression a reason of its own; join expressions of one reason by OR",
            )
        reasons.add(reason)
        columns_of(expression, known, name=reason)
    for column in edits:
        columns_of(f'"{column}"', known, name="edits")
    if len(set(edits)) != len(edits):
        raise BadConfig(f"edits={tuple(edits)} names a column twice")


def _check_types(job: _Job) -> None:
    schema: dict[str, pl.DataType] = {}
    for field in SCHEMA:
        schema[field.name] = pl.String()
    for prefix, part in job.attributes:
        with opened_part(part) as file:
            for field in file.schema_arrow:
                schema[prefix + field.name] = pl.from_arrow(pa.array([], field.type)).dtype  # type: ignore[union-attr]
                if prefix + field.name in job.edits and field.type != SPANS:
                    raise BadConfig(
                        f"edits names the column {prefix + field.name!r}, whose type is {field.type}",
                        next="give columns of spans, such as email_spans",
                    )
    _compile(job.drop, schema)


def _compile(drop: DropRules, schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    return [
        compile_expression(expression, schema, name=reason).alias(f"reason {number}")
        for number, (reason, expression) in enumerate(drop)
    ]


def _consolidate_shard(job: _Job, path: Path) -> dict[str, Any]:
    shard = _Shard(job)
    with DocumentWriter(path, part_text_bytes=None) as writer:
        for rows in _frames(job):
            shard.take(rows, writer)
    return {"parts": writer.summary(), "drops": shard.drops, "num_edited": shard.num_edited}


def _frames(job: _Job) -> Iterator[pl.DataFrame]:
    """Batches of documents with their attributes beside them."""
    tables = [
        table.rename_columns([prefix + name for name in table.column_names])
        for prefix, table in ((prefix, read_attributes(part)) for prefix, part in job.attributes)
    ]
    position = 0
    for batch in read_batches(job.part):
        frame = pl.DataFrame(pl.from_arrow(batch))
        for table in tables:
            frame = frame.hstack(pl.DataFrame(pl.from_arrow(table.slice(position, len(batch)))))
        position += len(batch)
        # A NaN compares as the greatest number of all, which no threshold means.
        yield frame.with_columns(pl.col(pl.Float64).fill_nan(None))


class _Shard:
    """Goes through the documents of a part in order."""

    def __init__(self, job: _Job) -> None:
        self._part = job.part.name
        self._edits = job.edits
        self._drop = job.drop
        self._expressions: list[pl.Expr] | None = None
        self._shown: dict[str, tuple[str, ...]] = {EMPTY_AFTER_EDITS: ()}
        self.drops: dict[str, dict[str, Any]] = {}
        for reason in [*(reason for reason, _ in job.drop), EMPTY_AFTER_EDITS]:
            self.drops[reason] = {"num_documents": 0, "text_bytes": 0, "samples": []}
        self.num_edited = 0

    def take(self, rows: pl.DataFrame, writer: DocumentWriter) -> None:
        """Write the documents to keep, count the others."""
        reasons = self._reasons(rows)
        ids, texts, sources, metas = (rows[name].to_list() for name in SCHEMA.names)
        edits = [rows[column].to_list() for column in self._edits]
        for row, reason in enumerate(reasons):
            text = texts[row]
            if reason is not None:
                self._count(reason, rows, row)
                continue
            spans = merge_spans(
                [
                    checked_spans(values[row], text, column=column, document=ids[row])
                    for column, values in zip(self._edits, edits, strict=True)
                ]
            )
            edited = apply_spans(text, spans) if spans else text
            if edited == text:
                writer.add(text, source=sources[row], meta=metas[row])
            elif not edited.strip():
                self._count(EMPTY_AFTER_EDITS, rows, row)
            else:
                self.num_edited += 1
                meta = encode_meta({**json.loads(metas[row]), "edited_from": ids[row]})
                writer.add(edited, source=sources[row], meta=meta)

    def _reasons(self, rows: pl.DataFrame) -> list[str | None]:
        """For each row the first reason to drop it."""
        if self._expressions is None:
            schema = dict(rows.schema)
            self._expressions = _compile(self._drop, schema)
            for reason, expression in self._drop:
                # Texts are shown as excerpts.
                self._shown[reason] = tuple(
                    column
                    for column in columns_of(expression, schema, name=reason)
                    if column not in SCHEMA.names and not isinstance(schema[column], pl.List)
                )
        results = self._evaluate(rows, self._expressions)
        found: list[str | None] = [None] * len(rows)
        undecided = pl.Series([True]).new_from_index(0, len(rows))
        for (reason, expression), holds in zip(self._drop, results, strict=True):
            unknown = (holds.is_null() & undecided).arg_true()
            if len(unknown):
                self._refuse_null(reason, expression, rows, unknown[0])
            for row in (holds & undecided).arg_true():
                found[row] = reason
            undecided &= ~holds.fill_null(False)
        return found

    def _evaluate(self, rows: pl.DataFrame, expressions: Sequence[pl.Expr]) -> Iterator[pl.Series]:
        """What each expression gives for these rows."""
        for (reason, expression), compiled in zip(self._drop, expressions, strict=True):
            try:
                yield rows.select(compiled).to_series()
            except pl.exceptions.PolarsError as error:
                raise BadInput(
                    f"the expression of {reason!r}, {expression!r}, cannot be evaluated for documents of {self._part}",
                    why=str(error).split("\n", maxsplit=1)[0],
                    next="it must have a value for every document: compute a column for it by a function instead",
                ) from error

    def _refuse_null(self, reason: str, expression: str, rows: pl.DataFrame, row: int) -> None:
        nulls = [column for column in self._shown[reason] if rows[column][row] is None] or ["column"]
        raise BadInput(
            f"the expression of {reason!r}, {expression!r}, is null for document {rows['id'][row]} of {self._part}",
            why=f"{', '.join(nulls)} is null or NaN there"
            if nulls != ["column"]
            else "it divides by zero, or a function has no value",
            next=f"say what a missing value means: COALESCE({nulls[0]}, ...) in place of {nulls[0]}",
        )

    def _count(self, reason: str, rows: pl.DataFrame, row: int) -> None:
        drop = self.drops[reason]
        text = rows["text"][row]
        drop["num_documents"] += 1
        drop["text_bytes"] += len(text.encode())
        if len(drop["samples"]) < _NUM_SAMPLES:
            sample = {"id": rows["id"][row], "source": rows["source"][row], "part": self._part}
            values = {column: _as_json(rows[column][row]) for column in self._shown[reason]}
            drop["samples"].append({**sample, "values": values, "excerpt": text[:_EXCERPT_CHARACTERS]})


def _as_json(value: object) -> object:
    # JSON has no infinity.
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _add_up(summaries: Sequence[Mapping[str, Any]], reason: str, expression: str | None) -> dict[str, Any]:
    drops = [summary["drops"][reason] for summary in summaries]
    return {
        "reason": reason,
        "expression": expression,
        "num_documents": sum(drop["num_documents"] for drop in drops),
        "text_bytes": sum(drop["text_bytes"] for drop in drops),
        "samples": [sample for drop in drops for sample in drop["samples"]][:_NUM_SAMPLES],
    }
