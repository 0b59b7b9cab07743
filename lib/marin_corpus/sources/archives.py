"""Unpacking zip and tar archives that nobody vouches for: members are checked first, and sizes as they come."""

import errno
import lzma
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tarfile import EOFHeaderError, HeaderError, ReadError  # type: ignore[attr-defined]
from typing import IO, Any, Self, cast

import pyarrow as pa

from marin_corpus.errors import BadConfig, BadInput

_CHUNK_BYTES = 1 << 20
_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 1024
_FREE_BYTES = 64 << 20
"""Small archives may be of any ratio: text of few words shrinks a thousandfold, and does no harm."""
_HEADER_BYTES = 4 << 20
"""What a tar may hold between two members: headers and long names, which `tarfile` reads into memory whole."""
_ZIP_ENCRYPTED, _ZIP_UTF8 = 0x1, 0x800
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of the others `zipfile` decompresses a piece at once, however much comes out."""
_COMPRESSIONS = {".gz": "gzip", ".tgz": "gzip", ".bz2": "bz2", ".tbz2": "bz2", ".zst": "zstd", ".tzst": "zstd"}
_XZ = (".xz", ".txz")


@dataclass(frozen=True, kw_only=True)
class UnpackLimits:
    """What an archive may hold before it is refused."""

    max_members: int = 1_000_000
    max_bytes: int = 1 << 40
    """Of all files together, unpacked."""
    max_ratio: float = 200.0
    """Unpacked bytes to bytes of the archive, once 64 MiB are unpacked. Text is packed 3 to 10 to 1."""

    def __post_init__(self) -> None:
        for field in ("max_members", "max_bytes", "max_ratio"):
            if not getattr(self, field) > 0:
                raise BadConfig(f"UnpackLimits: {field}={getattr(self, field)} must be above 0")


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """What was written."""

    num_files: int
    num_bytes: int


@dataclass(frozen=True)
class _Member:
    name: str
    is_directory: bool
    content: IO[bytes] | None


def unpack(archive: Path, folder: Path, limits: UnpackLimits | None = None) -> Unpacked:
    """Unpack `.zip`, `.tar`, `.tar.gz`, `.tar.bz2`, `.tar.xz` or `.tar.zst` into `folder`, which must be new or empty.

    Only plain files and directories are unpacked, with the default permissions. Sizes are counted as bytes are written,
    whatever the archive says of them.

    Raises:
        BadInput: the archive is damaged, or holds what must not be unpacked: a path that leads elsewhere, a link or
            device, two members of one name (also if they differ in case only), more than the limits allow. Nothing is
            left in `folder`.
    """
    limits = limits or UnpackLimits()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty", next="unpack into a new directory")
    try:
        with _members(archive) as members:
            return _write(archive, members, folder, limits)
    except (
        EOFError,
        OSError,
        RuntimeError,
        NotImplementedError,
        ValueError,
        lzma.LZMAError,
        struct.error,
        pa.ArrowException,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        _clear(folder)
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # of the disk; a seek to where no file can be comes from the archive
        raise BadInput(
            f"{archive.name} is damaged, or no such archive as its name says",
            why=f"{type(error).__name__}: {error}",
            next="copy or download it again",
        ) from error
    except BaseException:
        _clear(folder)
        raise


def _write(archive: Path, members: Iterator[_Member], folder: Path, limits: UnpackLimits) -> Unpacked:
    archive_bytes = archive.stat().st_size
    kinds: dict[str, bool] = {}
    num_members = num_files = num_bytes = 0
    for member in members:
        num_members += 1
        if num_members > limits.max_members:
            raise _refused(archive, f"it has more than max_members={limits.max_members} members")
        path = _checked_path(archive, member.name)
        if not path.parts:
            if member.content is not None:
                raise _refused(archive, "one of its members has no name")
            continue
        _claim(archive, path, member, kinds)
        target = folder.joinpath(*path.parts)
        if member.content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            while chunk := member.content.read(_CHUNK_BYTES):
                num_bytes += len(chunk)
                if num_bytes > limits.max_bytes:
                    raise _refused(archive, f"it unpacks to more than max_bytes={limits.max_bytes}")
                if num_bytes > _FREE_BYTES and num_bytes > limits.max_ratio * archive_bytes:
                    raise _refused(archive, f"it unpacks to more than max_ratio={limits.max_ratio:g} times its size")
                file.write(chunk)
        num_files += 1
    return Unpacked(num_files=num_files, num_bytes=num_bytes)


def _refused(archive: Path, why: str) -> BadInput:
    return BadInput(
        f"{archive.name} is not unpacked",
        why=why,
        next="look at what it holds; unpack it by hand if you trust it, or raise the limit",
    )


def _checked_path(archive: Path, name: str) -> PurePosixPath:
    """The member's place below the folder. Empty for the folder itself."""
    shown = ascii(name[:200])
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise _refused(archive, f"the name of its member {shown} is not UTF-8") from error
    path = PurePosixPath(name)
    # A drive or a backslash means something on other systems only; no archive of data needs one.
    if path.is_absolute() or ".." in path.parts or "\\" in name or (name[:1].isalpha() and name[1:2] == ":"):
        raise _refused(archive, f"its member {shown} would be written outside of the folder")
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise _refused(archive, f"the name of its member {shown} holds control characters")
    if len(encoded) > _MAX_PATH_BYTES or any(len(part.encode()) > _MAX_NAME_BYTES for part in path.parts):
        raise _refused(archive, f"the name of its member {shown} is too long")
    return path


