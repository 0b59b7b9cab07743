"""Writing and copying a tokenizer the way hubs lay it out: `tokenizer.json` and `tokenizer_config.json`."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin_corpus.errors import Mismatch
from marin_corpus.output import Output
from marin_corpus.tokenizers.load import load_tokenizer
from marin_corpus.tokenizers.tokenizer import SpecialTokens, Tokenizer

if TYPE_CHECKING:
    from upath import UPath

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")
"""What makes up a tokenizer; only the first must be there."""


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


def copy_tokenizer(
    files: Sequence["UPath"],
    output: Output,
    *,
    check: Callable[["UPath", bytes], object],
) -> Tokenizer:
    """Copy the files of `TOKENIZER_FILES` that are among `files`, all of one folder, and check that they load.

    Args:
        files: what to choose from.
        output: where they go.
        check: called with each file to copy and what was read of it, before any is written; raises if that is wrong.

    Raises:
        Mismatch: there is no `tokenizer.json`, or there are several.
        BadInput: they are no tokenizer.
    """
    found = {name: [file for file in files if file.name == name] for name in TOKENIZER_FILES}
    if len(found["tokenizer.json"]) != 1:
        names = ", ".join(sorted(str(file) for file in files)[:5])
        raise Mismatch(
            f"there must be one tokenizer.json, and there are {len(found['tokenizer.json'])}",
            why=f"the files are {names}{', ...' if len(files) > 5 else ''}",
            next='give the files of one folder, as in InputFiles("folder/*")',
        )
    folder = found["tokenizer.json"][0].parent
    contents = {path: path.read_bytes() for paths in found.values() for path in paths if path.parent == folder}
    for path, data in contents.items():
        check(path, data)
    tokenizer = load_tokenizer(folder)
    for path, data in contents.items():
        output.write_file(path.name, data)
    return tokenizer


def _encode(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()
