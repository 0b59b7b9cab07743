"""Whether the code a process has imported is the code that was fingerprinted.

A file is compared as it was when its module was imported: an edit during a long step does no harm.
"""

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from marin_pipe.execution.source_find import is_first_party

_imported: dict[str, str] = {}
"""Absolute path of a first-party file -> sha256 of its bytes when its module was imported (or first seen so)."""
_seen: set[str] = set()
"""Names of the modules that were looked at."""


def note_imports(module: str) -> None:
    """Remember what is imported by now. Called while `module`, which defines a step, is being imported.

    The driver may run the step itself, much later: without this, an edit until then would go unnoticed.
    """
    if module not in _seen:
        _look()


def check_loaded(files: Mapping[str, str]) -> list[str]:
    """Those of `files` whose imported content is not the expected one; files of modules not imported are left out.

    Call it right after the step's function is imported, and again after its body ended, for what the body imports:
    from the first look on, such files are digested as they are imported.

    Args:
        files: absolute path -> sha256 of its bytes, as in `Fingerprint.files`.
    """
    _watcher.names.update(_module_name(path) for path in files)
    _look()
    return sorted(path for path, digest in files.items() if _imported.get(path, digest) != digest)


def _look() -> None:
    """Digest the files of modules that appeared since the last look, and watch for their being imported again."""
    if _watcher not in sys.meta_path:
        sys.meta_path.insert(0, _watcher)
    for path in _new_files():
        _watcher.names.add(_module_name(path))
        if path not in _imported:
            _imported[path] = _digest(path)


def _new_files() -> Iterator[str]:
    """First-party files of modules that appeared since the last look."""
    for name in sys.modules.keys() - _seen:
        _seen.add(name)
        module = sys.modules.get(name)
        path = module.__dict__.get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(path, str) and path.endswith(".py") and is_first_party(name, os.path.abspath(path)):
            yield os.path.abspath(path)


class _Watcher:
    """An import hook that finds nothing itself: it digests watched files just before Python loads them."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.rpartition(".")[2] in self.names:
            spec = PathFinder.find_spec(name, path, target)
            origin = None if spec is None else spec.origin
            if origin is not None and origin.endswith(".py"):
                _imported[os.path.abspath(origin)] = _digest(origin)
        return None


_watcher = _Watcher()


def _module_name(path: str) -> str:
    """Last component of the name under which a file is imported."""
    directory, name = os.path.split(path)
    return os.path.basename(directory) if name == "__init__.py" else name.removesuffix(".py")


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except FileNotFoundError:
        return "removed"
