import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_corpus import EOS, train_bpe
from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.schema import document_id
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.output import LocalOutput
from marin_corpus.store.read import TokenStore
from marin_corpus.store.tokenize import TokenizeConfig, tokenize_chat
from marin_corpus.tokenizers.load import load_tokenizer
from marin_corpus.tokenizers.templates import CHAT_SPECIAL_TOKENS, DEFAULT_CHAT_TEMPLATE
from speeches import write_documents

CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"Say {EOS} and <|im_end|>."},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "Because."},
    ]
}
PAIR = {"prompt": "1 + 1 =", "completion": " 2"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    texts = ["system user assistant Be brief. Because. 1 + 1 = 2 Why? No."] * 3
    train_bpe(texts, 300, folder, special_tokens=CHAT_SPECIAL_TOKENS)
    return folder


def make(folder: Path, conversations: list[Any]) -> DocumentSet:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in conversations]
    return write_documents(folder, texts, num_parts=2)


def tokens_and_weights(store: TokenStore) -> list[tuple[list[int], list[float]]]:
    ends = store.document_ends().tolist()
    return [
        (store.read_windows([begin], end - begin)[0].tolist(), store.read_weights([begin], end - begin)[0].tolist())
        for begin, end in zip([0, *ends], ends, strict=False)
    ]


def test_the_loss_counts_what_the_assistant_writes(tokenizer, tmp_path):
    documents = make(tmp_path / "documents", [CHAT, PAIR, CHAT])
    output = LocalOutput(tmp_path / "out")
    tokenize_chat(documents, tokenizer, TokenizeConfig(), output, chat_template=DEFAULT_CHAT_TEMPLATE)
    store = TokenStore.open(tmp_path / "out" / "train")
    assert store.has_mask
    loaded = load_tokenizer(tokenizer)
    eos = loaded.special_id(EOS)
    chat, pair, again = tokens_and_weights(store)
    assert again == chat
    for (tokens, weights), whole, learned in (
        (
            chat,
            f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay {EOS} and <|im_end|>.<|im_end|>\n"
            "<|im_start|>assistant\nNo.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
            f"<|im_start|>assistant\nBecause.<|im_end|>\n{EOS}",
            "No.<|im_end|>Because.<|im_end|>",
        ),
        (pair, f"1 + 1 = 2{EOS}", f" 2{EOS}"),
    ):
        assert loaded.decode(tokens) == whole
        assert set(weights) == {0.0, 1.0}
        assert loaded.decode([token for token, weight in zip(tokens, weights, strict=True) if weight]) == learned
        # What a message spells out does not end the document.
        assert tokens.count(eos) == 1
    assert store.document_ids(np.arange(3)) == [document_id(json.dumps(each)) for each in (CHAT, PAIR, CHAT)]
    store.verify()


@pytest.mark.parametrize(
    ("conversation", "problem"),
    [
        ("not JSON", "not JSON"),
        ({"messages": []}, "at least one"),
        ({"messages": [{"role": "user", "content": "x"}]}, "none of the 1 messages"),
        ({"text": "x"}, "object of 'text'"),
    ],
)
def test_what_is_no_conversation_is_named(conversation, problem, tokenizer, tmp_path):
    documents = make(tmp_path / "documents", [CHAT, conversation])
    text = conversation if isinstance(conversation, str) else json.dumps(conversation)
    with pytest.raises(BadInput, match=rf"document {document_id(text)} of .*part-00001(.|\n)*{problem}"):
        tokenize_chat(
            documents,
            tokenizer,
            TokenizeConfig(),
            LocalOutput(tmp_path / "out"),
            chat_template=DEFAULT_CHAT_TEMPLATE,
        )
    assert not list((tmp_path / "out").rglob("manifest.json"))


def test_templates_that_do_not_fit(tokenizer, tmp_path):
    documents = make(tmp_path / "documents", [CHAT])
    output = LocalOutput(tmp_path / "out")
    with pytest.raises(BadConfig, match="no chat template"):
        tokenize_chat(documents, tokenizer, TokenizeConfig(), output)
    with pytest.raises(BadConfig, match=r"<\|turn\|>"):
        tokenize_chat(documents, tokenizer, TokenizeConfig(), output, chat_template="<|turn|>{{ messages }}")
    with pytest.raises(BadConfig, match="add_bos"):
        tokenize_chat(documents, tokenizer, TokenizeConfig(add_bos=True), output)


def test_prompts_with_completions_need_no_template(tokenizer, tmp_path):
    documents = make(tmp_path / "documents", [PAIR])
    tokenize_chat(documents, tokenizer, TokenizeConfig(), LocalOutput(tmp_path / "out"))
    assert TokenStore.open(tmp_path / "out" / "train").num_documents == 1
