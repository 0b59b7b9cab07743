"""`unpack`: the files of a zip or tar archive that somebody else made, or an error and no file."""

import bz2
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.files import open_binary

_CHUNK_BYTES = 1 << 20
_HEADER_BYTES = 4 << 20
"""What a tar may hold between two files: headers, long names, comments."""
_RATIO_COUNTS_FROM_BYTES = 16 << 20
"""Smaller contents are no bombs, however well they were compressed."""
_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 1024
_UTF8_FLAG, _ENCRYPTED_FLAG = 0x800, 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of the others the standard library's reader decompresses without bounds."""


@dataclass(frozen=True, kw_only=True)
class UnpackLimits:
    """How much may come out of an archive, counted while it does: what headers say is not relied on."""

    max_files: int = 1_000_000
    max_bytes: int = 256 << 30
    """Of all files together."""
    max_ratio: float = 200.0
    """Unpacked to packed bytes. Text comes to 3 to 10, logs and tables to some tens."""

    def __post_init__(self) -> None:
        for name in ("max_files", "max_bytes", "max_ratio"):
            if not getattr(self, name) > 0:
                raise BadConfig(f"{name}={getattr(self, name)} must be above 0")


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """What came out."""

    num_files: int
    num_bytes: int


def unpack(url: str, folder: Path, limits: UnpackLimits | None = None) -> Unpacked:
    """Unpack a `.zip`, `.tar`, `.tar.gz`, `.tar.bz2`, `.tar.xz` or `.tar.zst` into `folder`.

    The kind is told by the content. Files alone are written, with their names and contents: no links, no empty folders,
    no permissions, owners or times. They appear in `folder` all together when all of them are whole.

    Args:
        url: path or URL of the archive.
        folder: absent or empty.
        limits: how much may come out.

    Raises:
        BadInput: the archive is damaged, encrypted, exceeds the limits, or has a member that may not be written:
            outside of `folder`, a link or device, twice, or with a name that some file system does not hold (too long,
            not UTF-8, different from another in case alone). Nothing is left in `folder`.
        BadConfig: `folder` has something in it.
    """
    limits = limits or UnpackLimits()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadConfig(f"{folder} is not an empty folder", next="unpack into a new one")
    temporary = folder.with_name(f".{folder.name}.unpacking-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        with open_binary(url) as file:
            writer = _Writer(archive=url, folder=temporary, limits=limits, packed_bytes=file.seek(0, os.SEEK_END))
            file.seek(0)
            _unpack(file, writer)
        if not writer.num_files:
            raise BadInput(f"{url} holds no file")
        temporary.replace(folder)
    except BaseException:
        shutil.rmtree(temporary)
        raise
    return Unpacked(num_files=writer.num_files, num_bytes=writer.num_bytes)


def _unpack(file: IO[bytes], writer: "_Writer") -> None:
    head = file.read(512)
    file.seek(0)
    with _reading(writer.archive):
        stream: Any
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            return _unpack_zip(file, writer)
        if head.startswith(b"\x1f\x8b"):
            stream = gzip.GzipFile(fileobj=file, mode="rb")
        elif head.startswith(b"BZh"):
            stream = bz2.BZ2File(file)
        elif head.startswith(b"\xfd7zXZ\0"):
            stream = lzma.LZMAFile(file, format=lzma.FORMAT_XZ)
        elif head.startswith(b"\x28\xb5\x2f\xfd"):
            stream = pa.CompressedInputStream(file, "zstd")  # tells a truncated file, which zstandard does not
        elif head[257:262] == b"ustar":
            stream = file
        else:
            raise BadInput(
                f"{writer.archive} is no archive of a known kind",
                why=f"it begins with {head[:8]!r}",
                next="known are zip and tar, the latter also in gzip, bzip2, xz and zstd",
            )
        return _unpack_tar(_TarStream(stream, writer), writer)


@contextmanager
def _reading(archive: str) -> Iterator[None]:
    """Errors of reading an archive, as one that names it. Those of writing files pass as they are."""
    try:
        yield
    except _WriteFailed as error:
        raise error.error from error
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError) as error:
        if isinstance(error, BadConfig):
            raise
        raise BadInput(
            f"{archive} is damaged", why=f"{type(error).__name__}: {error}", next="copy or download it again"
        ) from error
    except NotImplementedError as error:
        raise BadInput(f"{archive} cannot be read: {error}") from error


