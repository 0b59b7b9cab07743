"""Records of each format, one after the other."""

import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from marin_corpus.errors import BadInput
from marin_corpus.files import open_parquet
from marin_corpus.sources.config import ReadConfig
from marin_corpus.sources.problems import BadRecord
from marin_corpus.sources.streams import Lines, Piece, excerpt, open_stream, undecodable

_BOM = b"\xef\xbb\xbf"
_BATCH_ROWS = 512
_MAX_NESTING = 200
"""Objects and arrays within each other. Python's JSON reads so many wherever it is called from; beyond, that depends
on how deep the caller's stack is, which would make a document's fate depend on the number of workers."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|([\[{])|[\]}]', re.DOTALL)


class Records(Protocol):
    """The records of a piece, in order."""

    def __iter__(self) -> Iterator[Mapping[str, Any] | BadRecord]: ...

    def position(self) -> tuple[str, int] | None:
        """What `meta` says about where the last record lies; costs nothing to know."""

    def place(self) -> dict[str, int]:
        """What errors say about it; may cost a reading of what lies before."""


def open_records(piece: Piece, config: ReadConfig) -> Records:
    """The reader for a piece's format."""
    if piece.format == "jsonl":
        return JsonLines(piece, config)
    if piece.format == "csv":
        return CsvRows(piece, config)
    if piece.format == "parquet":
        return ParquetRows(piece, (*config.columns, *config.meta_fields))
    return WholeFile(piece, config)


class JsonLines:
    """One JSON object per line. Blank lines are passed over."""

    def __init__(self, piece: Piece, config: ReadConfig) -> None:
        self._encoding = config.encoding
        self._lines = Lines(piece, max_bytes=config.max_record_bytes)

    def position(self) -> tuple[str, int]:
        return "offset", self._lines.offset

    def place(self) -> dict[str, int]:
        return {"line": self._lines.number}

    def __iter__(self) -> Iterator[Mapping[str, Any] | BadRecord]:
        # The constants are NaN and the infinities, which Python would read although JSON has none.
        decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
        lines, encoding = self._lines, self._encoding
        for line in lines:
            if isinstance(line, BadRecord):
                yield line
                continue
            if lines.offset == 0:
                line = line.removeprefix(_BOM)
            try:
                text = line.decode(encoding)
                if text.count("[") + text.count("{") > _MAX_NESTING and _is_too_deep(text):
                    yield BadRecord("invalid_json", f"objects and arrays nest deeper than {_MAX_NESTING}")
                    continue
                record = decode(text)
            except UnicodeDecodeError as error:
                yield undecodable(error, offset=lines.offset)
            except json.JSONDecodeError as error:
                if not error.doc.isspace() and error.doc:
                    yield _invalid_json(error)
            except ValueError as error:
                yield BadRecord("invalid_json", f"invalid JSON: {error}")
            else:
                yield record if isinstance(record, dict) else _no_object(record)


def _is_too_deep(text: str) -> bool:
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match[1]:
            depth += 1
            if depth > _MAX_NESTING:
                return True
        elif match[0][0] != '"':
            depth -= 1
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value; write null")


def _invalid_json(error: json.JSONDecodeError) -> BadRecord:
    where = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
    return BadRecord("invalid_json", f"invalid JSON: {where}: {excerpt(error.doc.rstrip(), error.pos)}")


def _no_object(value: Any) -> BadRecord:
    return BadRecord(
        "not_an_object",
        f"the line is not a JSON object but {excerpt(json.dumps(value))}; a line holds one record, such as "
        '{"text": "..."}',
    )


class CsvRows:
    """Rows below a header; commas, and double quotes around fields that hold commas, quotes or line ends."""

    def __init__(self, piece: Piece, config: ReadConfig) -> None:
        self._piece = piece
        self._config = config
        self._line = 0

    def position(self) -> tuple[str, int]:
        return "line", self._line

    def place(self) -> dict[str, int]:
        return {"line": self._line}

    def columns(self) -> list[str]:
        """The header. Raises BadInput if it cannot be one."""
        return self._header(csv.reader(_CsvLines(self._piece, self._config), strict=True))

    def _header(self, rows: Any) -> list[str]:
        try:
            header: list[str] = next(rows, [])
        except (csv.Error, _BadLine) as error:
            raise BadInput(f"{self._piece.name}: its header cannot be read: {error}") from error
        twice = [name for name in header if header.count(name) > 1]
        if not header or twice:
            problem = f"two columns are called {twice[0]!r}" if twice else "there is no header"
            raise BadInput(f"{self._piece.name}: {problem}", next="its first line must name the columns")
        return header

    def __iter__(self) -> Iterator[Mapping[str, Any] | BadRecord]:
        # The limit is the process's; every reader sets it before its first row.
        csv.field_size_limit(min(self._config.max_record_bytes, sys.maxsize))
        lines = _CsvLines(self._piece, self._config)
        rows = csv.reader(lines, strict=True)
        header = self._header(rows)
        while True:
            self._line = lines.count + 1
            lines.undecodable = None
            try:
                row = next(rows)
            except StopIteration:
                return
            except _BadLine as bad:
                yield bad.record
                continue
            except csv.Error as error:
                long = "field limit" in str(error)
                yield BadRecord("too_long" if long else "invalid_csv", f"invalid CSV: {error}")
                continue
            if not row:
                continue
            if lines.undecodable is not None:
                yield lines.undecodable
            elif len(row) != len(header):
                yield BadRecord("ragged_row", f"the row has {len(row)} fields, the header {len(header)}")
            else:
                yield dict(zip(header, row, strict=True))


