"""From documents to token stores: `tokenize_documents`, and `tokenize_chat` for conversations with loss weights.

An output holds the store `train` and, if documents are held out, the store `validation`. Each part of documents becomes
one part of each store.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marin_corpus.documents.read import DocumentPart, DocumentSet, read_batches
from marin_corpus.errors import BadConfig, BadInput, Mismatch
from marin_corpus.files import Location
from marin_corpus.output import Output
from marin_corpus.store.holdout import check_fraction, is_validation
from marin_corpus.store.manifest import StoreManifest
from marin_corpus.store.write import TokenWriter, write_store_manifest
from marin_corpus.tokenizers.chat import encode_chat_document
from marin_corpus.tokenizers.load import load_tokenizer
from marin_corpus.tokenizers.templates import check_special_tokens

if TYPE_CHECKING:
    from marin_corpus.tokenizers.tokenizer import Tokenizer

Split = Literal["train", "validation"]
_BATCH_DOCUMENTS = 512
_BATCH_BYTES = 2 << 20
"""Text given to the tokenizer at once, which bounds what its results take."""
_COLUMNS = ("id", "text", "source")


@dataclass(frozen=True, kw_only=True)
class TokenizeConfig:
    """How documents become tokens."""

    validation_fraction: float = 0.0
    """Share of the documents, by hash of their ids, that go to the store `validation`."""
    add_bos: bool = False
    """Begin each document with the tokenizer's beginning-of-sequence token."""

    def __post_init__(self) -> None:
        check_fraction(self.validation_fraction)

    @property
    def splits(self) -> tuple[Split, ...]:
        """Names of the stores."""
        return ("train", "validation") if self.validation_fraction else ("train",)


@dataclass(frozen=True, kw_only=True)
class _Chat:
    template: str | None
    """None if there is none, which prompts with completions do not need."""


@dataclass(frozen=True, kw_only=True)
class _TokenizeJob:
    part: DocumentPart
    tokenizer: str
    digest: str
    split: Split
    config: TokenizeConfig
    chat: _Chat | None
    """Documents are conversations; None: they are plain text."""


def tokenize_documents(
    documents: DocumentSet, tokenizer: Location, config: TokenizeConfig, output: Output
) -> dict[Split, StoreManifest]:
    """Tokenize documents into one store for each split; returns their manifests.

    A worker holds one row group of documents (16 MB of text) and the tokens of one batch (2 MB of text).

    Args:
        documents: what to tokenize.
        tokenizer: folder of the tokenizer.
        config: what to hold out, and what to add.
        output: where the stores go.

    Raises:
        BadInput: there are no documents, or a split would have none.
        BadConfig: the tokenizer lacks a token that is asked for.
    """
    loaded = _load(str(tokenizer))
    if config.add_bos and loaded.bos_id is None:
        raise BadConfig(f"add_bos=True, but the tokenizer {tokenizer} has no beginning-of-sequence token")
    return _tokenize(documents, str(tokenizer), loaded, config, output, chat=None)


def tokenize_chat(
    documents: DocumentSet,
    tokenizer: Location,
    config: TokenizeConfig,
    output: Output,
    *,
    chat_template: str | None = None,
) -> dict[Split, StoreManifest]:
    """Tokenize conversations as `tokenize_documents` does text, into stores with loss weights.

    A document's closing end-of-sequence token bears no loss, unless the conversation ends with it.

    Args:
        documents: the text of each is `{"messages": [...]}` or `{"prompt": "...", "completion": "..."}` in JSON.
        tokenizer: folder of the tokenizer.
        config: what to hold out. `add_bos` must be off: templates write that token themselves.
        output: where the stores go.
        chat_template: a Jinja template for messages; None for the tokenizer's own.

    Raises:
        BadInput: as `tokenize_documents`; or a document is no conversation.
        BadConfig: there is no template, or it does not fit the tokenizer.
    """
    loaded = _load(str(tokenizer))
    if config.add_bos:
        raise BadConfig("add_bos=True is not for conversations", why="their template writes that token itself")
    if chat_template is not None:
        check_special_tokens(chat_template, list(loaded.special_tokens))
    chat = _Chat(template=loaded.chat_template if chat_template is None else chat_template)
    return _tokenize(documents, str(tokenizer), loaded, config, output, chat=chat)


def _tokenize(
    documents: DocumentSet,
    folder: str,
    tokenizer: "Tokenizer",
    config: TokenizeConfig,
    output: Output,
    *,
    chat: _Chat | None,
) -> dict[Split, StoreManifest]:
    if tokenizer.eos_id is None:
        raise BadConfig(
            f"the tokenizer {folder} has no end-of-sequence token",
            why="each document of a token store is closed by one",
            next="name one in its tokenizer_config.json as eos_token",
        )
    if not documents.num_documents:
        raise BadInput(
            f"{documents.url} holds no documents", why="a token store cannot be empty", next="check what filled it"
        )
    shards = {
        f"{split}/part-{number:05d}": _TokenizeJob(
            part=part,
            tokenizer=folder,
            digest=tokenizer.digest,
            split=split,
            config=config,
            chat=chat,
        )
        for split in config.splits
        for number, part in enumerate(documents.parts)
    }
    summaries = output.run_shards(shards, _tokenize_shard)
    by_split = {
        split: [summary for name, summary in summaries.items() if name.startswith(f"{split}/")]
        for split in config.splits
    }
    for split, found in by_split.items():
        if not any(summary["num_documents"] for summary in found):
            raise BadInput(
                f"no document of {documents.url} belongs to the split {split!r}",
                why=f"there are {documents.num_documents}, of which validation_fraction={config.validation_fraction:g} "
                "is held out",
                next="choose another fraction, or give more documents",
            )
    return {
        split: write_store_manifest(
            output,
            split,
            found,
            tokenizer=tokenizer.digest,
            vocab_size=tokenizer.vocab_size,
            eos_id=tokenizer.eos_id,
            has_mask=chat is not None,
        )
        for split, found in by_split.items()
    }


