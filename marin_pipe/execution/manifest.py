"""Committed files against what storage holds now."""

from collections.abc import Iterable, Mapping

from marin_storage import Store


def sizes_below(store: Store, prefix: str) -> dict[str, int]:
    """Size in bytes of every file below `prefix`, by its path relative to it."""
    start = len(prefix) + 1 if prefix else 0
    return {entry.key[start:]: entry.size_bytes for entry in store.list_files(prefix)}


def size_problem(present: Mapping[str, int], expected: Iterable[tuple[str, int]]) -> tuple[str, str] | None:
    """The first file of a manifest that is not there with its size, and what is wrong with it."""
    for path, size in expected:
        found = present.get(path)
        if found != size:
            return path, "is missing" if found is None else f"has {found} bytes, its record says {size}"
    return None
