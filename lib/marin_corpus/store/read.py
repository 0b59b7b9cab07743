"""`TokenStore`: reading tokens, loss weights and documents of a token store, here or on any storage.

The format is described in `marin_corpus.store.manifest`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from marin_corpus.errors import CorruptData, Mismatch
from marin_corpus.files import Location
from marin_corpus.store.local import LocalFiles
from marin_corpus.store.manifest import ENDS, ID_BYTES, KIND, MANIFEST, StoreManifest
from marin_corpus.store.ranges import open_ranges
from marin_corpus.store.remote import RemoteFiles
from marin_corpus.store.windows import Integers, Stretches, plan_windows

_VERIFY_BYTES = 8 << 20
_U8 = np.dtype(np.uint8)
_ID = np.dtype((np.void, ID_BYTES))


class _Files(Protocol):
    def url(self, part: int, suffix: str) -> str: ...

    def read(
        self, suffix: str, dtype: np.dtype[Any], stretches: Stretches, num_rows: int, length: int
    ) -> NDArray[Any]: ...

    def read_whole(self, suffix: str, dtype: np.dtype[Any], parts: Sequence[int]) -> list[NDArray[Any]]: ...

    def read_range(self, part: int, suffix: str, start: int, stop: int) -> bytes: ...


class TokenStore:
    """One token store. Opening reads the manifest and nothing else; safe to use from several threads.

    Everything that reads raises `CorruptData` for a file that is missing or shorter than the manifest says.
    """

    def __init__(self, url: str, manifest: StoreManifest, *, cache_bytes: int) -> None:
        """Use `open`."""
        self.url = url
        self.manifest = manifest
        self.num_tokens = manifest.num_tokens
        self.num_documents = manifest.num_documents
        self.dtype: np.dtype[Any] = np.dtype(manifest.dtype).newbyteorder("<")
        self.eos_id = manifest.eos_id
        self.vocab_size = manifest.vocab_size
        self.has_mask = manifest.has_mask
        self.tokenizer = manifest.tokenizer
        """Digest of the tokenizer that made the ids."""
        self.sources = dict(manifest.sources)
        """Number of tokens by source."""
        self.text_bytes = manifest.text_bytes
        self._cache_bytes = cache_bytes
        local = _local_folder(url)
        self.is_remote = local is None
        self._files: _Files = (
            RemoteFiles(url, open_ranges(url), manifest.parts, cache_bytes=cache_bytes)
            if local is None
            else LocalFiles(local, manifest.parts)
        )
        self._token_ends = np.cumsum([part.num_tokens for part in manifest.parts], dtype=np.int64)
        self._document_ends = np.cumsum([part.num_documents for part in manifest.parts], dtype=np.int64)
        self._ends: Integers | None = None

    @classmethod
    def open(cls, url: Location, *, tokenizer: str | None = None, cache_bytes: int = 256 << 20) -> "TokenStore":
        """Read the manifest below a path or URL.

        Args:
            url: the store's directory.
            tokenizer: digest of the tokenizer whose ids are wanted; None for any.
            cache_bytes: of a remote store, bytes kept in memory.

        Raises:
            Mismatch: there is no store, or another tokenizer made it.
            CorruptData: the manifest is not as this library writes it.
        """
        text = str(url)
        local = _local_folder(text)
        try:
            data = open_ranges(text).read(MANIFEST) if local is None else (local / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Mismatch(
                f"{text} holds no token store: it has no {MANIFEST}",
                next="give the directory of one split, such as <output of tokenize>/train",
            ) from error
        manifest = StoreManifest.parse(data, f"{text}/{MANIFEST}")
        if tokenizer is not None and tokenizer != manifest.tokenizer:
            raise Mismatch(
                f"the token store {text} was made by another tokenizer",
                why=f"its {KIND} are those of {manifest.tokenizer}, wanted are those of {tokenizer}",
                next="tokenize the documents with this tokenizer, or load the one that made the store",
            )
        return cls(text, manifest, cache_bytes=cache_bytes)

    def __repr__(self) -> str:
        return f"TokenStore({self.url!r}, num_tokens={self.num_tokens}, num_documents={self.num_documents})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Maps, threads and caches stay behind when a loader sends the store to another process.
        return (_rebuild, (self.url, self.manifest, self._cache_bytes))

    def read_windows(self, starts: ArrayLike, length: int) -> NDArray[Any]:
        """[n, length] tokens of the store's `dtype`, from each global offset in `starts` on.

        Windows may repeat, overlap and cross documents and parts. Raises IndexError for one beyond the end.
        """
        starts, stretches = self._plan(starts, length)
        return self._files.read(".tok", self.dtype, stretches, len(starts), length)

    def read_weights(self, starts: ArrayLike, length: int) -> NDArray[np.float32]:
        """[n, length] loss weights in [0, 1] of the same windows; all 1 if the store has no mask."""
        starts, stretches = self._plan(starts, length)
        if not self.has_mask:
            return np.ones((len(starts), length), np.float32)
        return self._files.read(".mask", _U8, stretches, len(starts), length).astype(np.float32) / np.float32(255)

    def prefetch(self, starts: ArrayLike, length: int) -> None:
        """Remote stores: begin to fetch these windows, and return. Local ones: nothing, the system reads ahead."""
        if isinstance(self._files, RemoteFiles):
            _, stretches = self._plan(starts, length)
            self._files.prefetch(".tok", self.dtype, stretches)
            if self.has_mask:
                self._files.prefetch(".mask", _U8, stretches)

    def document_ends(self) -> Integers:
        """[num_documents] global offset after each document's last token, read once and kept: 8 bytes a document."""
        if self._ends is None:
            ends = np.empty(self.num_documents, np.int64)
            parts = range(len(self.manifest.parts))
            document = 0
            for part, found in zip(parts, self._document_ends_of(parts), strict=True):
                np.add(found, self._token_start(part), out=ends[document : document + len(found)], casting="unsafe")
                document += len(found)
            self._ends = ends
        return self._ends

    def document_of(self, offsets: ArrayLike) -> Integers:
        """[n] number of the document in which each global token offset lies; reads the index of those parts only."""
        offsets = np.asarray(offsets, np.int64)
        if len(offsets) and (int(offsets.min()) < 0 or int(offsets.max()) >= self.num_tokens):
            raise IndexError(f"token offsets must lie in [0, {self.num_tokens})")
        if self._ends is not None:
            return np.searchsorted(self._ends, offsets, side="right")
        part_of = np.searchsorted(self._token_ends, offsets, side="right")
        parts = np.unique(part_of).tolist()
        documents = np.empty(len(offsets), np.int64)
        for part, ends in zip(parts, self._document_ends_of(parts), strict=True):
            rows = part_of == part
            within = (offsets[rows] - self._token_start(part)).astype(ENDS)
            documents[rows] = np.searchsorted(ends, within, side="right") + self._document_start(part)
        return documents

    def _document_ends_of(self, parts: Sequence[int]) -> list[NDArray[Any]]:
        """For each of these parts the offset in it after each document. Changed ones would ask for any memory."""
        indices = self._files.read_whole(".idx", ENDS, parts)
        for part, ends in zip(parts, indices, strict=True):
            if xxhash.xxh3_128_hexdigest(ends.data) != self.manifest.parts[part].files[".idx"].digest:
                raise CorruptData(
                    f"{self._files.url(part, '.idx')} was changed",
                    why="its digest is not that of the store's manifest",
                    next="restore it, or tokenize again",
                )
        return indices

    def document_ids(self, documents: ArrayLike) -> list[str]:
        """[n] ids (32 hex digits) of documents by their global numbers."""
        documents = np.asarray(documents, np.int64)
        stretches = plan_windows(self._document_ends, documents, 1)
        return [bytes(row[0]).hex() for row in self._files.read(".ids", _ID, stretches, len(documents), 1)]

    def verify(self) -> None:
        """Compare every file with the manifest. Raises `CorruptData` that names the files which differ."""
        problems = list(self._problems())
        if problems:
            raise CorruptData(
                f"{self.url}: {len(problems)} files are not those that the manifest names",
                why="; ".join(problems[:10]),
                next="restore them, or tokenize again",
            )

    def _problems(self) -> Iterator[str]:
        for number, part in enumerate(self.manifest.parts):
            for suffix, file in part.files.items():
                digest = xxhash.xxh3_128()
                try:
                    for start in range(0, file.size_bytes, _VERIFY_BYTES):
                        stop = min(start + _VERIFY_BYTES, file.size_bytes)
                        digest.update(self._files.read_range(number, suffix, start, stop))
                except CorruptData as error:
                    yield f"{error.what} ({error.why})"
                    continue
                if digest.hexdigest() != file.digest:
                    yield f"{self._files.url(number, suffix)} has other bytes"

    def _plan(self, starts: ArrayLike, length: int) -> tuple[Integers, Stretches]:
        starts = np.asarray(starts, np.int64)
        return starts, plan_windows(self._token_ends, starts, length)

    def _token_start(self, part: int) -> int:
        return int(self._token_ends[part - 1]) if part else 0

    def _document_start(self, part: int) -> int:
        return int(self._document_ends[part - 1]) if part else 0


def _rebuild(url: str, manifest: StoreManifest, cache_bytes: int) -> TokenStore:
    return TokenStore(url, manifest, cache_bytes=cache_bytes)


def _local_folder(url: str) -> Path | None:
    scheme, separator, _ = url.partition("://")
    if not separator:
        return Path(url)
    return Path(unquote(urlsplit(url).path)) if scheme in ("file", "local") else None
