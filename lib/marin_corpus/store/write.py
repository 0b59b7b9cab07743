"""Writing token stores: parts by `TokenWriter`, then the manifest by `write_store_manifest`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from marin_corpus.errors import BadInput
from marin_corpus.output import Output
from marin_corpus.store.manifest import ENDS, MANIFEST, FileEntry, StoreManifest, StorePart

_QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
_NO_LENGTHS = (1 << 62, 0)
_EXACT_BITS = 5
"""Lengths are counted by their leading bits: all of those below 2**5."""


def store_dtype(vocab_size: int) -> np.dtype[Any]:
    """The narrowest type that holds all ids."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class TokenWriter:
    """Writes the files of one part beside `path` (".../part-00000"); use it as a context manager.

    `summary()` after that is JSON for `write_store_manifest`. The bytes depend on the documents alone.
    """

    def __init__(self, path: Path, *, vocab_size: int, has_mask: bool) -> None:
        self._path = path
        self._vocab_size = vocab_size
        self._dtype = store_dtype(vocab_size)
        self._suffixes = (".tok", ".idx", ".ids", *((".mask",) if has_mask else ()))
        self._files: dict[str, IO[bytes]] = {}
        self._digests = {suffix: xxhash.xxh3_128() for suffix in self._suffixes}
        self._sizes = dict.fromkeys(self._suffixes, 0)
        self._num_tokens = 0
        self._num_documents = 0
        self._text_bytes = 0
        self._sources: Counter[str] = Counter()
        self._lengths: Counter[int] = Counter()
        self._shortest, self._longest = _NO_LENGTHS
        self._stack = ExitStack()

    def __enter__(self) -> "TokenWriter":
        for suffix in self._suffixes:
            file = open(self._path.with_name(self._path.name + suffix), "wb", buffering=1 << 20)
            self._files[suffix] = self._stack.enter_context(file)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(
        self,
        tokens: NDArray[np.integer[Any]],
        lengths: NDArray[np.int64],
        ids: Sequence[str],
        sources: Sequence[str],
        *,
        text_bytes: int,
        mask: NDArray[np.uint8] | None = None,
    ) -> None:
        """Append documents.

        Args:
            tokens: of all of them, back to back, each with its end-of-sequence token.
            lengths: tokens of each, at least 1.
            ids: 32 hex digits of each.
            sources: where each came from.
            text_bytes: UTF-8 bytes of their text.
            mask: weight in the loss times 255 of each token, if the store has a mask.

        Raises:
            BadInput: a token is not in the vocabulary.
        """
        assert (mask is not None) == (".mask" in self._suffixes)
        assert len(tokens) == lengths.sum()
        assert len(lengths) == len(ids) == len(sources)
        if not len(lengths):
            return
        if int(tokens.max()) >= self._vocab_size or int(tokens.min()) < 0:
            raise BadInput(
                f"the tokenizer gave the id {int(tokens.max())}, but says that it has {self._vocab_size} tokens",
                next="check `vocab_size` of the tokenizer: it counts added and special tokens too",
            )
        ends = self._num_tokens + np.cumsum(lengths)
        self._write(".tok", tokens.astype(self._dtype, copy=False))
        self._write(".idx", ends.astype(ENDS, copy=False))
        self._write(".ids", np.frombuffer(bytes.fromhex("".join(ids)), np.uint8))
        if mask is not None:
            assert len(mask) == len(tokens)
            self._write(".mask", mask)
        self._num_tokens += len(tokens)
        self._num_documents += len(ids)
        self._text_bytes += text_bytes
        by_length, counts = np.unique(_rounded(lengths), return_counts=True)
        self._lengths.update(dict(zip(by_length.tolist(), counts.tolist(), strict=True)))
        self._shortest = min(self._shortest, int(lengths.min()))
        self._longest = max(self._longest, int(lengths.max()))
        for source, length in zip(sources, lengths.tolist(), strict=True):
            self._sources[source] += length

    def _write(self, suffix: str, data: NDArray[Any]) -> None:
        data = np.ascontiguousarray(data)
        self._files[suffix].write(data.data)
        self._digests[suffix].update(data.data)
        self._sizes[suffix] += data.nbytes

    def summary(self) -> dict[str, Any]:
        """What the manifest says of this part, and what it sums up over parts."""
        return {
            "name": self._path.name,
            "num_tokens": self._num_tokens,
            "num_documents": self._num_documents,
            "files": {
                suffix: {"size_bytes": self._sizes[suffix], "digest": self._digests[suffix].hexdigest()}
                for suffix in self._suffixes
            },
            "text_bytes": self._text_bytes,
            "sources": dict(sorted(self._sources.items())),
            "lengths": [[length, count] for length, count in sorted(self._lengths.items())],
            "shortest_longest": [self._shortest, self._longest],
        }


def write_store_manifest(
    output: Output,
    folder: str,
    summaries: Sequence[Mapping[str, Any]],
    *,
    tokenizer: str,
    vocab_size: int,
    eos_id: int,
    has_mask: bool,
) -> StoreManifest:
    """Write `<folder>/manifest.json` from the writers' summaries in order."""
    sources: Counter[str] = Counter()
    lengths: Counter[int] = Counter()
    shortest, longest = _NO_LENGTHS
    for summary in summaries:
        sources.update(summary["sources"])
        lengths.update(dict(summary["lengths"]))
        shortest = min(shortest, summary["shortest_longest"][0])
        longest = max(longest, summary["shortest_longest"][1])
    parts = tuple(
        StorePart(
            name=summary["name"],
            num_tokens=summary["num_tokens"],
            num_documents=summary["num_documents"],
            files={suffix: FileEntry(**file) for suffix, file in summary["files"].items()},
        )
        for summary in summaries
    )
    num_tokens = sum(part.num_tokens for part in parts)
    manifest = StoreManifest(
        dtype=store_dtype(vocab_size).name,
        vocab_size=vocab_size,
        eos_id=eos_id,
        has_mask=has_mask,
        tokenizer=tokenizer,
        num_tokens=num_tokens,
        num_documents=sum(part.num_documents for part in parts),
        text_bytes=sum(summary["text_bytes"] for summary in summaries),
        sources=dict(sorted(sources.items())),
        document_tokens={"min": shortest, "max": longest, **_describe(lengths, num_tokens)},
        parts=parts,
    )
    output.write_file(f"{folder}/{MANIFEST}", manifest.encode())
    return manifest


def _rounded(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths with all but their `_EXACT_BITS` leading bits cleared; exact in float64, whose mantissa has 53."""
    _, exponents = np.frexp(lengths.astype(np.float64))
    shifts = np.maximum(exponents.astype(np.int64) - _EXACT_BITS, 0)
    return (lengths >> shifts) << shifts


def _describe(lengths: Mapping[int, int], num_tokens: int) -> dict[str, Any]:
    """Statistics of documents' lengths in tokens, from counts by rounded length: no order of documents matters."""
    values = np.array(sorted(lengths), np.int64)
    counts = np.array([lengths[value] for value in values.tolist()], np.int64)
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    quantiles = {
        f"p{round(100 * quantile):02d}": int(values[np.searchsorted(cumulative, quantile * total)])
        for quantile in _QUANTILES
    }
    powers: Counter[int] = Counter()
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        powers[1 << (value.bit_length() - 1)] += count
    histogram = {str(power): powers[power] for power in sorted(powers)}
    return {"mean": round(num_tokens / total, 3), **quantiles, "histogram": histogram}
