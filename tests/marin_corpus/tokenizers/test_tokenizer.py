import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_corpus import chapters, speeches
from hypothesis import given, settings
from hypothesis import strategies as st
from marin_corpus.errors import BadConfig, BadInput, Mismatch
from marin_corpus.output import LocalOutput
from marin_corpus.tokenizers.byte_tokenizer import write_byte_tokenizer
from marin_corpus.tokenizers.load import load_tokenizer
from marin_corpus.tokenizers.probe import hard_strings
from marin_corpus.tokenizers.tokenizer import Tokenizer
from tokenizer_folders import write_trained
from tokenizers import Tokenizer as Reference
from tokenizers import models, normalizers, pre_tokenizers, trainers


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    return load_tokenizer(folder)


def reference_of(folder: Path) -> Reference:
    """The tokenizers library alone, which by itself would look for special tokens in text."""
    reference = Reference.from_file(str(folder / "tokenizer.json"))
    reference.encode_special_tokens = True
    return reference


@pytest.fixture(scope="module")
def reference(folder) -> Reference:
    return reference_of(folder)


def assert_equal_ids(tokenizer: Tokenizer, reference: Reference, texts: list[str]) -> None:
    expected = reference.encode_batch_fast(texts, add_special_tokens=False)
    found = tokenizer.encode_batch(texts)
    assert len(found) == len(texts)
    for text, ids, encoding in zip(texts, found, expected, strict=True):
        assert ids.dtype == np.uint32
        assert ids.tolist() == encoding.ids, repr(text[:60])


def library_sources() -> list[str]:
    """Source files of the standard library."""
    files = sorted(Path(os.__file__).parent.rglob("*.py"))
    return [file.read_text(encoding="utf-8", errors="replace") for file in files if "site-packages" not in file.parts]


HARD = {
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 1️⃣ 🇪🇺",
    "combining marks": "e\u0301 Z\u0351\u036b\u0343a\u0329l\u034dg\u0327o \u0301",
    "line ends": "a\r\nb\rc\n\r\n\r\n d\u2028e\x85",
    "NUL": "\x00a\x00\x00",
    "empty": "",
    "a letter": "a" * 1_000_000,
    "blanks": " " * 1_000_000,
    "line feeds": "x" + "\n" * 1_000_000 + "y",
    "marks": "é!" * 500_000,
    "digits": "7" * 100_001,
    "not ASCII": "漢" * 300_000,
    "noncharacters": "\ufffe\uffff\U0010ffff\ue000",
}


@pytest.mark.parametrize("name", HARD)
def test_hard_text_has_the_librarys_ids_and_comes_back(name, tokenizer, reference) -> None:
    text = HARD[name]
    assert tokenizer.engine == "tiktoken"
    assert_equal_ids(tokenizer, reference, [text])
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert (
        b"".join(tokenizer.token_bytes(token_id) for token_id in ids[:1000])
        == text.encode()[: len(tokenizer.decode_bytes(ids[:1000]))]
    )


def test_corpora_have_the_librarys_ids(tokenizer, reference) -> None:
    texts = [*speeches()[::30], *chapters()[::20], *library_sources()[::25]]
    assert sum(map(len, texts)) > 1_500_000
    assert_equal_ids(tokenizer, reference, texts)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("texts", [speeches, chapters, library_sources])
def test_all_of_the_corpora_have_the_librarys_ids(texts, tokenizer, reference) -> None:
    assert_equal_ids(tokenizer, reference, texts())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_code_point_has_the_librarys_ids_in_context(tokenizer, reference) -> None:
    points = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    contexts = ("{}", "a{}b", " {} ", "1{}2", "!{}'s", "\n{}\n", "{0}{0}")
    for begin in range(0, len(points), 50_000):
        characters = [chr(code) for code in points[begin : begin + 50_000]]
        assert_equal_ids(tokenizer, reference, ["\t".join(c.format(x) for c in contexts) for x in characters])


@given(st.lists(st.text() | st.sampled_from(list(hard_strings())[:60]), min_size=1, max_size=4).map("".join))
@settings(max_examples=200)
def test_any_text_has_the_librarys_ids_and_comes_back(tokenizer, reference, text) -> None:
    ids = tokenizer.encode(text)
    assert ids.tolist() == reference.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text


def test_text_that_spells_special_tokens_is_text(tokenizer) -> None:
    text = "a<|endoftext|><|im_start|>system <|padding|>"
    ids = tokenizer.encode(text)
    assert not set(ids.tolist()) & set(tokenizer.special_tokens.values())
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([*tokenizer.encode("a"), tokenizer.special_id("<|endoftext|>")]) == "a<|endoftext|>"
    with pytest.raises(BadConfig, match=r"'<\|nothing\|>'(.|\n)*'<\|im_end\|>'"):
        tokenizer.special_id("<|nothing|>")


