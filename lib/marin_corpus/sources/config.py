"""`ReadConfig`: how input files become documents."""

from dataclasses import dataclass
from typing import Literal

from marin_corpus.errors import BadConfig
from marin_corpus.sources.formats import Format

POSITION_NAMES = ("file", "line", "offset", "row")
"""What `meta` says by itself."""


@dataclass(frozen=True, kw_only=True)
class ReadConfig:
    """How records become documents.

    A field is named by its key, or by a dotted path into nested objects; a key that itself holds the dots goes first.
    """

    source: str
    """Name of the corpus, which each document carries."""
    format: Format | None = None
    """None: each file's suffix says it."""
    text_field: str = "text"
    """Field that holds the text, in jsonl, parquet and csv."""
    json_fields: tuple[str, ...] = ()
    """Instead of `text_field`: the text is a JSON object (sorted keys, no blanks) of these fields, such as
    ("messages",) or ("prompt", "completion")."""
    meta_fields: tuple[str, ...] = ()
    """Further fields to keep in `meta`, under these names. Records may lack them; NaN and infinities become null."""
    encoding: str = "utf-8"
    """Of everything but parquet. A byte order mark at the beginning of UTF-8 is no part of the text."""
    on_bad_record: Literal["error", "skip"] = "error"
    """"skip" leaves bad records out, counts them and keeps samples. Damaged files are always errors."""
    max_record_bytes: int = 32 << 20
    """Longer lines, and longer files of one document, are bad records; a record is held in memory several times."""

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise BadConfig(f"source={self.source!r} must name the corpus")
        if self.json_fields and self.text_field != "text":
            raise BadConfig(
                f"text_field={self.text_field!r} and json_fields={self.json_fields!r} exclude each other",
                next="give one of them: either is the whole text",
            )
        for field in ("json_fields", "meta_fields"):
            names: tuple[str, ...] = getattr(self, field)
            if len(set(names)) < len(names) or not all(names):
                raise BadConfig(f"{field}={names!r} must be different, non-empty names")
        if not self.text_field:
            raise BadConfig("text_field='' must be the name of a field")
        taken = [name for name in self.meta_fields if name in POSITION_NAMES]
        if taken:
            raise BadConfig(
                f"meta_fields={self.meta_fields!r} cannot hold {taken[0]!r}: meta says by it where the record lay"
            )
        if self.on_bad_record not in ("error", "skip"):
            raise BadConfig(f'on_bad_record={self.on_bad_record!r} must be "error" or "skip"')
        if not 1 <= self.max_record_bytes <= 1 << 30:
            raise BadConfig(f"max_record_bytes={self.max_record_bytes} must be from 1 to {1 << 30} (1 GiB)")
        try:
            self.splits_lines  # noqa: B018
        except (LookupError, ValueError) as error:
            raise BadConfig(f"encoding={self.encoding!r}: {error}", next='use a name such as "utf-8"') from error

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields without which there is no text."""
        return self.json_fields or (self.text_field,)

    @property
    def splits_lines(self) -> bool:
        """Whether a byte 10 is always a line end, so that lines can be found before they are decoded."""
        return "\n".encode(self.encoding) == b"\n"
