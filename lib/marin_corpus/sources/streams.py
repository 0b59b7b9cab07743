"""Input files as streams of bytes and of bounded lines, whatever their compression and place."""

import io
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

import pyarrow as pa

from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.files import Location, open_binary
from marin_corpus.sources.formats import Compression, Format
from marin_corpus.sources.problems import BadRecord

_CHUNK_BYTES = 1 << 20
EXCERPT_CHARACTERS = 60


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file to read. `name` is what documents and errors call it: it must not depend on where the file lies."""

    name: str
    url: str
    size_bytes: int | None = None
    """None: looked up, which on object storage is a request for each file."""


def find_files(place: Location, pattern: str) -> list[SourceFile]:
    """The files below a folder that match a glob, named relative to it, without hidden ones; or the one file.

    Raises:
        BadInput: nothing matches.
        BadConfig: the pattern is no glob.
    """
    from fsspec.core import url_to_fs
    from fsspec.utils import glob_translate

    root = str(place)
    system, path = url_to_fs(root)
    try:
        matches = re.compile(glob_translate(pattern)).match
    except ValueError as error:
        raise BadConfig(f"pattern={pattern!r} is no glob: {error}", next='use one such as "**/*.jsonl"') from error
    found = []
    # One listing, with sizes, for any number of files.
    for url, info in system.find(path, detail=True).items():
        name = url.removeprefix(path.rstrip("/") + "/")
        if url == path:
            return [SourceFile(name=path.rpartition("/")[2], url=root, size_bytes=info["size"])]
        if matches(name) and not any(part.startswith(".") for part in name.split("/")):
            found.append(SourceFile(name=name, url=f"{root.rstrip('/')}/{name}", size_bytes=info["size"]))
    if not found:
        raise BadInput(f"no file below {root} matches {pattern!r}", next="check the folder and the pattern")
    return sorted(found, key=lambda file: file.name)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A file, or a part of one."""

    name: str
    url: str
    format: Format
    compression: Compression
    size_bytes: int
    """Of the whole file."""
    start: int = 0
    """First byte, or row group of parquet."""
    end: int | None = None
    """Behind the last one; None for the end of the file."""


def file_size(url: str) -> int:
    """Size in bytes. Raises FileNotFoundError, IsADirectoryError and other OSErrors."""
    if "://" not in url:
        if os.path.isdir(url):
            raise IsADirectoryError(f"{url} is a directory")
        return os.stat(url).st_size
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    return int(system.info(path)["size"])


def open_stream(piece: Piece) -> IO[bytes]:
    """The content of the whole file, decompressed.

    Raises:
        BadInput: on opening or reading: the file is damaged, or is not the one that was planned for.
    """
    file = open_binary(piece.url)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size != piece.size_bytes:
        file.close()
        raise BadInput(
            f"{piece.name} has changed while it was read: {size} bytes instead of {piece.size_bytes}",
            next="start again when nothing writes to it",
        )
    if not piece.compression:
        # fsspec's own readline is Python.
        return cast("IO[bytes]", io.BufferedReader(file, _CHUNK_BYTES)) if "://" in piece.url else file
    return io.BufferedReader(_Decompressed(file, piece), _CHUNK_BYTES)


class _Decompressed(io.RawIOBase):
    """Arrow's decompression, which tells a truncated file from a whole one, with errors that name the file."""

    def __init__(self, file: IO[bytes], piece: Piece) -> None:
        self._file = file
        self._piece = piece
        self._stream = pa.CompressedInputStream(file, piece.compression)
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = cast(int, self._stream.readinto(buffer))
        except (OSError, pa.ArrowException) as error:
            truncated = "Truncated" in str(error)
            raise BadInput(
                f"{self._piece.name} is {'truncated' if truncated else 'damaged'}: its {self._piece.compression} data "
                f"cannot be read further than about byte {self._position} of the content",
                why=str(error),
                next="copy or download the file again",
            ) from error
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()


class Lines:
    """The lines, with their ends, that begin within a piece; BadRecord for one that is too long.

    After each line, `offset` is where it begins in the decompressed file.
    """

    def __init__(self, piece: Piece, *, max_bytes: int) -> None:
        self._piece = piece
        self._max_bytes = max_bytes
        self._first = 0
        self._lines_before: int | None = None
        self._index = 0
        self.offset = 0

    @property
    def number(self) -> int:
        """Of the last line, counted from 1 at the beginning of the file; reads what lies before the piece."""
        if self._lines_before is None:
            self._lines_before = _count_lines(self._piece, self._first) if self._first else 0
        return self._lines_before + self._index

    def __iter__(self) -> Iterator[bytes | BadRecord]:
        limit = self._max_bytes
        end = sys.maxsize if self._piece.end is None else self._piece.end
        with open_stream(self._piece) as file:
            position = 0
            if self._piece.start:
                # The line that the byte before belongs to is the previous piece's.
                file.seek(self._piece.start - 1)
                position = self._piece.start - 1 + _skip_line(file)
            self._first = position
            readline = file.readline
            while position < end:
                line = readline(limit + 1)
                if not line:
                    return
                self.offset = position
                self._index += 1
                position += len(line)
                if len(line) > limit and not line.endswith(b"\n"):
                    position += _skip_line(file)
                    yield BadRecord(
                        "too_long", f"the line has {position - self.offset} bytes; at most {limit} are read"
                    )
                else:
                    yield line


def _skip_line(file: IO[bytes]) -> int:
    """Read to behind the next line end, in bounded memory; returns how many bytes that were."""
    count = 0
    while chunk := file.readline(_CHUNK_BYTES):
        count += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return count


def _count_lines(piece: Piece, end: int) -> int:
    count = 0
    with open_stream(piece) as file:
        while end > 0 and (chunk := file.read(min(end, _CHUNK_BYTES))):
            count += chunk.count(b"\n")
            end -= len(chunk)
    return count


def undecodable(error: UnicodeDecodeError, *, offset: int) -> BadRecord:
    """What is wrong with bytes that begin at `offset` of the file."""
    byte = error.object[error.start]
    return BadRecord(
        "invalid_encoding", f"byte {offset + error.start} of the file (0x{byte:02x}) is not valid {error.encoding}"
    )


def excerpt(text: str, position: int = 0) -> str:
    """A short, printable part of a text around a position."""
    begin = max(0, position - EXCERPT_CHARACTERS // 2)
    part = text[begin : begin + EXCERPT_CHARACTERS]
    return ("..." if begin else "") + ascii(part)[1:-1] + ("..." if begin + EXCERPT_CHARACTERS < len(text) else "")
