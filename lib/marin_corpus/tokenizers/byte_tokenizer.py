"""The byte tokenizer: every byte a token, with no training. Its `tokenizer.json` is a byte-level BPE without merges."""

from typing import Any

from marin_corpus.output import Output
from marin_corpus.tokenizers.byte_level import CHARACTER_OF_BYTE
from marin_corpus.tokenizers.files import write_tokenizer
from marin_corpus.tokenizers.tokenizer import END_OF_TEXT, PADDING, SpecialTokens, Tokenizer


def write_byte_tokenizer(output: Output) -> Tokenizer:
    """Write it: id = value of the byte, 256 ends a text, 257 is padding."""
    content = byte_tokenizer_content()
    special = SpecialTokens(eos=END_OF_TEXT, pad=PADDING)
    write_tokenizer(output, content, special)
    return Tokenizer(content, special)


def byte_tokenizer_content() -> dict[str, Any]:
    """The `tokenizer.json`."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 256 + n, "content": token, **flags} for n, token in enumerate((END_OF_TEXT, PADDING))],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {character: byte for byte, character in CHARACTER_OF_BYTE.items()}
            | {END_OF_TEXT: 256, PADDING: 257},
            "merges": [],
        },
    }
