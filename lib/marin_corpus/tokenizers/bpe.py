"""Training a byte-level BPE tokenizer (Sennrich et al. 2016; Radford et al. 2019) on documents."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.output import Output
from marin_corpus.tokenizers.byte_level import CHARACTER_OF_BYTE
from marin_corpus.tokenizers.files import write_tokenizer
from marin_corpus.tokenizers.tokenizer import SpecialTokens, Tokenizer

END_OF_TEXT = "<|endoftext|>"
PADDING = "<|padding|>"
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # English contractions
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"  # a word, with the blank or mark before it
    r"|\p{N}{1,%d}"  # digits in groups
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"  # marks, with the line ends after them
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"  # line ends; blanks, the last of which goes with the word after it
)
"""Where merges never cross, by the usage since GPT-4. Every character belongs to one of the pieces."""
_SAMPLE_PIECE_CHARACTERS = 100_000
"""Longer texts go to the trainer in pieces: it holds the one it works on several times over."""


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
    """UTF-8 bytes a token, on held-out text where there is some, else on the sample."""
    sample_bytes: int
    held_out_bytes: int


def train_bpe(documents: DocumentSet, config: BpeConfig, output: Output) -> BpeResult:
    """Learn merges from a sample of `documents` and write the tokenizer.

    The sample takes documents from each part in proportion, in order, so it depends on the documents alone. The library
    learns in one thread: with several, ties between pairs could fall either way.

    Raises:
        BadInput: the documents hold too little text for so large a vocabulary.
    """
    sample, held_out = _sample(documents, config)
    sample_bytes, held_out_bytes = (sum(len(text.encode()) for text in texts) for texts in (sample, held_out))
    model = tokenizers.Tokenizer(models.BPE())
    pattern = tokenizers.Regex(_PIECES % config.max_digits)
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
    model.train_from_iterator(_pieces(sample), trainer)
    content: dict[str, Any] = json.loads(model.to_str())
    reached = model.get_vocab_size()
    if reached < config.vocab_size:
        raise BadInput(
            f"{sample_bytes} bytes of text give a vocabulary of {reached} tokens, not of {config.vocab_size}",
            why="no pair of tokens is left to merge",
            next=f"give more text, or ask for vocab_size={reached} or less",
        )
    special = SpecialTokens(eos=END_OF_TEXT, pad=PADDING)
    write_tokenizer(output, content, special, chat_template=config.chat_template)
    tokenizer = Tokenizer(content, special)
    measured, measured_bytes = (held_out, held_out_bytes) if held_out else (sample, sample_bytes)
    num_tokens = sum(len(ids) for ids in tokenizer.encode_batch(measured))
    return BpeResult(
        vocab_size=reached,
        digest=tokenizer.digest,
        bytes_per_token=measured_bytes / num_tokens,
        sample_bytes=sample_bytes,
        held_out_bytes=held_out_bytes,
    )


def _sample(documents: DocumentSet, config: BpeConfig) -> tuple[list[str], list[str]]:
    """Texts to learn from and texts to measure on: of each part its share, taken evenly from its documents.

    A document is held out by its id, so the two never share one.
    """
    if not documents.text_bytes:
        raise BadInput(f"{documents.url} holds no text to learn from")
    learned: list[str] = []
    held_out: list[str] = []
    for part in documents.parts:
        share = part.text_bytes / documents.text_bytes
        # Every document stands for this much of what is wanted of the part; a document is taken when that adds up.
        rates = [min(1.0, wanted / documents.text_bytes) for wanted in (config.sample_bytes, config.held_out_bytes)]
        owed = [0.0, 0.0]
        left = [config.sample_bytes * share, config.held_out_bytes * share]
        for batch in read_batches(part, ("id", "text")):
            for document_id, text in zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True):
                # Every 16th id, whatever else there is.
                which = 1 if document_id[-1] == "0" else 0
                size = len(text.encode())
                owed[which] += size * rates[which] * (16 if which else 1)
                if size and owed[which] > 0 and left[which] > 0:
                    (held_out if which else learned).append(text)
                    owed[which] -= size
                    left[which] -= size
    return (learned, held_out) if learned else (held_out, [])


def _pieces(texts: list[str]) -> Iterator[str]:
    for text in texts:
        for start in range(0, len(text), _SAMPLE_PIECE_CHARACTERS):
            yield text[start : start + _SAMPLE_PIECE_CHARACTERS]
