"""The format of a token store, and its manifest.

A token store is a directory. `manifest.json`, written last, describes everything beside it, so that a store of any
number of parts opens with one read. For each part, numbered from `part-00000`:

* `part-00000.tok`: tokens, raw little-endian integers of 16 bits (if all ids are below 65,536) or 32 bits, documents
  back to back, each closed by the end-of-sequence token.
* `part-00000.idx`: for each document its end, as a little-endian 64-bit integer: an offset in tokens from the beginning
  of the part, after the document's last token. The last one is the part's number of tokens.
* `part-00000.ids`: for each document the 16 bytes of its id (xxh3-128 of its text, as in the documents' `id` column).
* `part-00000.mask` (all parts or none): for each token a byte, its weight in the loss times 255.

A *global* offset or document number counts through the parts in the manifest's order. The manifest is a JSON object:

* `kind` ("tokens"), `format` (1), `dtype` ("uint16" or "uint32"), `vocab_size`, `eos_id`, `has_mask`;
* `tokenizer`: digest of the tokenizer that made the ids;
* `num_tokens`, `num_documents`, `text_bytes` (UTF-8 bytes of the documents' text, for bits per byte);
* `sources`: number of tokens by the documents' source;
* `document_tokens`: how long documents are, in tokens: `min`, `max`, `mean`, quantiles `p01` to `p99` (exact below 32,
  else rounded down by at most 1/16), and a `histogram`: by k = 1, 2, 4... the number of documents of k to 2k - 1;
* `parts`: for each `name`, `num_tokens`, `num_documents` and `files`: size in bytes and xxh3-128 by suffix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from marin_corpus.errors import CorruptData
from marin_corpus.manifest import encode_manifest, parse_manifest

MANIFEST = "manifest.json"
KIND = "tokens"
ENDS = np.dtype("<u8")
"""Type of the integers in `.idx` files."""
ID_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """What a part's file must be."""

    size_bytes: int
    digest: str
    """xxh3-128 of the content, 32 hex digits."""


@dataclass(frozen=True, kw_only=True)
class StorePart:
    """One part of a store. `files` by suffix (".tok")."""

    name: str
    num_tokens: int
    num_documents: int
    files: Mapping[str, FileEntry]


@dataclass(frozen=True, kw_only=True)
class StoreManifest:
    """A store's `manifest.json`; the fields are those of this module's description."""

    dtype: str
    vocab_size: int
    eos_id: int
    has_mask: bool
    tokenizer: str
    num_tokens: int
    num_documents: int
    text_bytes: int
    sources: Mapping[str, int]
    document_tokens: Mapping[str, Any]
    parts: Sequence[StorePart]

    def encode(self) -> bytes:
        """The file's bytes."""
        return encode_manifest(KIND, asdict(self))

    @classmethod
    def parse(cls, data: bytes, url: str) -> "StoreManifest":
        """Read and check what `encode` made. Raises `Mismatch`, `CorruptData`."""
        fields = parse_manifest(data, url, kind=KIND)
        del fields["kind"], fields["format"]
        try:
            parts = tuple(_part(part) for part in fields.pop("parts"))
            manifest = cls(**fields, parts=parts)
            manifest._check()
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise CorruptData(
                f"{url} is not as this library writes it", why=repr(error), next="tokenize the documents again"
            ) from error
        return manifest

    def _check(self) -> None:
        width = np.dtype(self.dtype).itemsize
        if self.dtype not in ("uint16", "uint32"):
            raise ValueError(f"dtype {self.dtype!r} is not uint16 or uint32")
        for part in self.parts:
            sizes = {".tok": part.num_tokens * width, ".idx": part.num_documents * ENDS.itemsize}
            sizes[".ids"] = part.num_documents * ID_BYTES
            if self.has_mask:
                sizes[".mask"] = part.num_tokens
            found = {suffix: file.size_bytes for suffix, file in part.files.items()}
            if found != sizes:
                raise ValueError(f"{part.name} has sizes {found}, its counts ask for {sizes}")
        if sum(part.num_tokens for part in self.parts) != self.num_tokens:
            raise ValueError(f"the parts do not sum up to num_tokens={self.num_tokens}")
        if sum(part.num_documents for part in self.parts) != self.num_documents:
            raise ValueError(f"the parts do not sum up to num_documents={self.num_documents}")


def _part(fields: Mapping[str, Any]) -> StorePart:
    files = {suffix: FileEntry(**file) for suffix, file in fields["files"].items()}
    return StorePart(**{**fields, "files": files})
