"""Local and remote files as documents."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marin_corpus.documents.write import DocumentWriter, Written, write_documents_manifest
from marin_corpus.errors import BadInput
from marin_corpus.output import Output
from marin_corpus.sources.config import ReadConfig
from marin_corpus.sources.fields import encode_record_meta, meta_of, text_of
from marin_corpus.sources.plan import ReadShard, plan_shards
from marin_corpus.sources.problems import BadRecord, Problems, merge_problems, write_skipped
from marin_corpus.sources.records import Records, open_records
from marin_corpus.sources.streams import Piece, SourceFile


def read_documents(files: Sequence[SourceFile], config: ReadConfig, output: Output) -> Written:
    """Write the documents of files in the order of their names, with `documents.json`.

    A line of jsonl, a row of csv and parquet, a whole txt and html file is a document; html stays markup. `meta` says
    `file` (the name) and `offset` (byte of a jsonl line in the decompressed file), `line` (csv) or `row` (parquet),
    both from 1, beside the `meta_fields`. Records whose text is null, empty or blank are left out and counted; what
    was left out is in `skipped.json`.

    Raises:
        BadInput: a file or record cannot be used, no record has one of `meta_fields`, or no document is left.
        BadConfig: the configuration asks for fields that the files cannot have.
    """
    summaries = list(output.run_shards(plan_shards(files, config), read_shard).values())
    parts = tuple(part for summary in summaries for part in summary["parts"])
    skipped = merge_problems(summary["skipped"] for summary in summaries)
    _check_result(files, config, parts, skipped, {name for summary in summaries for name in summary["seen"]})
    if skipped["counts"]:
        write_skipped(output, skipped)
    write_documents_manifest(output, parts)
    return Written(parts=parts, dropped=skipped["counts"])


def _check_result(
    files: Sequence[SourceFile],
    config: ReadConfig,
    parts: Sequence[dict[str, Any]],
    skipped: dict[str, Any],
    seen: set[str],
) -> None:
    if not any(part["num_documents"] for part in parts):
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped["counts"].items()) or "they hold no record"
        sample = next(iter(skipped["samples"]), None)
        raise BadInput(
            f"{len(files)} files (the first is {min(file.name for file in files)}) gave no document: {reasons}",
            why="" if sample is None else f"such as {sample['file']}: {sample['detail']}",
            next="check the files and which field holds the text (text_field, json_fields)",
        )
    for name in config.meta_fields:
        if name not in seen:
            raise BadInput(
                f"meta_fields names {name!r}, which no document has",
                next="check the spelling, or remove it from meta_fields",
            )


def read_shard(shard: ReadShard, path: Path) -> dict[str, Any]:
    """Write the documents of some pieces; returns JSON: manifest entries, what was skipped, meta fields seen."""
    problems = Problems(skip=shard.config.on_bad_record == "skip")
    seen: set[str] = set()
    with DocumentWriter(path) as writer:
        for piece in shard.pieces:
            _read_piece(piece, shard.config, writer, problems, seen)
    return {"parts": writer.summary(), "skipped": problems.summary(), "seen": sorted(seen)}


def _read_piece(piece: Piece, config: ReadConfig, writer: DocumentWriter, problems: Problems, seen: set[str]) -> None:
    records = open_records(piece, config)
    # Without fields, meta is put together here: to encode it as JSON each time would take a third of all.
    begin = encode_record_meta({"file": piece.name})[:-1]
    for record in records:
        text = record if isinstance(record, BadRecord) else text_of(record, config)
        if isinstance(text, BadRecord):
            _refuse(text, records, piece, problems)
            continue
        position = records.position()
        if config.meta_fields:
            assert not isinstance(record, BadRecord)
            fields = meta_of(record, config.meta_fields)
            seen.update(fields)
            meta = encode_record_meta({"file": piece.name, **dict([position] if position else []), **fields})
        else:
            meta = f'{begin},"{position[0]}":{position[1]}}}' if position else begin + "}"
        try:
            meta.encode()
            writer.add(text, source=config.source, meta=meta)
        except UnicodeEncodeError as error:
            surrogate = ord(error.object[error.start])
            where = "the text" if error.object == text else "a field of meta"
            bad = BadRecord("lone_surrogate", f"{where} holds half of a character, \\u{surrogate:04x} without its pair")
            _refuse(bad, records, piece, problems)


def _refuse(bad: BadRecord, records: Records, piece: Piece, problems: Problems) -> None:
    problems.add(bad, file=piece.name, place=records.place() if problems.wants_place(bad.reason) else {})
