"""What a disk holds after a power failure, from a record of the system calls made before it.

A file's data survive for certain only after `fsync` of the file, and a name only after `fsync` of the directory that
holds it. What was not synced may survive or not, so a crash is asked for with either answer.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class _File:
    data: bytes = b""
    synced: bytes = b""


@dataclass
class _Directory:
    names: dict[str, "_File | _Directory"] = field(default_factory=dict)
    synced: dict[str, "_File | _Directory"] = field(default_factory=dict)


@dataclass(frozen=True)
class Crash:
    """Whether names and data that were not synced survive."""

    keeps_names: bool
    keeps_data: bool


CRASHES = [Crash(keeps_names, keeps_data) for keeps_names in (False, True) for keeps_data in (False, True)]


class SimulatedDisk:
    """Records what happens below `base`, which survives every crash itself. `events` are system calls, in order."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch):
        self.base = str(base)
        self.events: list[tuple[Any, ...]] = []
        self._open: dict[int, int] = {}
        self._num_handles = 0
        for name in ("open", "close", "write", "fsync", "link", "replace", "unlink", "mkdir", "rmdir"):
            monkeypatch.setattr(os, name, self._recorded(name, getattr(os, name)))

    def num_syncs(self) -> int:
        return sum(event[0] == "fsync" for event in self.events)

    def after(self, crash: Crash, num_events: int | None = None) -> dict[str, bytes]:
        """The files, by path relative to the base, after a crash that follows the first `num_events` events."""
        root = _Directory()
        handles: dict[int, _File | _Directory] = {}
        for event in self.events[:num_events]:
            _apply(root, handles, event)
        return dict(_surviving(root, crash, ""))

    def _recorded(self, name: str, call: Any) -> Any:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            record = getattr(self, f"_note_{name}", self._note_names)
            record(name, args, result)
            return result

        return recorded

    def _inside(self, path: object) -> bool:
        return isinstance(path, str | Path) and f"{path}/".startswith(f"{self.base}/")

    def _note_open(self, _name: str, args: tuple[Any, ...], descriptor: int) -> None:
        if self._inside(args[0]):
            self._num_handles += 1
            self._open[descriptor] = self._num_handles
            self.events.append(("open", self._num_handles, self._relative(args[0])))

    def _note_close(self, _name: str, args: tuple[Any, ...], _result: None) -> None:
        self._open.pop(args[0], None)

    def _note_write(self, _name: str, args: tuple[Any, ...], written: int) -> None:
        if args[0] in self._open:
            self.events.append(("write", self._open[args[0]], bytes(args[1][:written])))

    def _note_fsync(self, _name: str, args: tuple[Any, ...], _result: None) -> None:
        if args[0] in self._open:
            self.events.append(("fsync", self._open[args[0]]))

    def _note_names(self, name: str, args: tuple[Any, ...], _result: None) -> None:
        if self._inside(args[0]):
            paths = args[:2] if name in ("link", "replace") else args[:1]
            self.events.append((name, *(self._relative(path) for path in paths)))

    def _relative(self, path: str | Path) -> str:
        return str(path)[len(self.base) :].strip("/")


def _find(root: _Directory, path: str) -> tuple[_Directory, str]:
    directory = root
    *parts, name = path.split("/")
    for part in parts:
        below = directory.names[part]
        assert isinstance(below, _Directory)
        directory = below
    return directory, name


def _apply(root: _Directory, handles: dict[int, "_File | _Directory"], event: tuple[Any, ...]) -> None:
    match event:
        case ("open", handle, ""):
            handles[handle] = root
        case ("open", handle, path):
            directory, name = _find(root, path)
            handles[handle] = directory.names.setdefault(name, _File())
        case ("write", handle, data):
            file = handles[handle]
            assert isinstance(file, _File)
            file.data += data
        case ("fsync", handle):
            node = handles[handle]
            if isinstance(node, _File):
                node.synced = node.data
            else:
                node.synced = dict(node.names)
        case ("mkdir", path):
            directory, name = _find(root, path)
            directory.names[name] = _Directory()
        case ("link" | "replace" as call, source, target):
            (from_directory, from_name), (to_directory, to_name) = _find(root, source), _find(root, target)
            to_directory.names[to_name] = from_directory.names[from_name]
            if call == "replace":
                del from_directory.names[from_name]
        case ("unlink" | "rmdir", path):
            directory, name = _find(root, path)
            del directory.names[name]
        case _:
            raise AssertionError(event)


def _surviving(directory: _Directory, crash: Crash, prefix: str) -> Iterator[tuple[str, bytes]]:
    # A name that was removed without a sync may be there again; keeping all unsynced changes removes it.
    for name, node in (directory.names if crash.keeps_names else directory.synced).items():
        if isinstance(node, _Directory):
            yield from _surviving(node, crash, f"{prefix}{name}/")
        else:
            yield prefix + name, node.data if crash.keeps_data else node.synced