class _WriteFailed(Exception):
    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


# --- what may be written ----------------------------------------------------------------------------------------------


@dataclass
class _Writer:
    """Checks and writes the files of one archive."""

    archive: str
    folder: Path
    limits: UnpackLimits
    packed_bytes: int
    num_files: int = 0
    num_bytes: int = 0
    _taken: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """By path as a file system that ignores case sees it: the path, and whether it is a folder."""

    def claim(self, name: str) -> str | None:
        """The path for a member's file; None for the archive's root."""
        path = self._clean(name)
        if path is None:
            return None
        self.num_files += 1
        if self.num_files > self.limits.max_files:
            raise self.refused(f"it holds more than max_files={self.limits.max_files} files")
        self._take(path, is_folder=False, name=name)
        return path

    def claim_folder(self, name: str) -> None:
        """Check the name of a member that is a folder."""
        path = self._clean(name)
        if path is not None:
            self._take(path, is_folder=True, name=name)

    def _clean(self, name: str) -> str | None:
        shown = f"its member {name[:200]!r}"
        try:
            name.encode()
        except UnicodeEncodeError:
            raise self.refused(f"{shown} has a name that is not UTF-8") from None
        if name.startswith(("/", "\\")) or (name[1:2] == ":" and name[0].isalpha()):
            raise self.refused(f"{shown} has an absolute path")
        if "\\" in name or any(unicodedata.category(character) == "Cc" for character in name):
            raise self.refused(f"{shown} has a backslash or a control character in its name")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise self.refused(f"{shown} lies outside of the folder")
        path = "/".join(parts)
        if len(path.encode()) > _MAX_PATH_BYTES or any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
            raise self.refused(
                f"{shown} has a name of over {_MAX_NAME_BYTES}, or a path of over {_MAX_PATH_BYTES} bytes"
            )
        return path or None

    def _take(self, path: str, *, is_folder: bool, name: str) -> None:
        end = len(path) if is_folder else path.rfind("/")
        while end > 0:
            if not self._take_one(path[:end], True, name):
                break  # the folders above are known, too
            end = path.rfind("/", 0, end)
        if not is_folder and not self._take_one(path, False, name):
            raise self.refused(f"its member {name!r} occurs twice")

    def _take_one(self, path: str, is_folder: bool, name: str) -> bool:
        """Whether it is new."""
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        known = self._taken.setdefault(folded, (path, is_folder))
        if known[0] != path:
            raise self.refused(
                f"its member {name!r} differs from {known[0]!r} in case or in the form of its accents alone"
            )
        if known[1] != is_folder:
            raise self.refused(f"its member {name!r} makes {path!r} both a file and a folder")
        if known is self._taken[folded] and len(self._taken) == self._num_taken:
            return False
        self._num_taken = len(self._taken)
        return True

    _num_taken: int = 0

    def write(self, path: str, source: IO[bytes]) -> None:
        """Write a file that was claimed."""
        target = self.folder / path
        with _writing():
            target.parent.mkdir(parents=True, exist_ok=True)
            file = open(target, "xb")  # noqa: SIM115  closed below
        try:
            while chunk := source.read(_CHUNK_BYTES):
                self.num_bytes += len(chunk)
                self.check_size(self.num_bytes, self.packed_bytes)
                with _writing():
                    file.write(chunk)
        finally:
            with _writing():
                file.close()

    def check_size(self, unpacked_bytes: int, packed_bytes: int) -> None:
        """Refuse an archive of which too much has come out."""
        if unpacked_bytes > self.limits.max_bytes:
            raise self.refused(f"more than max_bytes={self.limits.max_bytes} bytes come out of it")
        if unpacked_bytes > max(_RATIO_COUNTS_FROM_BYTES, self.limits.max_ratio * packed_bytes):
            raise self.refused(
                f"{packed_bytes} bytes of it made more than max_ratio={self.limits.max_ratio} times as many"
            )

    def refused(self, why: str) -> BadInput:
        """The error for all of the archive."""
        return BadInput(
            f"{self.archive} is not unpacked: {why}",
            next="look at the archive; if you trust it, unpack it yourself and give its files, or raise the limit",
        )


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _WriteFailed(error) from error


