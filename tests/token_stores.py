"""Token stores made of given numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from marin_corpus.documents.schema import document_id
from marin_corpus.output import LocalOutput
from marin_corpus.store.write import TokenWriter, write_store_manifest
from numpy.typing import NDArray

Part = Sequence[Sequence[int] | NDArray[Any]]


def write_store(
    folder: Path,
    parts: Sequence[Part],
    *,
    vocab_size: int = 1000,
    tokenizer: str = "digest",
    masks: Sequence[Part] | None = None,
    split: str = "train",
) -> Path:
    """A store `folder / split` of parts of documents of tokens. Document k of part p has the id of the text "p/k"."""
    folder.joinpath(split).mkdir(parents=True, exist_ok=True)
    summaries: list[dict[str, Any]] = []
    for number, documents in enumerate(parts):
        path = folder / split / f"part-{number:05d}"
        with TokenWriter(path, vocab_size=vocab_size, has_mask=masks is not None) as writer:
            for k, document in enumerate(documents):
                writer.add(
                    np.array(document, np.uint32),
                    np.array([len(document)], np.int64),
                    [document_id(f"{number}/{k}")],
                    [f"source {k % 2}"],
                    text_bytes=3 * len(document),
                    mask=None if masks is None else np.array(masks[number][k], np.uint8),
                )
        summaries.append(writer.summary())
    write_store_manifest(
        LocalOutput(folder),
        split,
        summaries,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        eos_id=0,
        has_mask=masks is not None,
    )
    return folder / split
