import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from demo_corpus import chapters, speeches
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.documents.schema import document_id
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.output import LocalOutput
from marin_corpus.tokenizers.bpe import BpeConfig, train_bpe
from marin_corpus.tokenizers.load import load_tokenizer
from marin_corpus.tokenizers.templates import CHAT_SPECIAL_TOKENS, DEFAULT_CHAT_TEMPLATE
from tokenizer_folders import write_set
from tokenizers import Tokenizer

SMALL = BpeConfig(vocab_size=600, sample_bytes=200_000, held_out_bytes=50_000)
MB = 1 << 20


def read(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_vocabulary_is_bytes_special_tokens_and_merges(tmp_path) -> None:
    documents = write_set(tmp_path / "documents", chapters()[:100])
    config = replace(SMALL, special_tokens=CHAT_SPECIAL_TOKENS, chat_template=DEFAULT_CHAT_TEMPLATE, max_digits=2)
    result = train_bpe([documents], config, LocalOutput(tmp_path / "out"))
    tokenizer = load_tokenizer(tmp_path / "out")
    assert (tokenizer.vocab_size, tokenizer.digest) == (result.vocab_size, result.digest) == (600, tokenizer.digest)
    assert tokenizer.special_tokens == {"<|endoftext|>": 0, "<|padding|>": 1, "<|im_start|>": 2, "<|im_end|>": 3}
    assert (tokenizer.eos_id, tokenizer.pad_id, tokenizer.bos_id) == (0, 1, None)
    assert tokenizer.chat_template == DEFAULT_CHAT_TEMPLATE
    tokens = [tokenizer.token_bytes(token_id) for token_id in range(4, 600)]
    assert {token for token in tokens if len(token) == 1} == {bytes([byte]) for byte in range(256)}
    assert len(set(tokens)) == 596
    assert b" LORD" in tokens
    assert [tokenizer.decode([each]) for each in tokenizer.encode("1234567")] != ["1234567"]
    assert all(len(token) <= 2 for token in tokens if token.strip().isdigit())


def test_bytes_per_token_is_measured_on_documents_not_learned_from(tmp_path) -> None:
    texts = chapters()
    documents = write_set(tmp_path / "documents", texts)
    result = train_bpe([documents], replace(SMALL, sample_bytes=MB, held_out_bytes=MB), LocalOutput(tmp_path / "out"))
    assert result.sample_bytes == pytest.approx(MB, rel=0.1)
    assert 100_000 < result.held_out_bytes < MB
    reference = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    held_out = [text for text, name in zip(texts, ids(documents), strict=True) if name.endswith("0")]
    assert sum(len(text.encode()) for text in held_out) == result.held_out_bytes
    num_tokens = sum(len(encoding.ids) for encoding in reference.encode_batch(held_out))
    assert result.bytes_per_token == pytest.approx(result.held_out_bytes / num_tokens)


def ids(documents: DocumentSet) -> list[str]:
    return [
        name for part in documents.parts for batch in read_batches(part, ("id",)) for name in batch["id"].to_pylist()
    ]


def learned_words(folder: Path, documents: Sequence[DocumentSet], config: BpeConfig) -> set[bytes]:
    """Words that became tokens."""
    train_bpe(documents, config, LocalOutput(folder))
    tokenizer = load_tokenizer(folder)
    return {tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)}


def test_a_huge_document_does_not_use_the_sample_up(tmp_path) -> None:
    # 3 MB of one text, then a thousand short ones of another: the sample of 400 kB has both, by their sizes.
    huge, short = ("alpha bravo charlie " * 150_000), [f"delta echo foxtrot {n} " * 50 for n in range(3000)]
    documents = write_set(tmp_path / "documents", [huge], short)
    config = replace(SMALL, vocab_size=300, sample_bytes=400_000)
    result = train_bpe([documents], config, LocalOutput(tmp_path / "out"))
    assert result.sample_bytes == pytest.approx(400_000, rel=0.2)
    tokens = learned_words(tmp_path / "words", [documents], config)
    assert {b" bravo", b" foxtrot"} <= tokens


def test_few_huge_documents(tmp_path) -> None:
    texts = [f"{word} " * 300_000 for word in ("alpha", "bravo", "charlie")]
    for n, order in enumerate((texts, texts[::-1])):
        documents = write_set(tmp_path / f"{n}", order)
        config = replace(SMALL, vocab_size=274, sample_bytes=300_000)
        result = train_bpe([documents], config, LocalOutput(tmp_path / f"out{n}"))
        assert result.sample_bytes == pytest.approx(300_000, rel=0.25)
        assert result.held_out_bytes == 0
        assert {b" alpha", b" bravo", b" charlie"} <= learned_words(tmp_path / f"words{n}", [documents], config)


