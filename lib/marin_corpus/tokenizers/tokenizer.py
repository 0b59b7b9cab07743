"""`Tokenizer`: text to ids and back, by the fastest engine that gives the ids of its `tokenizer.json`."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tiktoken
import tokenizers
import xxhash
from numpy.typing import NDArray

from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.tokenizers.byte_level import token_to_bytes
from marin_corpus.tokenizers.fast import NotExpressible, encode_ordinary, make_encoding

END_OF_TEXT = "<|endoftext|>"
PADDING = "<|padding|>"
"""The special tokens of tokenizers made here."""


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The tokens that no text contains, by role; None where a tokenizer has none."""

    eos: str | None
    """Ends a document."""
    bos: str | None = None
    """Begins a document."""
    pad: str | None = None
    """Fills up sequences."""


class Tokenizer:
    """Ids of text. Text that looks like a special token ("<|endoftext|>") is ordinary text here.

    Documents come from anywhere: one that spells a special token out must not be able to end itself or to pretend to be
    another's turn. Special ids are put in by those who mean them, through `special_id`.
    """

    def __init__(self, content: Mapping[str, Any], special: SpecialTokens, *, chat_template: str | None = None) -> None:
        """
        Args:
            content: a `tokenizer.json`.
            special: roles of its special tokens.
            chat_template: a Jinja template, if the tokenizer comes with one.
        """
        self._reference = tokenizers.Tokenizer.from_str(json.dumps(content))
        # By default the library looks for special tokens in all text.
        self._reference.encode_special_tokens = True
        self._reference.no_truncation()
        self._reference.no_padding()
        self.chat_template = chat_template
        self.special_tokens: dict[str, int] = {
            token["content"]: token["id"] for token in content.get("added_tokens") or () if token["special"]
        }
        """Every special token's id, by its text."""
        self.special = special
        """Those that have a role."""
        self.special_pattern = _special_pattern(content.get("added_tokens") or ())
        """Finds special tokens in text that was put together by those who mean them; the group "_12" is of id 12."""
        self.vocab_size: int = 1 + max(self._reference.get_vocab(with_added_tokens=True).values())
        """Every id is below it."""
        self.digest = _digest(content, special)
        """Of everything that decides ids: 32 hex digits."""
        self.eos_id = self._role(special.eos)
        self.bos_id = self._role(special.bos)
        self.pad_id = self._role(special.pad)
        self._token_bytes = _token_bytes(content, self._reference)
        self.engine: Literal["tiktoken", "tokenizers"] = "tiktoken"
        """What encodes."""
        self.engine_reason = "equal ids on hard strings, and merges that make every token"
        """Why this engine."""
        self._encoding: tiktoken.Encoding | None = None
        try:
            self._encoding = make_encoding(content, self._reference)
        except NotExpressible as reason:
            self.engine, self.engine_reason = "tokenizers", str(reason)

    def special_id(self, token: str) -> int:
        """The id of a special token. Raises `BadConfig` if there is none of this name."""
        if token not in self.special_tokens:
            known = ", ".join(map(repr, sorted(self.special_tokens))) or "none"
            raise BadConfig(f"the tokenizer has no special token {token!r}", next=f"it has: {known}")
        return self.special_tokens[token]

    def encode(self, text: str) -> NDArray[np.uint32]:
        """Ids of a text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Ids of each text, without special tokens; arrays that cannot be written to.

        With the engine `tokenizers` a text takes about 100 bytes of memory for each of its own while it is encoded, and
        so does one with a run of about half a million blanks: split documents of many MB before.

        Raises:
            BadInput: a text holds a lone surrogate, which has no UTF-8 form.
        """
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> NDArray[np.uint32]:
        if not text.isascii():
            _check_text(text)
        if self._encoding is not None and (ids := encode_ordinary(self._encoding, text)) is not None:
            return ids
        # One text at a time: that library would give each of several a thread, in each of our processes.
        [encoded] = self._reference.encode_batch_fast([text], add_special_tokens=False)
        ids = np.array(encoded.ids, np.uint32)
        ids.flags.writeable = False
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; a special token's own text."""
        if self._token_bytes is None:
            raise BadConfig("the tokens of this tokenizer are no bytes: it is not byte-level", next="use decode")
        return self._token_bytes[token_id]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens, joined. They are the UTF-8 text that was encoded, or a part of it."""
        if self._token_bytes is None:
            return self.decode(ids).encode()
        table = self._token_bytes
        return b"".join([table[token_id] for token_id in ids])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; U+FFFD where they end within a character."""
        if self._token_bytes is None:
            return str(self._reference.decode([int(token_id) for token_id in ids], skip_special_tokens=False))
        return self.decode_bytes(ids).decode(errors="replace")

    def _role(self, token: str | None) -> int | None:
        if token is None:
            return None
        token_id = self._reference.token_to_id(token)
        if token_id is None:
            raise BadInput(f"the tokenizer's configuration names the token {token!r}, which its vocabulary lacks")
        return int(token_id)


def _special_pattern(added_tokens: Iterable[Mapping[str, Any]]) -> re.Pattern[str]:
    """The longest token where several begin; some swallow the blanks beside them."""
    tokens = sorted((each for each in added_tokens if each["special"]), key=lambda each: -len(each["content"]))
    forms = [
        r"\s*" * each.get("lstrip", False)
        + f"(?P<_{each['id']}>{re.escape(each['content'])})"
        + r"\s*" * each.get("rstrip", False)
        for each in tokens
    ]
    return re.compile("|".join(forms) or r"(?!)")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"a text holds the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}",
            why="it stands for no character and has no UTF-8 form",
            next="remove it, or read the file with errors='replace'",
        ) from error


def _digest(content: Mapping[str, Any], special: SpecialTokens) -> str:
    """Of what decides ids, whatever the layout of the file: the decoder and the post-processor do not."""
    parts = [content.get(name) for name in ("normalizer", "pre_tokenizer", "model", "added_tokens")]
    # Merges are pairs, in older files text with a blank between: one form for both.
    model = dict(content["model"])
    if "merges" in model:
        model["merges"] = [merge.split(" ") if isinstance(merge, str) else list(merge) for merge in model["merges"]]
    parts[2] = model
    form = json.dumps([*parts, special.eos, special.bos, special.pad], sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(form.encode())


def _token_bytes(content: Mapping[str, Any], reference: tokenizers.Tokenizer) -> list[bytes] | None:
    """Bytes by id for a byte-level tokenizer, else None. An id without a token stands for no bytes."""
    if "ByteLevel" not in json.dumps(content.get("decoder")):
        return None
    added = {token["id"]: token["content"].encode() for token in content.get("added_tokens") or ()}
    table = [b""] * (1 + max(reference.get_vocab(with_added_tokens=True).values()))
    for token, token_id in content["model"]["vocab"].items():
        if token_id in added:
            continue
        data = token_to_bytes(token)
        if data is None:
            return None
        table[token_id] = data
    for token_id, data in added.items():
        table[token_id] = data
    return table
