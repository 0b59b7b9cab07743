"""Opening data files by path or URL."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeAlias, Union, cast

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


@contextmanager
def open_parquet(url: str) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`, as a context manager."""
    import pyarrow.parquet as pq

    # Both are closed: a ParquetFile leaves a file that it was given open.
    with open_binary(url) as file, pq.ParquetFile(file) as parquet:
        yield parquet