_loaded: "dict[str, Tokenizer]" = {}
"""By digest, the last tokenizer of this process: loading one takes as long as tokenizing some MB."""


def _load(folder: str) -> "Tokenizer":
    tokenizer = load_tokenizer(folder)
    _loaded.clear()
    _loaded[tokenizer.digest] = tokenizer
    return tokenizer


def _tokenize_shard(job: _TokenizeJob, path: Path) -> dict[str, Any]:
    tokenizer = _loaded.get(job.digest) or _load(job.tokenizer)
    if tokenizer.digest != job.digest:
        raise Mismatch(f"the tokenizer {job.tokenizer} was changed while documents were being tokenized")
    writer = TokenWriter(path, vocab_size=tokenizer.vocab_size, has_mask=job.chat is not None)
    with writer:
        for batch in _batches(job):
            if job.chat is None:
                encoded, mask = tokenizer.encode_batch(batch.texts), None
                tokens, lengths = _join(encoded, tokenizer, add_bos=job.config.add_bos)
            else:
                tokens, lengths, mask = _encode_chats(batch, tokenizer, job.chat, job.part.url)
            writer.add(tokens, lengths, batch.ids, batch.sources, text_bytes=batch.text_bytes, mask=mask)
    return writer.summary()


def _encode_chats(
    batch: "_Batch", tokenizer: "Tokenizer", chat: _Chat, url: str
) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint8]]:
    """The conversations back to back, each closed by the end-of-sequence token; their lengths, and loss weights."""
    assert tokenizer.eos_id is not None
    tokens, masks = [], []
    for id, text in zip(batch.ids, batch.texts, strict=True):
        try:
            ids, mask = encode_chat_document(tokenizer, text, chat.template)
        except BadInput as error:
            raise BadInput(
                f"document {id} of {url} is not a conversation that can be learned from: {error.what}",
                why=error.why,
                next=error.next,
            ) from error
        weights = mask * np.uint8(255)
        if ids[-1] != tokenizer.eos_id:
            ids, weights = np.append(ids, np.uint32(tokenizer.eos_id)), np.append(weights, np.uint8(0))
        tokens.append(ids)
        masks.append(weights)
    lengths = np.fromiter((len(ids) for ids in tokens), np.int64, len(tokens))
    return np.concatenate(tokens), lengths, np.concatenate(masks)


def _join(
    encoded: Sequence[NDArray[np.uint32]], tokenizer: "Tokenizer", *, add_bos: bool
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The documents back to back, each between its special tokens; and their lengths."""
    assert tokenizer.eos_id is not None
    eos = np.array([tokenizer.eos_id], np.uint32)
    begin = [np.array([tokenizer.bos_id], np.uint32)] if add_bos else []
    pieces = [piece for ids in encoded for piece in (*begin, ids, eos)]
    lengths = np.fromiter((len(ids) for ids in encoded), np.int64, len(encoded)) + (1 + add_bos)
    return np.concatenate(pieces), lengths


@dataclass(frozen=True, slots=True)
class _Batch:
    ids: list[str]
    texts: list[str]
    sources: list[str]
    text_bytes: int


def _batches(job: _TokenizeJob) -> Iterator[_Batch]:
    """The documents of the job's split in order, a few MB of text at a time."""
    for rows in read_batches(job.part, _COLUMNS):
        if job.config.validation_fraction:
            chosen = is_validation(rows["id"].to_pylist(), job.config.validation_fraction)
            rows = rows.filter(pa.array(chosen if job.split == "validation" else ~chosen))
        if not rows.num_rows:
            continue
        sizes = np.diff(_offsets(rows["text"]))
        for begin, end in _cuts(sizes):
            part = rows.slice(begin, end - begin)
            yield _Batch(
                part["id"].to_pylist(),
                part["text"].to_pylist(),
                part["source"].to_pylist(),
                int(sizes[begin:end].sum()),
            )


def _offsets(texts: pa.LargeStringArray) -> NDArray[np.int64]:
    """[n + 1] where each text begins in the array's buffer of UTF-8 bytes."""
    return np.frombuffer(texts.buffers()[1], np.int64, count=len(texts) + 1, offset=8 * texts.offset)


def _cuts(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of documents of at most `_BATCH_BYTES` together and `_BATCH_DOCUMENTS`; a longer one stands alone."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        limit = (int(ends[begin - 1]) if begin else 0) + _BATCH_BYTES
        end = max(begin + 1, int(np.searchsorted(ends, limit, side="right")))
        end = min(end, begin + _BATCH_DOCUMENTS, len(sizes))
        yield begin, end
        begin = end
