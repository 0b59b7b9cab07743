"""Loading a tokenizer from a folder with `tokenizer.json`, as hubs and `train_bpe` lay them out."""

import json
from typing import Any

from marin_corpus.errors import BadInput, Mismatch
from marin_corpus.files import Location
from marin_corpus.tokenizers.tokenizer import SpecialTokens, Tokenizer


def load_tokenizer(folder: Location) -> Tokenizer:
    """Read `tokenizer.json`, and beside it `tokenizer_config.json` and `chat_template.jinja` where they exist.

    Raises:
        Mismatch: the folder holds no tokenizer.
        BadInput: a file is not what its name says.
    """
    from upath import UPath

    root = UPath(folder)
    content = _read_json(root, "tokenizer.json")
    if content is None:
        raise Mismatch(
            f"{root} holds no tokenizer: it has no tokenizer.json",
            next="give a folder that train_bpe wrote, or that holds a tokenizer in the format of `tokenizers`",
        )
    if not isinstance(content.get("model"), dict):
        raise BadInput(f"{root / 'tokenizer.json'} has no model", next="save it again with the `tokenizers` library")
    config = _read_json(root, "tokenizer_config.json") or {}
    template = config.get("chat_template")
    if (root / "chat_template.jinja").exists():
        template = (root / "chat_template.jinja").read_text(encoding="utf-8")
    special = SpecialTokens(
        eos=_token(config.get("eos_token")), bos=_token(config.get("bos_token")), pad=_token(config.get("pad_token"))
    )
    return Tokenizer(content, special, chat_template=template if isinstance(template, str) else None)


def _read_json(root: Any, name: str) -> dict[str, Any] | None:
    try:
        data = (root / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = json.loads(data)
    except ValueError as error:
        raise BadInput(f"{root / name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{root / name} holds no JSON object")
    return content


def _token(value: Any) -> str | None:
    """A special token is written as text, or as an object with its content."""
    return value.get("content") if isinstance(value, dict) else value
