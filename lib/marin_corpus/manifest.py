"""Manifests: one small JSON file at the root of a data set, that says what its parts hold."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from marin_corpus.errors import CorruptData, Mismatch

if TYPE_CHECKING:
    from upath import UPath

P = TypeVar("P")


def encode_manifest(kind: str, fields: Mapping[str, Any], *, format: int = 1) -> bytes:
    """The bytes of a manifest; equal fields give equal bytes."""
    return (json.dumps({"kind": kind, "format": format, **fields}, indent=1, ensure_ascii=False) + "\n").encode()


def read_manifest(folder: "UPath", name: str, *, kind: str, format: int = 1) -> dict[str, Any]:
    """Read `folder / name` and check what it is.

    Raises:
        Mismatch: there is no such file, or it is the manifest of something else.
        CorruptData: it is no JSON object.
    """
    try:
        data = (folder / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Mismatch(
            f"{folder} holds no {kind}: it has no {name}",
            next=f"give the directory that a step which makes {kind} wrote",
        ) from error
    return parse_manifest(data, str(folder / name), kind=kind, format=format)


def parse_manifest(data: bytes, url: str, *, kind: str, format: int = 1) -> dict[str, Any]:
    """The fields of a manifest that was read from `url`, checked as `read_manifest` does."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise CorruptData(f"{url} is not JSON: {error}", next="make the data again") from error
    if not isinstance(fields, dict) or fields.get("kind") != kind:
        raise Mismatch(f"{url} is no manifest of {kind}")
    if fields.get("format") != format:
        raise Mismatch(f"{url} has format {fields.get('format')}; this version reads format {format}")
    return fields


def parts_of(fields: Mapping[str, Any], folder: "UPath", part: Callable[..., P]) -> tuple[P, ...]:
    """The entries of `parts` in a manifest's fields, each with the `url` of its file. Raises `CorruptData`."""
    try:
        return tuple(part(url=str(folder / entry["name"]), **entry) for entry in fields["parts"])
    except (KeyError, TypeError) as error:
        raise CorruptData(
            f"the manifest of {fields['kind']} in {folder} is not as this library writes it",
            why=f"its parts: {error!r}",
            next="make the data again",
        ) from error