def test_copies_of_one_text_are_learned_from(tmp_path) -> None:
    numbered = (f"number {n} " * 500 for n in range(100))
    text = next(text for text in numbered if document_id(text).endswith("0"))
    documents = write_set(tmp_path / "documents", [text] * 150)
    result = train_bpe([documents], replace(SMALL, vocab_size=262), LocalOutput(tmp_path / "out"))
    assert result.sample_bytes == pytest.approx(200_000, rel=0.1)
    assert result.bytes_per_token > 1


def test_several_sets_are_learned_from_together(tmp_path) -> None:
    first = write_set(tmp_path / "first", ["alpha bravo " * 500 for _ in range(20)])
    second = write_set(tmp_path / "second", ["delta echo " * 500 for _ in range(20)])
    config = replace(SMALL, vocab_size=275, sample_bytes=50_000)
    assert {b" bravo", b" echo"} <= learned_words(tmp_path / "both", [first, second], config)
    assert b" echo" not in learned_words(tmp_path / "one", [first], replace(config, vocab_size=265))


TRAIN = """
import sys
from pathlib import Path
from marin_corpus.documents.read import DocumentSet
from marin_corpus.output import LocalOutput
from marin_corpus.tokenizers.bpe import BpeConfig, train_bpe
config = BpeConfig(vocab_size=2000, sample_bytes=400_000)
train_bpe([DocumentSet.open(sys.argv[1])], config, LocalOutput(Path(sys.argv[2])))
"""


def test_training_gives_the_same_bytes_whatever_the_threads(tmp_path) -> None:
    write_set(tmp_path / "documents", speeches()[::20], chapters()[::20])
    found = []
    for threads, parallel in (("1", "false"), ("4", "true")):
        environment = os.environ | {
            "RAYON_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": parallel,
            "PYTHONHASHSEED": threads,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        out = tmp_path / f"threads-{threads}"
        subprocess.run([sys.executable, "-c", TRAIN, tmp_path / "documents", out], env=environment, check=True)
        found.append(read(out))
    assert found[0] == found[1]
    assert set(found[0]) == {"tokenizer.json", "tokenizer_config.json"}


def test_the_sample_depends_on_the_documents_not_on_how_they_lie(tmp_path) -> None:
    texts = chapters()[:300]
    one = write_set(tmp_path / "one", texts)
    many = write_set(tmp_path / "many", *(texts[n : n + 30] for n in range(0, 300, 30)))
    for name, documents in (("a", one), ("b", many)):
        train_bpe([documents], SMALL, LocalOutput(tmp_path / "out" / name))
    assert read(tmp_path / "out" / "a") == read(tmp_path / "out" / "b")
    assert str(tmp_path) not in json.dumps([data.decode() for data in read(tmp_path / "out" / "a").values()])


def test_too_little_text_for_the_vocabulary(tmp_path) -> None:
    documents = write_set(tmp_path / "documents", ["to be or not to be"])
    with pytest.raises(BadInput, match=r"18 bytes of text give a vocabulary of \d+ tokens, not of 600(.|\n)*or less"):
        train_bpe([documents], SMALL, LocalOutput(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("texts", [[], [""]])
def test_no_text(texts, tmp_path) -> None:
    documents = write_set(tmp_path / "documents", texts)
    with pytest.raises(BadInput, match=r"documents: there is no text to learn from"):
        train_bpe([documents], SMALL, LocalOutput(tmp_path / "out"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 257}, "vocab_size=257 must be at least 258"),
        ({"max_digits": 0}, "max_digits=0 must be from 1 to 20"),
        ({"sample_bytes": 0}, "sample_bytes=0"),
        ({"held_out_bytes": -1}, "held_out_bytes=-1"),
        ({"special_tokens": ("<|endoftext|>",)}, "must be distinct"),
        ({"special_tokens": ("",)}, "not empty"),
        (
            {"chat_template": DEFAULT_CHAT_TEMPLATE},
            r"writes <\|im_end\|>, <\|im_start\|>, not among(.|\n)*special_tokens=\('<\|im_end\|>', ",
        ),
        ({"chat_template": "{% if %}"}, "not Jinja: line 1"),
    ],
)
def test_settings_that_cannot_be_honoured(settings, message) -> None:
    with pytest.raises(BadConfig, match=message):
        BpeConfig(**settings)