# --- zip --------------------------------------------------------------------------------------------------------------


def _unpack_zip(file: IO[bytes], writer: _Writer) -> None:
    with zipfile.ZipFile(file) as archive:
        # All of them are looked at before the first is written.
        paths = [_claim_zip_member(info, writer) for info in archive.infolist()]
        for info, path in zip(archive.infolist(), paths, strict=True):
            if path is not None:
                with archive.open(info) as source:
                    writer.write(path, source)


def _claim_zip_member(info: zipfile.ZipInfo, writer: _Writer) -> str | None:
    name = info.orig_filename
    if not info.flag_bits & _UTF8_FLAG and not name.isascii():
        # The reader takes such names for those of old DOS programs; other programs leave the flag out.
        try:
            name = name.encode("cp437").decode()
        except UnicodeDecodeError:
            raise writer.refused(f"its member {name!r} has a name that is not UTF-8") from None
    if info.flag_bits & _ENCRYPTED_FLAG:
        raise writer.refused(f"its member {name!r} is encrypted")
    if info.compress_type not in _METHODS:
        raise writer.refused(f"its member {name!r} has compression method {info.compress_type}; known are 0 and 8")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise writer.refused(f"its member {name!r} is a link or a device")
    if name.endswith("/") or kind == stat.S_IFDIR:
        writer.claim_folder(name)
        return None
    path = writer.claim(name)
    if path is None:
        raise writer.refused(f"its member {name!r} has no name")
    return path


# --- tar --------------------------------------------------------------------------------------------------------------


class _TarStream:
    """What a tar is read from: counts what comes out of the decompressor, and bounds what lies between files."""

    def __init__(self, stream: Any, writer: _Writer) -> None:
        self._stream = stream
        self._writer = writer
        self._num_bytes = 0
        self.header_bytes_left: int | None = None

    def read(self, num_bytes: int) -> bytes:
        data = cast(bytes, self._stream.read(min(num_bytes, _CHUNK_BYTES)))
        self._num_bytes += len(data)
        self._writer.check_size(self._num_bytes, self._writer.packed_bytes)
        if self.header_bytes_left is not None:
            self.header_bytes_left -= len(data)
            if self.header_bytes_left < 0:
                raise self._writer.refused(f"a header in it is longer than {_HEADER_BYTES} bytes")
        return data


def _unpack_tar(stream: _TarStream, writer: _Writer) -> None:
    stream.header_bytes_left = _HEADER_BYTES
    with tarfile.open(fileobj=cast(Any, stream), mode="r|", encoding="utf-8") as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # else it keeps all of them
            if member.isdir():
                writer.claim_folder(member.name)
            elif not member.isreg() or member.issparse():
                raise writer.refused(f"its member {member.name!r} is a link, a device or a sparse file")
            else:
                path = writer.claim(member.name)
                if path is None:
                    raise writer.refused("a member of it has no name")
                source = archive.extractfile(member)
                assert source is not None
                stream.header_bytes_left = None
                writer.write(path, source)
            stream.header_bytes_left = _HEADER_BYTES
    # What follows the end is padding, but only at its end does a compressed stream say whether it is whole.
    stream.header_bytes_left = None
    while stream.read(_CHUNK_BYTES):
        pass
