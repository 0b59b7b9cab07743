"""Opening data files by path or URL."""

import os
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


def open_parquet(url: str) -> Any:
    """A `pyarrow.parquet.ParquetFile`; use it as a context manager."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(open_binary(url))
