"""Opening data files by path or URL."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeAlias, Union, cast

import xxhash

from marin_corpus.errors import CorruptData

if TYPE_CHECKING:
    from upath import UPath

Location: TypeAlias = Union[str, os.PathLike[str], "UPath"]
"""A path, or a URL of any storage."""


def open_binary(url: str) -> IO[bytes]:
    """A file of any storage for reading; local files without fsspec's layers."""
    if "://" not in url:
        return open(url, "rb")
    import fsspec

    return cast("IO[bytes]", fsspec.open(url, "rb").open())


def read_range(url: str, begin: int, size_bytes: int, *, next: str) -> bytes:
    """`size_bytes` bytes of a file of ours. Raises `CorruptData`, with `next`, if it is missing or ends before."""
    try:
        with open_binary(url) as file:
            file.seek(begin)
            data = file.read(size_bytes)
    except FileNotFoundError as error:
        raise CorruptData(f"{url} is missing", why="its manifest names it", next=next) from error
    if len(data) != size_bytes:
        raise CorruptData(
            f"{url} ends before byte {begin + size_bytes:,}", why="its manifest says it is longer", next=next
        )
    return data


def read_whole(url: str, size_bytes: int, digest: str | None = None, *, next: str) -> bytes:
    """All of a file of ours.

    Args:
        url: where it is.
        size_bytes: what its manifest says.
        digest: its xxh3-128 in 32 hex digits, if the manifest says that.
        next: what to do about a file that is not the one.

    Raises:
        CorruptData: it is missing, or not the file that the manifest names.
    """
    try:
        with open_binary(url) as file:
            data = file.read()
    except FileNotFoundError as error:
        raise CorruptData(f"{url} is missing", why="its manifest names it", next=next) from error
    if len(data) != size_bytes:
        raise CorruptData(f"{url} has {len(data):,} bytes", why=f"its manifest says {size_bytes:,}", next=next)
    if digest is not None and xxhash.xxh3_128_hexdigest(data) != digest:
        raise CorruptData(f"{url} was changed", why="its digest is not that of its manifest", next=next)
    return data


@contextmanager
def open_parquet(url: str) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`, as a context manager. Checksums of pages are verified where there are some."""
    import pyarrow.parquet as pq

    # Both are closed: a ParquetFile leaves a file that it was given open.
    with open_binary(url) as file, pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        yield parquet