def test_parts_of_characters_decode_to_replacement_characters(tokenizer) -> None:
    ids = tokenizer.encode("\U0002a6d6")
    assert len(ids) > 1
    assert tokenizer.decode(ids[:-1]) == "\ufffd"
    assert tokenizer.decode_bytes(ids[:-1]) == "\U0002a6d6".encode()[: len(tokenizer.decode_bytes(ids[:-1]))]


@pytest.mark.parametrize("text", ["a\ud800", "\udfff", "é\ud83d\ude00"])
def test_lone_surrogates_are_refused(text, tokenizer) -> None:
    with pytest.raises(BadInput, match=r"lone surrogate U\+D[8F]"):
        tokenizer.encode_batch(["fine", text])


def set_model(**options: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["model"].update(options)


def pre_tokenizer(index: int, **options: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["pre_tokenizer"]["pretokenizers"][index].update(options)


def another_split(content: dict[str, Any]) -> None:
    split = {"type": "Split", "pattern": {"Regex": "th"}, "behavior": "Isolated", "invert": False}
    content["pre_tokenizer"]["pretokenizers"].insert(0, split)


def exchange_merges(content: dict[str, Any]) -> None:
    merges = content["model"]["merges"]
    merges[100], merges[3000] = merges[3000], merges[100]


def drop_a_merge(content: dict[str, Any]) -> None:
    # Its token stays in the vocabulary; tiktoken would still merge to it.
    del content["model"]["merges"][50]


def other_way_to_a_token(content: dict[str, Any]) -> None:
    # A token of three whose merge begins with the other pair.
    model = content["model"]
    for index, (first, second) in enumerate(model["merges"]):
        if len(second) == 1 and len(first) == 2 and first[1] + second in model["vocab"]:
            model["merges"][index] = [first[0], first[1] + second]
            return
    raise AssertionError("no such merge")


def token_to_find(content: dict[str, Any]) -> None:
    content["added_tokens"].append(
        {
            "id": len(content["model"]["vocab"]),
            "content": "government",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": False,
        }
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content.update(normalizer={"type": "NFC"}), "changes text before it cuts it: NFC"),
        (another_split, "cuts text by 2 patterns"),
        (pre_tokenizer(0, behavior="MergedWithPrevious"), "cuts text by Split"),
        (pre_tokenizer(0, pattern={"String": " "}), "cuts text by Split"),
        (pre_tokenizer(0, type="Digits", individual_digits=True), "cuts text by Digits"),
        (pre_tokenizer(1, use_regex=True), "cuts text by 2 patterns"),
        (pre_tokenizer(1, add_prefix_space=True), "not turned into bytes as they are"),
        (lambda content: content.update(pre_tokenizer={"type": "Whitespace"}), "not turned into bytes"),
        (set_model(byte_fallback=True), "byte_fallback=True"),
        (set_model(end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (exchange_merges, "order of their tokens' ids"),
        (drop_a_merge, "merges do not lead to the token"),
        (other_way_to_a_token, "merges do not lead to the token"),
        (token_to_find, "looks for the added token 'government'"),
        (lambda content: content["model"]["vocab"].update({"中": 5000}), "not written in the byte-level alphabet"),
        (lambda content: content["model"]["vocab"].pop("Ā"), "lacks the byte 0x00"),
    ],
)
def test_what_tiktoken_lacks_is_encoded_by_the_library(change, reason, tmp_path) -> None:
    folder = write_trained(tmp_path, change)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.engine == "tokenizers"
    assert reason in tokenizer.engine_reason
    assert_equal_ids(tokenizer, reference_of(folder), [*hard_strings(), speeches()[40][:50_000], "the government's"])


@pytest.mark.parametrize(
    "change",
    [
        set_model(ignore_merges=True),
        set_model(unk_token="<|endoftext|>"),
        lambda content: content["model"].update(merges=[" ".join(merge) for merge in content["model"]["merges"]]),
        lambda content: content.update(
            post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
        ),
    ],
)
def test_what_changes_no_ids_stays_with_tiktoken(change, tmp_path) -> None:
    folder = write_trained(tmp_path, change)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.engine == "tiktoken"
    assert_equal_ids(tokenizer, reference_of(folder), [*hard_strings(), speeches()[40]])


def test_merges_that_only_whole_words_skip_are_not_taken_for_tiktokens(tmp_path) -> None:
    # With ignore_merges a word that is a token gets its id without any merge; within longer words it does not.
    def change(content: dict[str, Any]) -> None:
        content["model"]["ignore_merges"] = True
        drop_a_merge(content)

    folder = write_trained(tmp_path, change)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.engine == "tokenizers"
    assert_equal_ids(tokenizer, reference_of(folder), speeches()[:3])


def test_word_piece(tmp_path) -> None:
    reference = Reference(models.WordPiece(unk_token="[UNK]"))
    reference.normalizer = normalizers.Lowercase()
    reference.pre_tokenizer = pre_tokenizers.Whitespace()
    reference.train_from_iterator(
        speeches()[:3], trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[UNK]"], show_progress=False)
    )
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.engine, tokenizer.engine_reason) == ("tokenizers", "its model is WordPiece, not BPE")
    assert_equal_ids(tokenizer, reference_of(tmp_path), [*hard_strings(), speeches()[5]])
    ids = tokenizer.encode("We hold these truths")
    assert tokenizer.decode(ids) == reference.decode(ids.tolist())
    with pytest.raises(BadConfig, match="not byte-level"):
        tokenizer.token_bytes(3)


def test_the_digest_is_of_what_decides_ids_and_of_nothing_else(folder, tmp_path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())

    def digest(name: str, content: dict[str, Any], config: dict[str, Any]) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(content))
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps(config))
        return load_tokenizer(tmp_path / name).digest

    first = load_tokenizer(folder).digest
    shuffled = dict(reversed(content.items())) | {"decoder": {**content["decoder"], "trim_offsets": False}}
    model = dict(reversed(content["model"].items()))
    shuffled["model"] = model | {
        "vocab": dict(reversed(model["vocab"].items())),
        "merges": [" ".join(merge) for merge in model["merges"]],
    }
    assert digest("layout", shuffled, {**config, "model_max_length": 5, "chat_template": "x"}) == first
    others = [digest("eos", content, {**config, "eos_token": "<|im_end|>"})]
    others.append(digest("no pad", content, {key: value for key, value in config.items() if key != "pad_token"}))
    for name, change in {
        "merges": exchange_merges,
        "normalizer": lambda content: content.update(normalizer={"type": "NFC"}),
        "pieces": pre_tokenizer(1, use_regex=True),
        "added": token_to_find,
        "vocabulary": lambda content: content["model"]["vocab"].update({"ĀĀĀ": 4096}),
    }.items():
        changed = json.loads(json.dumps(content))
        change(changed)
        others.append(digest(name, changed, config))
    assert len({first, *others}) == 1 + len(others)


