"""Training a byte-level BPE tokenizer (Sennrich et al. 2016; Radford et al. 2019) on documents."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.output import Output
from marin_corpus.tokenizers.byte_level import CHARACTER_OF_BYTE
from marin_corpus.tokenizers.files import write_tokenizer
from marin_corpus.tokenizers.templates import check_special_tokens
from marin_corpus.tokenizers.tokenizer import END_OF_TEXT, PADDING, SpecialTokens, Tokenizer

_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # English contractions
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"  # a word, with the blank or mark before it
    r"|\p{N}{1,%d}"  # digits in groups
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"  # marks, with the line ends after them
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"  # line ends; blanks, the last of which goes with the word after it
)
"""Where merges never cross, by the usage since GPT-4. Every character belongs to one of the pieces."""
_SAMPLE_PIECE_CHARACTERS = 100_000
"""Longer texts go to the trainer in pieces: it holds the one it works on several times over."""
_EXCERPT_BYTES = 1 << 16
"""Of longer texts a sample may take only the beginning."""
_LEAST_DOCUMENTS_TO_HOLD_OUT = 100
"""Of fewer, each may matter too much to what is learned."""


@dataclass(frozen=True, kw_only=True)
class BpeConfig:
    """What to learn, and from how much text."""

    vocab_size: int = 32_768
    """Tokens in all: 256 bytes, special tokens, and one for each merge."""
    special_tokens: tuple[str, ...] = ()
    """Beyond end of text and padding, such as the marks of a chat format."""
    max_digits: int = 3
    """Digits that one token may hold."""
    sample_bytes: int = 10 << 20
    """Text to learn from: the vocabulary hardly changes beyond this, the time grows with it."""
    held_out_bytes: int = 1 << 20
    """Text that is not learned from, to measure bytes per token on."""
    chat_template: str | None = None
    """A Jinja template to store with the tokenizer."""

    def __post_init__(self) -> None:
        least = 256 + len(self.all_special_tokens)
        if self.vocab_size < least:
            raise BadConfig(
                f"BpeConfig: vocab_size={self.vocab_size} must be at least {least}: 256 bytes and "
                f"{len(self.all_special_tokens)} special tokens"
            )
        if not 1 <= self.max_digits <= 20:
            raise BadConfig(f"BpeConfig: max_digits={self.max_digits} must be from 1 to 20")
        for name in ("sample_bytes", "held_out_bytes"):
            if getattr(self, name) < 1:
                raise BadConfig(f"BpeConfig: {name}={getattr(self, name)} must be at least 1")
        if len(set(self.all_special_tokens)) != len(self.all_special_tokens) or "" in self.all_special_tokens:
            raise BadConfig(f"BpeConfig: special_tokens={self.special_tokens} must be distinct and not empty")
        if self.chat_template is not None:
            check_special_tokens(self.chat_template, self.all_special_tokens)

    @property
    def all_special_tokens(self) -> tuple[str, ...]:
        """In the order of their ids, which are the first ones."""
        return (END_OF_TEXT, PADDING, *self.special_tokens)


@dataclass(frozen=True, kw_only=True)
class BpeResult:
    """What training gave."""

    vocab_size: int
    digest: str
    bytes_per_token: float
    """UTF-8 bytes a token, on held-out text if there are 100 documents or more, else on the sample."""
    sample_bytes: int
    held_out_bytes: int


def train_bpe(documents: Sequence[DocumentSet], config: BpeConfig, output: Output) -> BpeResult:
    """Learn merges from a sample of all `documents` together and write the tokenizer.

    The sample is spread evenly over the documents in their order, so it depends on them alone; it is held in memory,
    with about 20 times its size for the learning.

    Raises:
        BadInput: the documents hold too little text for so large a vocabulary.
    """
    sample, held_out = _sample(documents, config)
    model = tokenizers.Tokenizer(models.BPE())
    pattern = tokenizers.Regex(_PATTERN % config.max_digits)
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=list(config.all_special_tokens),
        initial_alphabet=sorted(CHARACTER_OF_BYTE.values()),
        show_progress=False,
    )
    model.train_from_iterator(_pieces(sample.texts), trainer)
    content: dict[str, Any] = json.loads(model.to_str())
    reached = model.get_vocab_size()
    if reached < config.vocab_size:
        raise BadInput(
            f"{sample.num_bytes} bytes of text give a vocabulary of {reached} tokens, not of {config.vocab_size}",
            why="no pair of tokens is left to merge",
            next=f"give more text, or ask for vocab_size={reached} or less",
        )
    special = SpecialTokens(eos=END_OF_TEXT, pad=PADDING)
    write_tokenizer(output, content, special, chat_template=config.chat_template)
    tokenizer = Tokenizer(content, special)
    measured = held_out if held_out.num_bytes else sample
    num_tokens = sum(len(ids) for ids in tokenizer.encode_batch(measured.texts))
    return BpeResult(
        vocab_size=reached,
        digest=tokenizer.digest,
        bytes_per_token=measured.num_bytes / num_tokens,
        sample_bytes=sample.num_bytes,
        held_out_bytes=held_out.num_bytes,
    )


class _Sampler:
    """Keeps a share of the texts it is shown, spread evenly over them.

    Each text, kept or not, adds its share to what is owed; a text is kept when something is owed, and pays for it. Of
    one so long that it would pay for many others only the beginning is kept.
    """

    def __init__(self, wanted_bytes: int, text_bytes: int) -> None:
        self.texts: list[str] = []
        self.num_bytes = 0
        self._rate = min(1.0, wanted_bytes / max(1, text_bytes))
        self._owed = 0.0

    def show(self, text: str) -> None:
        """The next text."""
        size = len(text.encode())
        self._owed += size * self._rate
        if self._owed <= 0:
            return
        most = max(_EXCERPT_BYTES, int(self._owed))
        if size > most:
            text = text.encode()[:most].decode(errors="ignore")
            size = len(text.encode())
        self.texts.append(text)
        self.num_bytes += size
        self._owed -= size


def _sample(documents: Sequence[DocumentSet], config: BpeConfig) -> tuple[_Sampler, _Sampler]:
    """What is learned from and what is measured on."""
    text_bytes = sum(each.text_bytes for each in documents)
    if not text_bytes:
        raise BadInput(f"{', '.join(each.url for each in documents)}: there is no text to learn from")
    if sum(each.num_documents for each in documents) >= _LEAST_DOCUMENTS_TO_HOLD_OUT:
        learned = _Sampler(config.sample_bytes, text_bytes * 15 // 16)
        held_out = _Sampler(config.held_out_bytes, text_bytes // 16)
        for document_id, text in _texts(documents):
            # One document in 16, by its id: no text is in both.
            (held_out if document_id[-1] == "0" else learned).show(text)
        if learned.num_bytes:
            return learned, held_out
    everything = _Sampler(config.sample_bytes, text_bytes)
    for _, text in _texts(documents):
        everything.show(text)
    return everything, _Sampler(config.held_out_bytes, text_bytes)


def _texts(documents: Sequence[DocumentSet]) -> Iterator[tuple[str, str]]:
    """Ids and texts of all documents, in order."""
    for each in documents:
        for part in each.parts:
            for batch in read_batches(part, ("id", "text")):
                yield from zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True)


def _pieces(texts: list[str]) -> Iterator[str]:
    for text in texts:
        for start in range(0, len(text), _SAMPLE_PIECE_CHARACTERS):
            yield text[start : start + _SAMPLE_PIECE_CHARACTERS]
