import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from demo_corpus import speeches
from marin_corpus.errors import Mismatch
from marin_corpus.tokenizers.templates import CHAT_SPECIAL_TOKENS, DEFAULT_CHAT_TEMPLATE
from token_steps import build, small_tokenizer, some_chats, some_speeches

from marin_pipe import run
from marin_pipe.steps.tokenizers import train_bpe
from marin_pipe.steps.tokens import Tokens, tokenize_chat

TESTS = Path(__file__).parents[2]


def tree(tokens: Tokens) -> dict[str, str]:
    root = Path(str(tokens.path))
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Tokens:
    root = str(tmp_path_factory.mktemp("root"))
    report = run({"tokens": build()}, root=root, backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    return build().load(root=root)


def test_the_artifact_says_what_the_stores_hold(finished):
    text = [paragraph for speech in speeches()[:12] for paragraph in speech.split("\n") if paragraph]
    stores = {split: finished.open(split) for split in ("train", "validation")}
    assert sum(finished.num_documents.values()) == len(text)
    assert sum(finished.text_bytes.values()) == sum(len(paragraph.encode()) for paragraph in text)
    assert finished.num_tokens == {split: store.num_tokens for split, store in stores.items()}
    # Not of documents: all copies of a signature lie on one side.
    assert 0.05 < finished.text_bytes["validation"] / sum(finished.text_bytes.values()) < 0.15
    total = sum(finished.num_tokens.values())
    assert finished.bytes_per_token == pytest.approx(sum(finished.text_bytes.values()) / total)
    for store in stores.values():
        store.verify()
        assert (store.tokenizer, store.vocab_size) == (finished.tokenizer, finished.vocab_size)


def test_the_text_comes_back(finished):
    tokenizer = small_tokenizer().load(root=str(Path(str(finished.path)).parents[3])).open()
    found = []
    for split in ("train", "validation"):
        store = finished.open(split)
        begin = 0
        for end in store.document_ends().tolist():
            found.append(tokenizer.decode(store.read_windows([begin], end - begin - 1)[0].tolist()))
            begin = end
    assert sorted(found) == sorted(
        paragraph for speech in speeches()[:12] for paragraph in speech.split("\n") if paragraph
    )


def test_a_store_of_another_tokenizer_is_refused(finished):
    other = finished.model_copy(update={"tokenizer": "0" * 32}).located_at(str(finished.path))
    with pytest.raises(Mismatch, match="another tokenizer"):
        other.open("train")


def launch(root: str, *arguments: int) -> int:
    command = [sys.executable, "-m", "token_steps", root, *map(str, arguments)]
    return subprocess.run(command, cwd=TESTS, check=False).returncode


@pytest.mark.parametrize("kill_at", [1, 8, 20])
def test_killed_and_run_again_gives_the_same_bytes(kill_at, finished, tmp_path):
    root = str(tmp_path / "root")
    assert launch(root, 1, kill_at) == -signal.SIGKILL
    report = run({"tokens": build()}, root=root, backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    assert tree(build().load(root=root)) == tree(finished)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 5])
def test_bytes_do_not_depend_on_workers(workers, finished, tmp_path):
    root = str(tmp_path)
    assert launch(root, workers) == 0
    assert tree(build().load(root=root)) == tree(finished)


def test_on_an_object_store(finished):

    root = "memory://tokens-step"
    report = run({"tokens": build()}, root=root, backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    store = build().load(root=root).open("train")
    assert store.is_remote
    starts = np.arange(0, store.num_tokens - 64, 1000)
    np.testing.assert_array_equal(store.read_windows(starts, 64), finished.open("train").read_windows(starts, 64))


def test_conversations(tmp_path):
    tokenizer = train_bpe(
        some_speeches(2, 1), vocab_size=500, special_tokens=CHAT_SPECIAL_TOKENS, chat_template=DEFAULT_CHAT_TEMPLATE
    )
    tokens = tokenize_chat(some_chats(20), tokenizer=tokenizer, validation_fraction=0.3)
    report = run({"tokens": tokens}, root=str(tmp_path), backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    loaded = tokens.load(root=str(tmp_path))
    decode = tokenizer.load(root=str(tmp_path)).open().decode
    learned = ""
    for split in ("train", "validation"):
        store = loaded.open(split)
        weights = store.read_weights([0], store.num_tokens)[0]
        learned += decode(store.read_windows([0], store.num_tokens)[0][weights > 0].tolist())
    assert sorted(learned.split("<|im_end|>")) == sorted([f"Speech {k} it is." for k in range(20)] + [""])