def test_bytes_are_the_ids_of_the_byte_tokenizer(tmp_path) -> None:
    tokenizer = write_byte_tokenizer(LocalOutput(tmp_path))
    assert load_tokenizer(tmp_path).digest == tokenizer.digest
    assert (tokenizer.engine, tokenizer.vocab_size, tokenizer.eos_id, tokenizer.pad_id) == ("tiktoken", 258, 256, 257)
    for text in (*hard_strings(), *HARD.values()):
        ids = tokenizer.encode(text)
        assert ids.astype(np.uint8).tobytes() == text.encode()
        assert ids.size == 0 or ids.max() < 256
        assert tokenizer.decode_bytes(ids) == text.encode()


def test_templates_and_roles_are_read_where_hubs_put_them(folder, tmp_path) -> None:
    for name in ("tokenizer.json",):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert load_tokenizer(tmp_path).chat_template is None
    templates = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    config = {"eos_token": {"content": "<|im_end|>", "special": True}, "chat_template": templates}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<|padding|>", "bos_token": "<|endoftext|>"}')
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.chat_template == "plain"
    assert tokenizer.eos_id == tokenizer.special_id("<|im_end|>")
    assert tokenizer.bos_id == tokenizer.special_id("<|endoftext|>")
    assert tokenizer.pad_id is None
    (tmp_path / "chat_template.jinja").write_text("own file\n")
    assert load_tokenizer(tmp_path).chat_template == "own file\n"


def test_a_folder_without_tokenizer_is_refused(tmp_path) -> None:
    with pytest.raises(Mismatch, match=r"nowhere holds no tokenizer(.|\n)*train_bpe"):
        load_tokenizer(tmp_path / "nowhere")


def test_transformers_reads_the_same_tokenizer(folder, tokenizer) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from marin_corpus.tokenizers.chat import encode_chat

    other = transformers.AutoTokenizer.from_pretrained(str(folder))
    assert (other.eos_token_id, other.pad_token_id) == (tokenizer.eos_id, tokenizer.pad_id)
    for text in hard_strings():
        ids = tokenizer.encode(text).tolist()
        assert other(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] == ids
        assert other.decode(ids) == text
    messages = [
        {"role": "user", "content": "What is 179 x 4571?\n"},
        {"role": "assistant", "content": "818,209 👍🏽"},
        {"role": "user", "content": "  Thanks\r\n"},
        {"role": "assistant", "content": "You are welcome. \n"},
    ]
    ids, mask = encode_chat(tokenizer, messages)
    encoded = other.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True, tokenize=True)
    assert encoded["input_ids"] == ids.tolist()
    assert list(encoded["assistant_masks"]) == mask.tolist()
