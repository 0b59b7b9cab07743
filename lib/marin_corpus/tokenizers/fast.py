"""Byte-level BPE through tiktoken, which is about ten times as fast as the `tokenizers` library on one core.

tiktoken knows one pattern that cuts text into pieces and one rank a token; it merges the adjacent pair whose joined
bytes have the lowest rank. That gives the ids of a `tokenizer.json` whose merges stand in the order of their tokens'
ids and make every token, and whose pieces come from one pattern. What cannot be expressed so is refused here; and as
two libraries may read one pattern differently, both encode hard strings before one stands in.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import tiktoken
from numpy.typing import NDArray
from tokenizers import models

from marin_corpus.tokenizers.byte_level import token_to_bytes
from marin_corpus.tokenizers.probe import hard_strings

if TYPE_CHECKING:
    import tokenizers

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What ByteLevel(use_regex=True) cuts by (Radford et al. 2019)."""


class NotExpressible(Exception):
    """Why tiktoken cannot stand in for a tokenizer."""


def make_encoding(content: Mapping[str, Any], reference: "tokenizers.Tokenizer") -> tiktoken.Encoding:
    """A tiktoken encoding with the ids of `reference`, whose `tokenizer.json` is `content`.

    Raises:
        NotExpressible: naming the part that tiktoken lacks, or the first text with other ids.
    """
    model = content["model"]
    _check_model(content, model)
    special = {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    ranks: dict[bytes, int] = {}
    for token, token_id in model["vocab"].items():
        if token in special:
            continue
        data = token_to_bytes(token)
        if data is None:
            raise NotExpressible(f"the token {token!r} is not written in the byte-level alphabet")
        ranks[data] = token_id
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise NotExpressible(f"the vocabulary lacks the byte {missing[0]:#04x}")
    merged = [model["vocab"]["".join(_pair(merge))] for merge in model["merges"]]
    # Several merges may be listed for one token; `_check_merges` sees to it that one of them is what happens.
    if any(later < earlier for earlier, later in pairwise(merged)):
        raise NotExpressible("its merges do not stand in the order of their tokens' ids")
    _check_merges(model, special)
    encoding = tiktoken.Encoding(
        "marin_corpus",
        pat_str=_covering(_pattern(content["pre_tokenizer"])),
        mergeable_ranks=ranks,
        special_tokens=special,
    )
    _compare(encoding, reference)
    return encoding


def encode_ordinary(encoding: tiktoken.Encoding, text: str) -> NDArray[np.uint32] | None:
    """Ids of a text; None for one that is too much for tiktoken's pattern matcher.

    It goes back through a run of blanks step by step, and its stack ends after about half a million of them.
    """
    try:
        # Not `encode_ordinary`: that goes through a list of integers, and dies of such runs.
        return encoding.encode_to_numpy(text, disallowed_special=())
    except ValueError:
        return None


def _check_model(content: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    if model.get("type") != "BPE":
        raise NotExpressible(f"its model is {model.get('type')}, not BPE")
    if content.get("normalizer") is not None:
        raise NotExpressible(f"it changes text before it cuts it: {content['normalizer'].get('type')}")
    # An `unk_token` is no obstacle: all bytes are in the vocabulary, so no text reaches it.
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            raise NotExpressible(f"its model uses {option}={model[option]!r}")
    for token in content.get("added_tokens") or ():
        if not token["special"]:
            raise NotExpressible(f"it looks for the added token {token['content']!r} in ordinary text")


def _check_merges(model: Mapping[str, Any], special: Mapping[str, int]) -> None:
    """Whether merging any two neighbours that make up a token comes to the same as merging listed pairs.

    It does if listed merges make each token out of its own bytes. For let tiktoken merge a pair that is not listed, of
    all such the one with the shortest result. Within that result's bytes both have merged alike so far, by the same
    order, and would have done so had there been no others beside them; so listed merges alone stop short of the token.
    """
    plain = models.BPE(vocab=dict(model["vocab"]), merges=[_pair(merge) for merge in model["merges"]])
    tokenize = plain.tokenize
    for token, token_id in model["vocab"].items():
        parts = tokenize(token)
        if (len(parts) != 1 or parts[0].id != token_id) and token not in special:
            raise NotExpressible(f"its merges do not lead to the token {token!r}")


def _pair(merge: Any) -> tuple[str, str]:
    """Merges are pairs, in older files text with a blank between."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def _pattern(pre_tokenizer: Mapping[str, Any] | None) -> str:
    """The one pattern that cuts text into pieces."""
    steps = [pre_tokenizer or {"type": "nothing"}]
    if steps[0]["type"] == "Sequence":
        steps = list(steps[0]["pretokenizers"])
    last = steps.pop()
    if last["type"] != "ByteLevel" or last.get("add_prefix_space"):
        raise NotExpressible("its pieces are not turned into bytes as they are")
    patterns = [GPT2_PATTERN] if last.get("use_regex", True) else []
    for step in steps:
        if (
            step["type"] != "Split"
            or step["behavior"] != "Isolated"
            or step["invert"]
            or "Regex" not in step["pattern"]
        ):
            raise NotExpressible(f"it cuts text by {step['type']}")
        patterns.append(step["pattern"]["Regex"])
    if len(patterns) != 1:
        raise NotExpressible(f"it cuts text by {len(patterns)} patterns, one after another")
    return str(patterns[0])


def _covering(pattern: str) -> str:
    """A pattern that also takes what lies between two matches, as one piece: tiktoken would leave it out."""
    return rf"{pattern}|(?s:.+?)(?=(?:{pattern})|\z)"


def _compare(encoding: tiktoken.Encoding, reference: "tokenizers.Tokenizer") -> None:
    """Both engines on hard strings: they could cut text differently by one pattern."""
    texts = list(hard_strings())
    expected = reference.encode_batch_fast(texts, add_special_tokens=False)
    for text, ids in zip(texts, expected, strict=True):
        found = encode_ordinary(encoding, text)
        if found is None or found.tolist() != ids.ids:
            raise NotExpressible(f"tiktoken gives other ids for {text[:40]!r}")
