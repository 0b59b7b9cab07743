"""Where tiktoken reads a tokenizer.json in another way than the library it comes from."""

import json

import pytest
import tokenizers
from marin_corpus.tokenizers.byte_level import CHARACTER_OF_BYTE
from marin_corpus.tokenizers.byte_tokenizer import byte_tokenizer_content
from marin_corpus.tokenizers.chat import encode_chat
from marin_corpus.tokenizers.tokenizer import SpecialTokens, Tokenizer

TEXTS = ["☃", "a☃b", "☃☃ a", "ab ☃ab☃", "x\n☃", "abc abcabc", ""]


def check(content: dict) -> Tokenizer:
    """Ids of the library, and every byte comes back."""
    tokenizer = Tokenizer(content, SpecialTokens(eos="<|endoftext|>"))
    reference = tokenizers.Tokenizer.from_str(json.dumps(content))
    for text in TEXTS:
        assert tokenizer.encode(text).tolist() == reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(tokenizer.encode(text)) == text
    return tokenizer


@pytest.mark.parametrize("pattern", [r"[^☃]+", r"[a-z]+", r"\n", r"ab|☃a"])
def test_text_that_the_pattern_leaves_out_is_kept(pattern) -> None:
    content = byte_tokenizer_content()
    content["model"]["vocab"] |= {"ab": 258, "Ġa": 259}
    content["model"]["merges"] = [["a", "b"], ["Ġ", "a"]]
    content["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    }
    assert check(content).engine == "tiktoken"


def test_several_merges_for_one_token() -> None:
    content = byte_tokenizer_content()
    content["model"]["vocab"] |= {"ab": 258, "bc": 259, "abc": 260}
    content["model"]["merges"] = [["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]]
    assert check(content).engine == "tiktoken"


def test_a_listed_merge_that_never_happens_within_half_a_character() -> None:
    # The second and third bytes merge first, so "first, second" + "third" never meet.
    first, second, third, _ = (CHARACTER_OF_BYTE[byte] for byte in "🧬".encode())
    content = byte_tokenizer_content()
    content["model"]["vocab"] |= {second + third: 258, first + second: 259, first + second + third: 260}
    content["model"]["merges"] = [[second, third], [first, second], [first + second, third]]
    tokenizer = Tokenizer(content, SpecialTokens(eos="<|endoftext|>"))
    assert tokenizer.encode("🧬").tolist() == tokenizers.Tokenizer.from_str(json.dumps(content)).encode("🧬").ids
    assert tokenizer.engine == "tokenizers"


def test_templates_see_no_tools_and_no_documents_as_none() -> None:
    # As transformers calls them: templates ask `is not none` without asking whether they are defined.
    template = (
        "{% if tools is not none or documents is not none %}something{% endif %}"
        "{% for message in messages %}{% generation %}{{ message.content }}{% endgeneration %}{% endfor %}"
    )
    tokenizer = Tokenizer(byte_tokenizer_content(), SpecialTokens(eos="<|endoftext|>"))
    ids, mask = encode_chat(tokenizer, [{"role": "assistant", "content": "hi"}], template=template)
    assert (tokenizer.decode(ids), mask.tolist()) == ("hi", [1, 1])