class _BadLine(Exception):
    def __init__(self, record: BadRecord) -> None:
        super().__init__(record.detail)
        self.record = record


class _CsvLines:
    """Decoded lines. Not a generator: csv goes on after an error of one line."""

    def __init__(self, piece: Piece, config: ReadConfig) -> None:
        self._lines = Lines(piece, max_bytes=config.max_record_bytes)
        self._iterator = iter(self._lines)
        self._encoding = config.encoding
        self.count = 0
        self.undecodable: BadRecord | None = None
        """Set by a line that is not valid in the encoding; what it gives instead is for counting fields only."""

    def __iter__(self) -> "_CsvLines":
        return self

    def __next__(self) -> str:
        line = next(self._iterator)
        self.count += 1
        if isinstance(line, BadRecord):
            raise _BadLine(line)
        if self._lines.offset == 0:
            line = line.removeprefix(_BOM)
        try:
            return line.decode(self._encoding)
        except UnicodeDecodeError as error:
            self.undecodable = undecodable(error, offset=self._lines.offset)
            return line.decode(self._encoding, errors="replace")


class ParquetRows:
    """Rows of some row groups."""

    def __init__(self, piece: Piece, columns: tuple[str, ...]) -> None:
        self._piece = piece
        self._columns = list(columns)
        self._row = 0

    def position(self) -> tuple[str, int]:
        return "row", self._row

    def place(self) -> dict[str, int]:
        return {"row": self._row}

    def __iter__(self) -> Iterator[Mapping[str, Any] | BadRecord]:
        piece = self._piece
        try:
            with open_parquet(piece.url) as file:
                groups = range(piece.start, file.num_row_groups if piece.end is None else piece.end)
                self._row = sum(file.metadata.row_group(group).num_rows for group in range(piece.start))
                for batch in file.iter_batches(
                    batch_size=_BATCH_ROWS, row_groups=list(groups), columns=self._columns, use_threads=False
                ):
                    for record in _rows(batch):
                        self._row += 1
                        yield record
        except (OSError, pa.ArrowException) as error:
            raise BadInput(
                f"{piece.name} is damaged: it cannot be read further than row {self._row}",
                why=str(error),
                next="copy or download the file again",
            ) from error


def _rows(batch: pa.RecordBatch) -> Iterator[Mapping[str, Any] | BadRecord]:
    # Arrow writes times alike wherever it runs; as Python objects they depend on whether pandas is installed.
    texts = [column.cast(pa.string()) if pa.types.is_temporal(column.type) else column for column in batch.columns]
    batch = pa.RecordBatch.from_arrays(texts, names=batch.schema.names)
    try:
        yield from batch.to_pylist()
    except (OverflowError, ValueError):
        # Bytes that are not UTF-8, or a time within a list that Python has no date for. Nothing was given out yet: all
        # rows are made before the first is yielded.
        for index in range(batch.num_rows):
            try:
                (record,) = batch.slice(index, 1).to_pylist()
            except UnicodeDecodeError as error:
                record = BadRecord("invalid_encoding", f"a text column holds bytes that are not UTF-8: {error.reason}")
            except (OverflowError, ValueError) as error:
                record = BadRecord("wrong_type", f"a value of a column cannot be said in JSON: {error}")
            yield record


class WholeFile:
    """The file as one record, whose text is the field `text_field`."""

    def __init__(self, piece: Piece, config: ReadConfig) -> None:
        self._piece = piece
        self._config = config
        self._line: int | None = None

    def position(self) -> None:
        return None

    def place(self) -> dict[str, int]:
        return {} if self._line is None else {"line": self._line}

    def __iter__(self) -> Iterator[Mapping[str, Any] | BadRecord]:
        limit = self._config.max_record_bytes
        with open_stream(self._piece) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            yield BadRecord("too_long", f"the file has more than {limit} bytes; as one document no more are read")
            return
        try:
            yield {self._config.text_field: data.removeprefix(_BOM).decode(self._config.encoding)}
        except UnicodeDecodeError as error:
            self._line = data.count(b"\n", 0, error.start) + 1
            yield undecodable(error, offset=0)
