"""Tokenizers for tests: one trained on real text with a chat template, and altered copies of it."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from demo_corpus import chapters, speeches
from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.output import LocalOutput
from marin_corpus.tokenizers.bpe import BpeConfig, train_bpe
from marin_corpus.tokenizers.templates import CHAT_SPECIAL_TOKENS, DEFAULT_CHAT_TEMPLATE

CONFIG = BpeConfig(
    vocab_size=4096,
    special_tokens=CHAT_SPECIAL_TOKENS,
    chat_template=DEFAULT_CHAT_TEMPLATE,
    sample_bytes=1 << 20,
    held_out_bytes=1 << 17,
)


def write_set(folder: Path, *parts: list[str]) -> DocumentSet:
    """Documents in parts."""
    folder.mkdir(parents=True)
    summaries = []
    for number, texts in enumerate(parts):
        with DocumentWriter(folder / f"part-{number:03d}.parquet", part_text_bytes=None) as writer:
            for text in texts:
                writer.add(text, source="test")
        summaries += writer.summary()
    write_documents_manifest(LocalOutput(folder), summaries)
    return DocumentSet.open(folder)


@cache
def trained_files() -> dict[str, bytes]:
    """The files of a tokenizer of 4,096 tokens, trained on a sample of speeches and chapters."""
    with TemporaryDirectory() as name:
        documents = write_set(Path(name) / "documents", speeches()[::8], chapters()[::8])
        train_bpe([documents], CONFIG, LocalOutput(Path(name) / "tokenizer"))
        return {file.name: file.read_bytes() for file in (Path(name) / "tokenizer").iterdir()}


def write_trained(folder: Path, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """Lay the trained tokenizer out in `folder`, its `tokenizer.json` changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in trained_files().items():
        (folder / name).write_bytes(data)
    if change is not None:
        content = json.loads((folder / "tokenizer.json").read_text())
        change(content)
        (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder
