import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from marin_corpus.errors import BadInput, Mismatch
from marin_corpus.tokenizers.chat import encode_chat
from marin_corpus.tokenizers.templates import CHAT_SPECIAL_TOKENS, DEFAULT_CHAT_TEMPLATE
from speeches import paragraphs, speeches
from text_steps import artifact, fill
from tokenizers import Tokenizer
from upath import UPath

from marin_pipe import InputFiles, StepContext, run, step
from marin_pipe.execution.inputs import InputChanged
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.tokenizers import TokenizerFiles, byte_tokenizer, tokenizer_from_files, train_bpe

TEXT = "Fellow citizens, 12345 of you — <|endoftext|> 👍🏽\r\n"


@step
def some_speeches(first_year: int, last_year: int, *, ctx: StepContext) -> Documents:
    """Paragraphs of speeches of these years."""
    return fill(ctx, paragraphs(speeches(first_year, last_year))[:400])


def test_trained_tokenizers_through_the_engine(tmp_path: Path) -> None:
    old, new = some_speeches(1850, 1860), some_speeches(1990, 2000)
    one = train_bpe(old, vocab_size=600, special_tokens=("<|turn|>",))
    both = train_bpe((old, new), vocab_size=600)
    report = run({"one": one, "both": both, "bytes": byte_tokenizer()}, root=str(tmp_path / "root"), backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    digests = set()
    for handle in (one, both, byte_tokenizer()):
        files = handle.load(root=str(tmp_path / "root"))
        tokenizer = files.open()
        assert (files.vocab_size, files.digest) == (tokenizer.vocab_size, tokenizer.digest)
        assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
        digests.add(files.digest)
    assert len(digests) == 3
    assert byte_tokenizer().load(root=str(tmp_path / "root")).bytes_per_token == 1
    # A pipeline's trained tokenizer is one that can be brought in again from its files.
    trained = one.load(root=str(tmp_path / "root"))
    copied = tokenizer_from_files(InputFiles(f"{trained.path}/*"))
    report = run({"copied": copied}, root=str(tmp_path / "other"), backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    again = copied.load(root=str(tmp_path / "other"))
    assert again.digest == trained.digest
    assert again.open().special_tokens == trained.open().special_tokens
    assert sorted(again.open().special_tokens) == ["<|endoftext|>", "<|padding|>", "<|turn|>"]


def test_bytes_per_token_is_that_of_held_out_text(tmp_path: Path) -> None:
    documents = artifact(tmp_path / "documents", paragraphs(speeches(1990, 2000)))
    ctx = StepContext.for_test(tmp_path / "tokenizer")
    files = train_bpe.fn(documents, vocab_size=2000, ctx=ctx)
    reference = Tokenizer.from_file(str(ctx.output / "tokenizer.json"))
    fresh = "\n".join(paragraphs(speeches(1985, 1989))[:200])
    measured = len(fresh.encode()) / len(reference.encode(fresh).ids)
    assert files.bytes_per_token == pytest.approx(measured, rel=0.1)
    assert measured > 2


def make_folder(folder: Path, **files: str) -> InputFiles:
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return InputFiles(f"{folder}/*").resolved()


def test_only_the_files_of_a_tokenizer_are_copied(tmp_path: Path) -> None:
    ctx = StepContext.for_test(tmp_path / "made")
    byte_tokenizer.fn(ctx=ctx)
    content = (ctx.output / "tokenizer.json").read_text()
    files = make_folder(
        tmp_path / "hub",
        tokenizer__json=content,
        special_tokens_map__json='{"eos_token": {"content": "<|endoftext|>"}}',
        chat_template__jinja="{{ messages }}",
        README__md="hello",
    )
    ctx = StepContext.for_test(tmp_path / "copy")
    copied = tokenizer_from_files.fn(files, ctx=ctx)
    assert {file.name for file in ctx.output.iterdir()} == {
        "tokenizer.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    }
    opened = cast(TokenizerFiles, copied.located_at(str(ctx.output))).open()
    assert (opened.eos_id, opened.bos_id, opened.pad_id) == (256, None, None)
    assert opened.chat_template == "{{ messages }}"
    assert copied.has_chat_template


def test_a_tokenizer_of_a_remote_folder(tmp_path: Path) -> None:
    made = StepContext.for_test(tmp_path / "made")
    byte_tokenizer.fn(ctx=made)
    remote = UPath("memory://hub/bytes")
    remote.mkdir(parents=True)
    for file in made.output.iterdir():
        (remote / file.name).write_bytes(file.read_bytes())
    ctx = StepContext.for_test(tmp_path / "copy")
    copied = tokenizer_from_files.fn(InputFiles("memory://hub/bytes/*").resolved(), ctx=ctx)
    assert copied.vocab_size == 258
    assert {file.name: file.read_bytes() for file in ctx.output.iterdir()} == {
        file.name: file.read_bytes() for file in made.output.iterdir()
    }


def test_other_content_than_was_listed_is_not_copied(tmp_path: Path) -> None:
    """As a mirror gives it that lists the files of a hub and serves others."""
    ctx = StepContext.for_test(tmp_path / "made")
    byte_tokenizer.fn(ctx=ctx)
    content = (ctx.output / "tokenizer.json").read_text()
    files = make_folder(tmp_path / "hub", tokenizer__json=content)
    (tmp_path / "hub" / "tokenizer.json").write_text(content.replace("<|padding|>", "<|PADDING|>"))
    ctx = StepContext.for_test(tmp_path / "copy")
    with pytest.raises(InputChanged, match=r"tokenizer\.json is not what was listed"):
        tokenizer_from_files.fn(files, ctx=ctx)
    assert list(ctx.output.iterdir()) == []


def test_a_chat_template_travels_with_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = train_bpe(
        some_speeches(1990, 2000),
        vocab_size=500,
        special_tokens=CHAT_SPECIAL_TOKENS,
        chat_template=DEFAULT_CHAT_TEMPLATE,
    )
    report = run({"tokenizer": tokenizer}, root=str(tmp_path), backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    files = tokenizer.load(root=str(tmp_path))
    assert files.has_chat_template
    opened = files.open()
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Fellow citizens"}]
    ids, mask = encode_chat(opened, messages)
    assert opened.decode(ids[mask == 1]) == "Fellow citizens<|im_end|>"
    assert not mask[-1]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, Mismatch, r"one tokenizer\.json, and there are 0(.|\n)*README\.md(.|\n)*InputFiles"),
        ("{", BadInput, r"tokenizer\.json is not JSON"),
        ('{"model": {"type": "BPE"}}', BadInput, r"tokenizer\.json is not a tokenizer"),
        ("{}", BadInput, "has no model"),
        ("[]", BadInput, "no JSON object"),
    ],
)
def test_what_is_no_tokenizer_is_refused_before_anything_is_written(content, error, message, tmp_path: Path) -> None:
    files = {"README__md": "hello"} | ({} if content is None else {"tokenizer__json": content})
    ctx = StepContext.for_test(tmp_path / "out")
    with pytest.raises(error, match=message):
        tokenizer_from_files.fn(make_folder(tmp_path / "hub", **files), ctx=ctx)
    assert list(ctx.output.iterdir()) == []


def test_a_role_that_the_vocabulary_lacks_names_the_folder(tmp_path: Path) -> None:
    made = StepContext.for_test(tmp_path / "made")
    byte_tokenizer.fn(ctx=made)
    content = (made.output / "tokenizer.json").read_text()
    config = json.dumps({"eos_token": "</s>"})
    files = make_folder(tmp_path / "hub", tokenizer__json=content, tokenizer_config__json=config)
    with pytest.raises(BadInput, match=r"hub(.|\n)*'</s>'"):
        tokenizer_from_files.fn(files, ctx=StepContext.for_test(tmp_path / "out"))


def test_a_driver_starts_without_the_libraries_that_tokenize() -> None:
    code = (
        "import sys, marin_pipe.steps.tokenizers; "
        "print([name for name in ('numpy', 'tokenizers', 'tiktoken', 'jinja2', 'pyarrow') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
