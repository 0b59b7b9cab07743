"""Files from outside the pipeline as arguments: identity by names, sizes and content.

What a file holds is looked up when the graph is built and again before the step reads it. Stores that keep a checksum
of the content are asked for it; elsewhere files are read once and their digest is remembered for as long as size,
inode and times stay the same.
"""

import copy
import glob
import hashlib
import json
import logging
import os
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from pydantic_core import core_schema

from marin_pipe.execution.errors import GraphError, PipelineError
from marin_pipe.execution.records import FileEntry

if TYPE_CHECKING:
    from upath import UPath

_MAGIC = re.compile(r"[*?\[]")
_REMOTE_MEMORY_S = 10.0
"""How long a store's answer holds while graphs are built: 899 uses of one file ask once, not 899 times."""
_RACY_NS = 2_000_000_000
"""A file changed less than this before it was digested may change again under the same times (FAT counts 2 s)."""
_KEPT_BYTES = 1 << 18
"""Smaller files are read again by each process: that costs less than looking them up."""
_remote: dict[tuple[str, str], tuple[float, tuple[FileEntry, ...]]] = {}
_local: dict[str, dict[str, Any]] = {}


class InputChanged(PipelineError):
    """A file from outside changed between the building of the graph and its use."""


@dataclass(frozen=True)
class _External:
    """What `InputFile` and `InputFiles` share."""

    text: str
    """Path, URL or glob as written by the user."""
    location: str = field(default="", init=False, repr=False)
    """Absolute: the file, or the directory that names are relative to. Set by `resolved()`."""
    entries: tuple[FileEntry, ...] = field(default=(), init=False, repr=False)
    """The files as they were found, sorted by name. Set by `resolved()`."""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            object.__setattr__(self, "text", os.fspath(self.text) if isinstance(self.text, Path) else str(self.text))
        if not self.text:
            raise GraphError(f"{type(self).__name__} needs a path or URL, got an empty text")

    def resolved(self) -> Self:
        """A copy that knows the files as they are now.

        Raises:
            GraphError: there is no such file, or it cannot be read.
        """
        base, pattern = self._split()
        location = self.location or _absolute(base)
        try:
            entries = _remembered(location, pattern) if _is_remote(location) else _find_local(location, pattern)
        except ImportError as error:
            raise GraphError(f"{self!r} cannot be read: {error}", next=_install(location)) from error
        except (OSError, ValueError) as error:
            raise GraphError(f"{self!r} cannot be read: {error}", next="check the path and who may read it") from error
        except Exception as error:
            if not _is_remote(location):
                raise
            # Each library for a kind of store has errors of its own, such as for missing credentials.
            raise GraphError(
                f"{self!r} cannot be read: {type(error).__name__}: {error}",
                next="check the address, the connection and the credentials",
            ) from error
        if not entries:
            self._refuse_nothing(location)
        made = copy.copy(self)
        object.__setattr__(made, "location", location)
        object.__setattr__(made, "entries", entries)
        return made

    def check(self) -> None:
        """Compare the files with what they were when the graph was built.

        Raises:
            InputChanged: naming the files that differ.
        """
        _, pattern = self._split()
        find = _find_remote if _is_remote(self.location) else _find_local
        now = {entry.path: entry for entry in find(self.location, pattern)}
        before = {entry.path: entry for entry in self.entries}
        changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        if changed:
            shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
            raise InputChanged(
                f"{self!r} changed after the graph was built: {shown}",
                why="the step's key names the earlier content, so its output would be filed under the wrong key",
                next="start the experiment again: it will have a new key",
            )

    def _split(self) -> tuple[str, str]:
        """The part without wildcards, and the pattern below it ("" for a single file)."""
        raise NotImplementedError

    def _refuse_nothing(self, location: str) -> NoReturn:
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.text)
        )


