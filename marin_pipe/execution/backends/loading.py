"""What a body reads, checked before it reads it: upstream outputs against their manifests, results against types."""

import functools
import hashlib
import os
import stat
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from marin_storage import Store, open_store

from marin_pipe.execution.backends.transport import InputData
from marin_pipe.execution.binding import Placeholder
from marin_pipe.execution.context import is_local
from marin_pipe.execution.errors import CorruptOutput, MissingOutput
from marin_pipe.execution.layout import KEY_DIGITS
from marin_pipe.execution.load import revive
from marin_pipe.execution.manifest import size_problem

if TYPE_CHECKING:
    from upath import UPath

_READ_BYTES = 1 << 22


@functools.cache
def store_at(url: str) -> Store:
    """One store a root and process."""
    return open_store(url)


class InputChanged(CorruptOutput):
    """Committed data was written to while a step read it."""


class _File(NamedTuple):
    """What storage tells about a file without reading it: equal as long as nobody touched it."""

    size_bytes: int
    written: float
    """When, on a local disk in nanoseconds; by the store's clock."""
    identity: Hashable
    """The inode, or the version where the store tells it."""
    touched_ns: int = 0
    """Also by what changes no content, like a link or a mode; nobody can set it back."""


Files = Mapping[str, _File]
"""By path relative to the data directory."""


class Loader:
    """Hands upstream outputs to the bodies of one process, and sees to it that they read what was committed.

    Names and sizes are looked at before and after each body. Digests are computed once a process; after that, where
    they were asked for or a file seems to have been touched.
    """

    def __init__(self) -> None:
        self._verified: dict[str, tuple[bool, Files]] = {}
        """By data directory: whether digests were compared, and the files then."""

    def load(
        self, placeholder: Placeholder, inputs: Mapping[str, InputData], annotations: Mapping[str, Any], *, root: str
    ) -> Any:
        """The value that takes the place of `placeholder`: a typed result, or a path that exists."""
        directory = placeholder.directory
        data = inputs[directory]
        if placeholder.path is None:
            name = directory[: -KEY_DIGITS - 1]
            return revive(data.result, annotations[directory], data_url=data.data_url, where=directory, step=name)
        return _path_inside(directory, data, placeholder.path, root=root)

    def verify(self, inputs: Mapping[str, InputData], *, root: str, mode: str) -> dict[str, Files]:
        """Check all inputs by names and sizes, or by digests too, and return their files by step directory.

        Raises:
            CorruptOutput: names the first file that differs.
        """
        seen = _look(inputs, root)
        for directory, data in inputs.items():
            files = seen[directory]
            digested, known = self._verified.get(data.data_url, (False, None))
            to_digest = mode == "digests" and not digested
            if files == known and not to_digest:
                continue
            _check_sizes(directory, data, files)
            # Nobody has a reason to touch what is committed: a file that was touched is read again in any case.
            suspects = [row for row in data.manifest if to_digest or (known and known.get(row[0]) != files[row[0]])]
            problem = _wrong_digest(data, suspects, root=root)
            if problem is not None:
                raise _corrupt(directory, data, *problem)
            self._verified[data.data_url] = (digested or to_digest, files)
        return seen

    def check_unchanged(
        self, inputs: Mapping[str, InputData], seen: Mapping[str, Files], *, root: str, step: str
    ) -> None:
        """InputChanged if a file of the inputs is not as `verify` saw it."""
        for directory, files in _look(inputs, root).items():
            before, data = seen[directory], inputs[directory]
            if files == before:
                continue
            problem = _change(before, files)
            if problem is None:
                # Linked, or another mode: no change, unless somebody set the time of writing back.
                touched = [row for row in data.manifest if before[row[0]] != files[row[0]]]
                problem = _wrong_digest(data, touched, root=root)
            if problem is not None:
                path, what = problem
                raise InputChanged(
                    f"step {step}: its input {directory} changed while it ran: the file {path!r} {what}",
                    why=f"the step or another process wrote below {data.data_url}, where data is committed",
                    next=f"write to ctx.output or ctx.work only; as to the input, {data.rebuild}",
                )


def _look(inputs: Mapping[str, InputData], root: str) -> dict[str, Files]:
    """What lies in the data directories now: one listing each."""
    found: dict[str, Files] = {}
    remote: list[tuple[str, Store, str]] = []
    for directory, data in inputs.items():
        store, prefix = locate(data.data_url, root=root)
        if is_local(store):
            found[directory] = _files_on_disk(f"{store.url}/{prefix}" if prefix else store.url)
        elif data.manifest:
            remote.append((directory, store, prefix))
        else:
            # Not worth a request.
            found[directory] = {}
    if remote:
        listings = remote[0][1].map(_files_in_store, remote)
        found.update(zip((directory for directory, _, _ in remote), listings, strict=True))
    return found


