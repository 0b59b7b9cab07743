"""What a body reads, checked before it reads it: upstream outputs against their manifests, results against types."""

import functools
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from marin_storage import Store, open_store

from marin_pipe.execution.backends.transport import InputData
from marin_pipe.execution.binding import Placeholder
from marin_pipe.execution.errors import CorruptOutput, MissingOutput
from marin_pipe.execution.layout import KEY_DIGITS
from marin_pipe.execution.load import revive
from marin_pipe.execution.manifest import size_problem, sizes_below

if TYPE_CHECKING:
    from upath import UPath

_READ_BYTES = 1 << 22


@functools.cache
def store_at(url: str) -> Store:
    """One store a root and process."""
    return open_store(url)


class Loader:
    """Hands upstream outputs to the bodies of one process. An output is verified once a process and mode."""

    def __init__(self) -> None:
        self._verified: set[tuple[str, str]] = set()

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

    def verify(self, directory: str, data: InputData, *, root: str, mode: str) -> None:
        """Check the files of an output by size, or by digest. CorruptOutput names the first that differs."""
        if not data.manifest or (data.data_url, mode) in self._verified:
            return
        store, prefix = locate(data.data_url, root=root)
        problem = size_problem(sizes_below(store, prefix), ((path, size) for path, size, _ in data.manifest))
        if problem is not None:
            raise _corrupt(directory, data, *problem)
        if mode == "digests":
            keys = [f"{prefix}/{path}" if prefix else path for path, _, _ in data.manifest]
            expected = [digest for _, _, digest in data.manifest]
            for index, digest in enumerate(
                store.map(functools.partial(_digest, store), zip(keys, expected, strict=True))
            ):
                if digest != expected[index]:
                    path = data.manifest[index][0]
                    raise _corrupt(directory, data, path, f"has digest {digest}, its record says {expected[index]}")
        self._verified.add((data.data_url, mode))


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