def _claim(archive: Path, path: PurePosixPath, member: _Member, kinds: dict[str, bool]) -> None:
    """Refuse a name that another member has, as some file system would see it.

    `kinds` says of each name so far whether it is a directory's.
    """
    for parent in path.parents:
        if parent.parts and not kinds.setdefault(_folded(parent), True):
            raise _refused(archive, f"its member {str(path)!r} lies below another one, which is a file")
    known = kinds.get(_folded(path))
    if known is not None and not (known and member.is_directory):
        raise _refused(archive, f"two of its members are called {str(path)!r}, or differ in case only")
    kinds[_folded(path)] = member.is_directory


def _folded(path: PurePosixPath) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", str(path)).casefold())


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    name = archive.name.lower()
    suffixes = [suffix.lower() for suffix in archive.suffixes]
    last = suffixes[-1] if suffixes else ""
    is_tar = last == ".tar" or last.startswith(".t") or suffixes[-2:-1] == [".tar"]
    if last == ".zip":
        with zipfile.ZipFile(archive) as packed:
            yield _zip_members(archive, packed)
    elif is_tar and (last == ".tar" or last in _COMPRESSIONS or last in _XZ):
        with _decompressed(archive, last) as stream:
            bounded = _Bounded(archive, stream)
            with tarfile.open(
                fileobj=cast("IO[bytes]", bounded), mode="r|", encoding="utf-8", tarinfo=_Header
            ) as packed_tar:
                yield _tar_members(archive, packed_tar, bounded)
    else:
        raise BadInput(
            f"{name} is no archive by its name", next="known are .zip, .tar and .tar with .gz, .bz2, .xz, .zst"
        )


class _Bounded:
    """A stream that refuses to read more than `left` bytes; None for no bound."""

    def __init__(self, archive: Path, stream: IO[bytes]) -> None:
        self._archive = archive
        self._stream = stream
        self.left: int | None = _HEADER_BYTES

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if self.left is not None:
            self.left -= len(data)
            if self.left < 0:
                raise _refused(self._archive, f"it holds headers of more than {_HEADER_BYTES} bytes")
        return data


@contextmanager
def _decompressed(archive: Path, suffix: str) -> Iterator[IO[bytes]]:
    if suffix == ".tar":
        with archive.open("rb") as file:
            yield file
    elif suffix in _XZ:
        with lzma.open(archive) as stream:
            yield cast("IO[bytes]", stream)
    else:
        # Arrow's decompression tells a truncated file from a whole one.
        with archive.open("rb") as file, pa.CompressedInputStream(file, _COMPRESSIONS[suffix]) as stream:
            yield stream


class _Header(tarfile.TarInfo):
    """A header that must be one: tarfile takes a damaged or missing one behind the first for the end."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile)
        except EOFHeaderError:
            raise
        except HeaderError as error:
            raise ReadError(str(error)) from error


def _zip_members(archive: Path, packed: zipfile.ZipFile) -> Iterator[_Member]:
    for info in packed.infolist():
        name = _zip_name(archive, info)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refused(archive, f"its member {name!r} is a link or a device")
        if info.flag_bits & _ZIP_ENCRYPTED:
            raise _refused(archive, f"its member {name!r} is encrypted")
        if info.compress_type not in _ZIP_METHODS:
            raise _refused(archive, f"its member {name!r} is packed by method {info.compress_type}")
        if name.endswith("/"):
            yield _Member(name, True, None)
            continue
        with packed.open(info) as content:
            yield _Member(name, False, content)


def _zip_name(archive: Path, info: zipfile.ZipInfo) -> str:
    """The name as it is written: `filename` ends at a NUL, and takes UTF-8 without the flag for cp437."""
    name = info.orig_filename
    if info.flag_bits & _ZIP_UTF8 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode()
    except UnicodeDecodeError as error:
        raise _refused(archive, f"the name of its member {name[:200]!a} is not UTF-8") from error


def _tar_members(archive: Path, packed: tarfile.TarFile, stream: _Bounded) -> Iterator[_Member]:
    while (info := packed.next()) is not None:
        # It keeps them all otherwise: a kilobyte each.
        cast("Any", packed).members.clear()
        if info.isdir():
            yield _Member(info.name, True, None)
        elif info.isreg() and not info.issparse():
            content = packed.extractfile(info)
            assert content is not None, "a regular file has content"
            with content:
                stream.left = None
                yield _Member(info.name, False, content)
            stream.left = _HEADER_BYTES
        else:
            raise _refused(archive, f"its member {info.name!r} is a link, a device or a sparse file")
    # Only at its end does a compressed stream say whether it is whole.
    while rest := cast("IO[bytes]", packed.fileobj).read(_CHUNK_BYTES):
        if rest.strip(b"\0"):
            raise tarfile.ReadError("something follows its end")
