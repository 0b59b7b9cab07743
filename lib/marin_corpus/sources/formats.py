"""Formats of input files, told from their names."""

from typing import Literal, TypeAlias

from marin_corpus.errors import BadInput

Format: TypeAlias = Literal["jsonl", "parquet", "csv", "txt", "html"]
Compression: TypeAlias = Literal["", "gzip", "zstd"]

_FORMATS: dict[str, Format] = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "csv": "csv",
    "txt": "txt",
    "html": "html",
    "htm": "html",
}
_COMPRESSIONS: dict[str, Compression] = {"gz": "gzip", "zst": "zstd"}
WHOLE_FILE_FORMATS = frozenset({"txt", "html"})
"""A file of these is one document and has no fields."""


def recognise(name: str, given: Format | None = None) -> tuple[Format, Compression]:
    """Format and compression of a file, from the suffixes of its name; `given` overrules the format's suffix.

    Raises:
        BadInput: the suffix is not known.
    """
    *stems, last = name.lower().rpartition("/")[2].split(".")
    compression = _COMPRESSIONS.get(last, "")
    suffix = stems[-1] if compression and stems else last
    format = given or _FORMATS.get(suffix if stems else "")
    if format is None:
        known = ", ".join(f".{suffix}" for suffix in _FORMATS)
        raise BadInput(
            f"{name}: its suffix does not say what it holds",
            why=f"known are {known}, each but .parquet also with .gz or .zst behind it",
            next='say what it is, such as format="jsonl" (one JSON object per line), or leave it out of the files',
        )
    if format == "parquet" and compression:
        raise BadInput(f"{name}: compressed parquet cannot be read in parts", next="decompress it: parquet is compact")
    return format, compression