def _files_on_disk(base: str) -> dict[str, _File]:
    files: dict[str, _File] = {}
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(f"{base}/{folder}") as entries:
                for entry in entries:
                    if entry.is_dir():
                        pending.append(f"{folder}{entry.name}/")
                        continue
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        # Removed meanwhile, or a link to nothing.
                        continue
                    if stat.S_ISREG(status.st_mode):
                        files[folder + entry.name] = _File(
                            status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns
                        )
        except (FileNotFoundError, NotADirectoryError):
            continue
    return files


def _files_in_store(place: tuple[str, Store, str]) -> dict[str, _File]:
    _, store, prefix = place
    start = len(prefix) + 1 if prefix else 0
    return {
        entry.key[start:]: _File(entry.size_bytes, entry.modified, entry.version) for entry in store.list_files(prefix)
    }


def _check_sizes(directory: str, data: InputData, files: Files) -> None:
    present = {path: file.size_bytes for path, file in files.items()}
    problem = size_problem(present, ((path, size) for path, size, _ in data.manifest))
    if problem is not None:
        raise _corrupt(directory, data, *problem)
    if len(files) > len(data.manifest):
        extra = min(files.keys() - {path for path, _, _ in data.manifest})
        raise CorruptOutput(
            f"{directory}: its output holds the file {extra!r}, which its record does not name",
            why=f"it was added below {data.data_url} after the commit, and a step that reads all files would read it",
            next=f"remove it, or {data.rebuild}",
        )


def _change(before: Files, now: Files) -> tuple[str, str] | None:
    """The first file that was added, removed or written, and which of these."""
    for path in sorted(before.keys() | now.keys()):
        if path not in before:
            return path, "was added"
        if path not in now:
            return path, "was removed"
        if before[path]._replace(touched_ns=0) != now[path]._replace(touched_ns=0):
            return path, "was written"
    return None


def _wrong_digest(data: InputData, rows: list[tuple[str, int, str]], *, root: str) -> tuple[str, str] | None:
    """The first of these rows of the manifest whose file has other bytes, and what is wrong with it."""
    if not rows:
        return None
    store, prefix = locate(data.data_url, root=root)
    items = [(f"{prefix}/{path}" if prefix else path, digest) for path, _, digest in rows]
    for (path, _, expected), digest in zip(rows, store.map(functools.partial(_digest, store), items), strict=True):
        if digest != expected:
            return path, f"has digest {digest}, its record says {expected}"
    return None


def locate(data_url: str, *, root: str) -> tuple[Store, str]:
    """The store and the prefix of a data directory: below the root where it lies there, else its own store."""
    base = root.rstrip("/") + "/"
    if data_url.startswith(base):
        return store_at(root), data_url[len(base) :].rstrip("/")
    return store_at(data_url), ""


def digest_like(store: Store, key: str, expected: str) -> str:
    """The digest of an object by the algorithm of `expected`, which another kind of store may have written."""
    algorithm = expected.partition(":")[0]
    digest = store.digest(key)
    if digest.partition(":")[0] == algorithm:
        return digest
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    position = 0
    while chunk := store.read_range(key, position, _READ_BYTES):
        hasher.update(chunk)
        position += len(chunk)
    return f"{algorithm}:{hasher.hexdigest()}"


def _digest(store: Store, item: tuple[str, str]) -> str:
    return digest_like(store, *item)


def _path_inside(directory: str, data: InputData, path: str, *, root: str) -> "UPath":
    # The manifest decides, not the storage: object stores have no directories, and nothing else was committed.
    if path != "." and not any(name == path or name.startswith(f"{path}/") for name, _, _ in data.manifest):
        raise MissingOutput(
            f"{directory}: its output holds no {path!r}",
            why=f"it holds {_some(name for name, _, _ in data.manifest)}",
            next=f"correct `step / {path!r}`, or the step that should write it",
        )
    store, prefix = locate(data.data_url, root=root)
    base = store.path(prefix)
    return base if path == "." else base / path


def _some(names: Any) -> str:
    listed = list(names)
    shown = ", ".join(repr(name) for name in listed[:5])
    return f"{shown} and {len(listed) - 5} more" if len(listed) > 5 else shown or "no files"


def _corrupt(directory: str, data: InputData, path: str, what: str) -> CorruptOutput:
    return CorruptOutput(
        f"{directory}: the file {path!r} {what}",
        why=f"data below {data.data_url} was changed or removed after it was committed",
        next=data.rebuild,
    )