@dataclass(frozen=True)
class InputFile(_External):
    """One file from outside: a local path or any fsspec URL. The body opens `.path`."""

    @property
    def path(self) -> "UPath":
        """The file."""
        from upath import UPath

        return UPath(self.location or _absolute(self.text))

    def _split(self) -> tuple[str, str]:
        return _without_scheme(self.text), ""

    def _refuse_nothing(self, location: str) -> NoReturn:
        if not _is_remote(location) and os.path.isdir(location):
            raise GraphError(
                f"{self!r} is a directory", next=f"name its files: InputFiles({self.text.rstrip('/') + '/**'!r})"
            )
        raise GraphError(f"{self!r}: there is no such file", why=f"looked for {location}")

    def __canonical__(self) -> Any:
        return {"$file": _form(self.entries)[0]}

    def __repr__(self) -> str:
        return f"InputFile({self.text!r})"


@dataclass(frozen=True)
class InputFiles(_External):
    """The files that match a glob (`**` crosses directories; names that begin with a dot need one in the pattern)."""

    @property
    def paths(self) -> "list[UPath]":
        """The files, sorted by name."""
        from upath import UPath

        known = self if self.entries else self.resolved()
        return [UPath(known.location) / entry.path for entry in known.entries]

    def check_content(self, path: "UPath", data: bytes) -> None:
        """Compare what was read of one of the files with its digest, where that is one that we can compute.

        Raises:
            InputChanged: something else was read.
        """
        for entry, known in zip(self.entries, self.paths, strict=True):
            kind, _, _ = entry.digest.partition(":")
            if known == path and kind in _DIGESTS and _DIGESTS[kind](data) != entry.digest:
                raise InputChanged(
                    f"{path} is not what was listed: {len(data)} bytes came, whose digest is not {entry.digest}",
                    why="the file changed after the graph was built, or a proxy or mirror gave another one",
                    next="start the experiment again; if that does not help, look at where the file comes from",
                )

    def _split(self) -> tuple[str, str]:
        text = _without_scheme(self.text)
        magic = _MAGIC.search(text, text.find("://") + 3 if _is_remote(text) else 0)
        if magic is None:
            raise GraphError(f"{self!r} has no wildcard", next=f"use InputFile({self.text!r}) for one file")
        base, slash, _ = text[: magic.start()].rpartition("/")
        return (base or slash or "."), text[len(base) + len(slash) :]

    def _refuse_nothing(self, location: str) -> NoReturn:
        raise GraphError(f"{self!r}: no file matches", why=f"looked in {location}")

    def __canonical__(self) -> Any:
        return {"$files": _form(self.entries)}

    def __repr__(self) -> str:
        return f"InputFiles({self.text!r})"


def _sha256_digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _git_digest(data: bytes) -> str:
    """Git's name for a blob."""
    blob = b"blob %d\0" % len(data) + data
    return f"git:{hashlib.sha1(blob, usedforsecurity=False).hexdigest()}"


_DIGESTS = {"sha256": _sha256_digest, "git": _git_digest}


def _form(entries: tuple[FileEntry, ...]) -> list[Any]:
    return [[entry.path, entry.size, entry.digest] for entry in entries]


def _is_remote(text: str) -> bool:
    return "://" in text


def _install(location: str) -> str:
    """What to install for a kind of store whose library is missing."""
    extras = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3", "hf": "hf"}
    extra = extras.get(location.partition("://")[0])
    if extra is not None:
        return f"python -m pip install 'marin-pipe[{extra}]'"
    return "install it; `python -m pip install aiohttp requests` for http:// and https://"


def _without_scheme(text: str) -> str:
    return text.removeprefix("file://") if text.startswith("file://") else text


def _absolute(text: str) -> str:
    text = _without_scheme(text)
    return text if _is_remote(text) else os.path.abspath(os.path.expanduser(text))


def _entry(name: str, size: int, digest: str) -> FileEntry:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the file name {name!r} is not valid Unicode; rename the file") from error
    return FileEntry(path=name, size=size, digest=digest)


# --- local files ------------------------------------------------------------------------------------------------------


def _find_local(location: str, pattern: str) -> tuple[FileEntry, ...]:
    if not pattern:
        return (_local_entry(os.path.basename(location), location),) if os.path.isfile(location) else ()
    names = sorted(set(glob.glob(pattern, root_dir=location, recursive=True)))
    paths = ((name.replace(os.sep, "/"), os.path.join(location, name)) for name in names)
    return tuple(_local_entry(name, path) for name, path in paths if os.path.isfile(path))


