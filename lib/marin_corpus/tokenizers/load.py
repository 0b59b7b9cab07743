"""Loading a tokenizer from a folder with `tokenizer.json`, as hubs and `train_bpe` lay them out."""

import json
from collections.abc import Mapping
from typing import Any

from marin_corpus.errors import BadInput, CorpusError, Mismatch
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
    # Older tokenizers name the roles here alone.
    roles = (_read_json(root, "special_tokens_map.json") or {}) | config
    special = SpecialTokens(
        eos=_token(roles, "eos_token"), bos=_token(roles, "bos_token"), pad=_token(roles, "pad_token")
    )
    try:
        return Tokenizer(content, special, chat_template=_chat_template(root, config))
    except CorpusError as error:
        raise BadInput(f"{root}: {error.what}", why=error.why, next=error.next) from error
    except Exception as error:
        # The library knows no narrower class.
        raise BadInput(f"{root / 'tokenizer.json'} is not a tokenizer: {error}") from error


def _chat_template(root: Any, config: Mapping[str, Any]) -> str | None:
    """A file of its own comes first; of several in the configuration the default one."""
    try:
        return str((root / "chat_template.jinja").read_bytes().decode())
    except FileNotFoundError:
        pass
    except UnicodeDecodeError as error:
        raise BadInput(f"{root / 'chat_template.jinja'} is not UTF-8: {error}") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {each["name"]: each["template"] for each in template}
        template = named.get("default")
    return template


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


def _token(roles: Mapping[str, Any], role: str) -> str | None:
    """A special token is written as text, or as an object with its content."""
    value = roles.get(role)
    return value.get("content") if isinstance(value, dict) else value
