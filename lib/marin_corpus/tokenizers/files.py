"""Writing a tokenizer the way hubs lay it out: `tokenizer.json` and `tokenizer_config.json`."""

import json
from collections.abc import Mapping
from typing import Any

from marin_corpus.output import Output
from marin_corpus.tokenizers.tokenizer import SpecialTokens


def write_tokenizer(
    output: Output, content: Mapping[str, Any], special: SpecialTokens, *, chat_template: str | None = None
) -> None:
    """Write the files that `load_tokenizer` and `transformers.AutoTokenizer.from_pretrained` read.

    Args:
        output: where they go.
        content: the `tokenizer.json`.
        special: roles of its special tokens.
        chat_template: a Jinja template for conversations.
    """
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        # The model knows how long its sequences are, not the tokenizer; transformers' own word for "no limit".
        "model_max_length": int(1e30),
    }
    for role, token in (("eos_token", special.eos), ("bos_token", special.bos), ("pad_token", special.pad)):
        if token is not None:
            config[role] = token
    if chat_template is not None:
        config["chat_template"] = chat_template
    output.write_file("tokenizer.json", _encode(content))
    output.write_file("tokenizer_config.json", _encode(config))


def _encode(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()