def _local_entry(name: str, path: str) -> FileEntry:
    status = os.stat(path)
    state = {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,  # changes with the content even where a copy keeps the other times
        "inode": status.st_ino,
    }
    known = _local.get(path)
    kept = None
    if known is None and status.st_size >= _KEPT_BYTES:
        kept = _cache_file(path)
        known = _read_cache(kept)
    if known is not None and all(known.get(k) == v for k, v in state.items()):
        _local[path] = known
        return _entry(name, status.st_size, known["digest"])
    begun_ns = time.time_ns()
    with open(path, "rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        after = os.fstat(file.fileno())
    if (after.st_size, after.st_mtime_ns, after.st_ctime_ns) != (state["size"], state["mtime_ns"], state["ctime_ns"]):
        raise OSError(f"{path} is being written to")
    if max(status.st_mtime_ns, status.st_ctime_ns) < begun_ns - _RACY_NS:
        _local[path] = {**state, "digest": digest}
        if status.st_size >= _KEPT_BYTES:
            _write_cache(kept or _cache_file(path), _local[path])
    return _entry(name, status.st_size, digest)


def _cache_file(path: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "marin_pipe", "digests", hashlib.sha256(os.fsencode(path)).hexdigest() + ".json")


def _read_cache(file: Path) -> dict[str, Any] | None:
    """What was remembered; None for an unreadable entry, which costs one more reading of the file."""
    try:
        known = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) and isinstance(known.get("digest"), str) else None


def _write_cache(file: Path, state: dict[str, Any]) -> None:
    """Remember a digest. A home that cannot be written costs one more reading next time, nothing else."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)
        with open(descriptor, "w") as out:
            json.dump(state, out)
        os.replace(temporary, file)
    except OSError:
        return


# --- other stores -----------------------------------------------------------------------------------------------------


def _remembered(location: str, pattern: str) -> tuple[FileEntry, ...]:
    known = _remote.get((location, pattern))
    if known is not None and time.monotonic() - known[0] < _REMOTE_MEMORY_S:
        return known[1]
    entries = _find_remote(location, pattern)
    _remote[location, pattern] = (time.monotonic(), entries)
    return entries


def _find_remote(location: str, pattern: str) -> tuple[FileEntry, ...]:
    from fsspec.core import url_to_fs

    if location.startswith("hf://"):
        _quieten("httpx", "httpx2")
    system, path = url_to_fs(location)
    system.invalidate_cache()
    if not pattern:
        try:
            info = system.info(path)
        except FileNotFoundError:
            return ()
        if info["type"] != "file":
            return ()
        return (_entry(path.rpartition("/")[2], info["size"], _remote_digest(system, path, info)),)
    base = path.rstrip("/") + "/"
    found = system.glob(base + pattern, detail=True)
    return tuple(
        _entry(name.removeprefix(base), info["size"], _remote_digest(system, name, info))
        for name, info in sorted(found.items())
        if info["type"] == "file"
    )


def _quieten(*names: str) -> None:
    """Loggers that tell of each request: there are thousands, and addresses of private files hold signatures."""
    for name in names:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def _remote_digest(system: Any, path: str, info: dict[str, Any]) -> str:
    """The store's own checksum of the content if its listing has one, else sha256 of the bytes."""
    protocols = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    if "gs" in protocols and info.get("md5Hash"):
        return f"md5:{info['md5Hash']}"
    if "gs" in protocols and info.get("crc32c"):
        return f"crc32c:{info['crc32c']}"
    if "hf" in protocols and info.get("blob_id"):
        # Large files are known by their content, small ones by git's name for it.
        lfs = info.get("lfs")
        return f"sha256:{lfs['sha256']}" if lfs else f"git:{info['blob_id']}"
    if "s3" in protocols and info.get("ETag"):
        return f"etag:{str(info['ETag']).strip(chr(34))}"
    digest = hashlib.sha256()
    with system.open(path, "rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"
