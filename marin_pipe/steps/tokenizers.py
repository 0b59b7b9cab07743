"""Steps that make tokenizers: trained, of bytes, or from files."""

from typing import TYPE_CHECKING

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.inputs import InputFiles
from marin_pipe.execution.markers import Artifact, Runtime
from marin_pipe.execution.secret import Secret
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.output import StepOutput

if TYPE_CHECKING:
    from marin_corpus.tokenizers.tokenizer import Tokenizer


class TokenizerFiles(Artifact):
    """A tokenizer as hubs lay it out: `tokenizer.json`, `tokenizer_config.json`, and a chat template if it has one."""

    vocab_size: int
    """Every id is below it."""
    digest: str
    """Of everything that decides ids; token stores carry it."""
    bytes_per_token: float | None = None
    """UTF-8 bytes a token, where a text was at hand to measure on."""
    has_chat_template: bool = False

    def open(self) -> "Tokenizer":
        """The tokenizer, for encoding and decoding."""
        from marin_corpus.tokenizers.load import load_tokenizer

        return load_tokenizer(self.path)


@step
def train_bpe(
    documents: Documents | tuple[Documents, ...],
    *,
    vocab_size: int = 32_768,
    special_tokens: tuple[str, ...] = (),
    max_digits: int = 3,
    sample_bytes: int = 10 << 20,
    held_out_bytes: int = 1 << 20,
    chat_template: str | None = None,
    ctx: StepContext,
) -> TokenizerFiles:
    """Train a byte-level BPE tokenizer on a sample of documents, and measure it on documents it has not seen.

    Args:
        documents: what to learn from; several sets count by their sizes.
        vocab_size: tokens in all: 256 bytes, special tokens, and one for each merge.
        special_tokens: beyond end of text and padding, such as `CHAT_SPECIAL_TOKENS`.
        max_digits: digits that one token may hold.
        sample_bytes: text to learn from. More hardly changes the vocabulary; the time grows with it.
        held_out_bytes: text to measure `bytes_per_token` on.
        chat_template: a Jinja template to store with the tokenizer, such as `DEFAULT_CHAT_TEMPLATE`.
        ctx: filled in by the engine.
    """
    from marin_corpus.tokenizers.bpe import BpeConfig
    from marin_corpus.tokenizers.bpe import train_bpe as train

    config = BpeConfig(
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        max_digits=max_digits,
        sample_bytes=sample_bytes,
        held_out_bytes=held_out_bytes,
        chat_template=chat_template,
    )
    sets = (documents,) if isinstance(documents, Documents) else documents
    result = train([each.open() for each in sets], config, StepOutput(ctx))
    return TokenizerFiles(
        vocab_size=result.vocab_size,
        digest=result.digest,
        bytes_per_token=result.bytes_per_token,
        has_chat_template=chat_template is not None,
    )


@step
def byte_tokenizer(*, ctx: StepContext) -> TokenizerFiles:
    """Make the tokenizer whose tokens are the 256 bytes, end of text and padding."""
    from marin_corpus.tokenizers.byte_tokenizer import write_byte_tokenizer

    tokenizer = write_byte_tokenizer(StepOutput(ctx))
    return TokenizerFiles(vocab_size=tokenizer.vocab_size, digest=tokenizer.digest, bytes_per_token=1.0)


@step
def tokenizer_from_files(
    files: InputFiles, *, secrets: Runtime[tuple[Secret, ...]] = (), ctx: StepContext
) -> TokenizerFiles:
    """Copy a tokenizer of a local or remote folder: `tokenizer.json` and what belongs to it.

    Args:
        files: `InputFiles("folder/*")`. Of these only `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`
            and `special_tokens_map.json` are copied; name them ("folder/*token*") so that others do not bear identity.
        secrets: variables that reading the files needs, such as `Secret("HF_TOKEN")`: the step stops if one is missing.
        ctx: filled in by the engine.
    """
    from marin_corpus.tokenizers.files import copy_tokenizer

    for secret in secrets:
        secret.reveal()
    known = files if files.entries else files.resolved()
    tokenizer = copy_tokenizer(known.paths, StepOutput(ctx), check=known.check_content)
    return TokenizerFiles(
        vocab_size=tokenizer.vocab_size,
        digest=tokenizer.digest,
        has_chat_template=tokenizer.chat_template is not None,
    )
