"""Which shard reads what: a function of the files' names, sizes and formats alone."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.files import open_parquet
from marin_corpus.sources.config import ReadConfig
from marin_corpus.sources.formats import WHOLE_FILE_FORMATS, recognise
from marin_corpus.sources.records import CsvRows
from marin_corpus.sources.streams import Piece, SourceFile, file_size

SHARD_BYTES = 128 << 20
"""Content of a shard: what a worker reads before it reports and its work counts as kept."""
_COMPRESSION_RATIO = 4
"""Of text, about."""
_REQUESTS_AT_ONCE = 16
"""Files looked at in parallel: on object storage each look waits 50 ms."""


@dataclass(frozen=True, kw_only=True)
class ReadShard:
    """The pieces that one shard reads, in order."""

    pieces: tuple[Piece, ...]
    config: ReadConfig


def plan_shards(files: Sequence[SourceFile], config: ReadConfig) -> dict[str, ReadShard]:
    """Look at all files, and deal them out by shard name.

    Small files are read together, files of lines that are not compressed are cut into byte ranges, and parquet files
    between row groups. Compressed files, CSV (where a line end may lie within a field) and texts stay whole.

    Raises:
        BadInput: there is no file, or one is absent, empty, of no known format, or lacks a column.
        BadConfig: the configuration says something about fields that these files cannot have.
    """
    if not files:
        raise BadInput("there is no file to read", next="check the folder and the pattern")
    ordered = sorted(files, key=lambda file: file.name)
    for a, b in pairwise(ordered):
        if a.name == b.name:
            raise BadInput(f"two files are called {a.name}: {a.url} and {b.url}")
    for file in ordered:
        if any("\ud800" <= character <= "\udfff" for character in file.name):
            raise BadInput(
                f"the name of the file {file.name!a} is not valid UTF-8",
                why="documents say in their meta which file they are of",
                next="rename it, or leave it out of the files",
            )
    formats = [recognise(file.name, config.format) for file in ordered]
    whole = [file for file, (format, _) in zip(ordered, formats, strict=True) if format in WHOLE_FILE_FORMATS]
    if whole and (config.json_fields or config.meta_fields):
        raise BadConfig(
            f"{whole[0].name} has no fields, but json_fields={config.json_fields!r}, "
            f"meta_fields={config.meta_fields!r} ask for some",
            next="read files with fields and files without by two calls",
        )
    lines = [file for file, (format, _) in zip(ordered, formats, strict=True) if format in ("jsonl", "csv")]
    if lines and not config.splits_lines:
        raise BadConfig(
            f"encoding={config.encoding!r}: {lines[0].name} cannot be split into lines before it is decoded",
            next="convert it to UTF-8",
        )
    jobs = [(file, *kind, config) for file, kind in zip(ordered, formats, strict=True)]
    with ThreadPoolExecutor(min(_REQUESTS_AT_ONCE, len(jobs))) as pool:
        looked = list(pool.map(lambda job: _look(*job), jobs))
    groups = _group(weighted for pieces in looked for weighted in pieces)
    return {f"part-{index:05d}": ReadShard(pieces=group, config=config) for index, group in enumerate(groups)}


def _look(file: SourceFile, format: str, compression: str, config: ReadConfig) -> list[tuple[Piece, int]]:
    """The pieces of a file, each with the bytes of content it is about to give."""
    try:
        size = file_size(file.url) if file.size_bytes is None else file.size_bytes
    except FileNotFoundError as error:
        raise BadInput(f"{file.name}: there is no such file", why=f"looked for {file.url}") from error
    except OSError as error:
        raise BadInput(f"{file.name} cannot be read: {error}") from error
    if size == 0:
        raise BadInput(
            f"{file.name} is empty: it has 0 bytes",
            why="which is what a download or a program that failed leaves behind",
            next="make or fetch it again, or leave it out of the files",
        )
    piece = Piece(name=file.name, url=file.url, format=format, compression=compression, size_bytes=size)  # type: ignore[arg-type]
    if format == "parquet":
        return list(_parquet_pieces(piece, config))
    if format == "csv":
        _check_columns(piece, CsvRows(piece, config).columns(), config)
    if format == "jsonl" and not compression:
        return list(_byte_ranges(piece))
    return [(piece, size * (_COMPRESSION_RATIO if compression else 1))]


def _byte_ranges(piece: Piece) -> Iterator[tuple[Piece, int]]:
    number = max(1, round(piece.size_bytes / SHARD_BYTES))
    if number == 1:
        yield piece, piece.size_bytes
        return
    ends = [piece.size_bytes * (index + 1) // number for index in range(number)]
    for start, end in pairwise([0, *ends]):
        yield replace(piece, start=start, end=end), end - start


def _parquet_pieces(piece: Piece, config: ReadConfig) -> Iterator[tuple[Piece, int]]:
    try:
        with open_parquet(piece.url) as file:
            schema: pa.Schema = file.schema_arrow
            group_bytes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise BadInput(
            f"{piece.name} is not a whole parquet file", why=str(error), next="copy or download the file again"
        ) from error
    _check_columns(piece, schema.names, config)
    for name in config.columns:
        _check_type(piece, name, _field_type(piece, schema, name), text=not config.json_fields)
    for name in config.meta_fields:
        _check_type(piece, name, _field_type(piece, schema, name), text=False)
    start = weight = 0
    for index, size in enumerate(group_bytes):
        if weight and weight + size > SHARD_BYTES:
            yield replace(piece, start=start, end=index), weight
            start, weight = index, 0
        weight += size
    yield replace(piece, start=start, end=len(group_bytes)), weight


def _check_columns(piece: Piece, names: Iterable[str], config: ReadConfig) -> None:
    there = list(names)
    for name in (*config.columns, *config.meta_fields):
        # Whether a struct has the rest of a dotted name is seen when its type is.
        if name not in there and name.partition(".")[0] not in there:
            raise _no_column(piece, name, there)
        if there.count(name) > 1:
            raise BadInput(f"{piece.name}: {there.count(name)} columns are called {name!r}", next="rename all but one")


def _no_column(piece: Piece, name: str, there: Sequence[str]) -> BadInput:
    return BadInput(
        f"{piece.name} has no column {name!r}",
        why=f"it has {', '.join(there)}",
        next="name one of these (text_field, json_fields, meta_fields), or leave the file out",
    )


def _field_type(piece: Piece, schema: pa.Schema, name: str) -> pa.DataType:
    if name in schema.names:
        return schema.field(name).type
    first, *rest = name.split(".")
    kind = schema.field(first).type
    for index, key in enumerate(rest):
        names = [kind.field(i).name for i in range(kind.num_fields)] if pa.types.is_struct(kind) else []
        if key not in names:
            path = ".".join((first, *rest[:index]))
            raise _no_column(piece, name, [f"{path}.{known}" for known in names] or [f"{path} of type {kind}"])
        kind = kind.field(key).type
    return kind


def _check_type(piece: Piece, name: str, kind: pa.DataType, *, text: bool) -> None:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if text and not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise BadInput(
            f"{piece.name}: column {name!r} has the type {kind}, not text", next="name the column that holds the text"
        )
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        raise BadInput(
            f"{piece.name}: column {name!r} holds bytes ({kind}), which JSON cannot say",
            next="leave it out of json_fields and meta_fields",
        )
    for index in range(kind.num_fields):
        inner = kind.field(index).type
        if types.is_temporal(inner) and getattr(inner, "unit", "") == "ns":
            raise BadInput(
                f"{piece.name}: column {name!r} holds times in nanoseconds within {kind}",
                next="write microseconds, or leave it out of json_fields and meta_fields",
            )
        _check_type(piece, name, inner, text=False)


def _group(weighted: Iterable[tuple[Piece, int]]) -> Iterator[tuple[Piece, ...]]:
    group: list[Piece] = []
    total = 0
    for piece, size in weighted:
        if group and total + size > SHARD_BYTES:
            yield tuple(group)
            group, total = [], 0
        group.append(piece)
        total += size
    yield tuple(group)
