"""Steps that tokenize documents into token stores."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.markers import Artifact, Runtime
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.output import StepOutput
from marin_pipe.steps.tokenizers import TokenizerFiles

if TYPE_CHECKING:
    from marin_corpus.store.read import TokenStore


class Tokens(Artifact):
    """Token stores, by split: `train`, and `validation` if documents were held out."""

    tokenizer: str
    """Digest of the tokenizer that made the ids."""
    vocab_size: int
    num_tokens: dict[str, int]
    """By split; each document's end-of-sequence token counts."""
    num_documents: dict[str, int]
    text_bytes: dict[str, int]
    """UTF-8 bytes of text by split."""
    bytes_per_token: float
    """Of all splits together: what one token stands for."""

    def open(self, split: str = "train", *, cache_bytes: int = 256 << 20) -> "TokenStore":
        """The store of a split, for reading; `cache_bytes` bounds what is kept of one that is not on this machine."""
        from marin_corpus.store.read import TokenStore

        return TokenStore.open(self.path / split, tokenizer=self.tokenizer, cache_bytes=cache_bytes)


@step
def tokenize(
    documents: Documents,
    *,
    tokenizer: TokenizerFiles,
    validation_fraction: float = 0.0,
    add_bos: bool = False,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Tokens:
    """Tokenize documents, each closed by the end-of-sequence token.

    Args:
        documents: what to tokenize.
        tokenizer: whose ids to store.
        validation_fraction: share of the documents that go to the split `validation`, by a hash of their ids: adding
            documents moves none to the other side.
        add_bos: begin each document with the beginning-of-sequence token.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.store.tokenize import TokenizeConfig, tokenize_documents

    config = TokenizeConfig(validation_fraction=validation_fraction, add_bos=add_bos)
    return _artifact(tokenize_documents(documents.open(), tokenizer.path, config, StepOutput(ctx, workers=workers)))


@step
def tokenize_chat(
    documents: Documents,
    *,
    tokenizer: TokenizerFiles,
    chat_template: str | None = None,
    validation_fraction: float = 0.0,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Tokens:
    """Tokenize conversations, with loss weights: only what the assistant writes is learned.

    Args:
        documents: the text of each is `{"messages": [...]}` or `{"prompt": "...", "completion": "..."}` in JSON.
        tokenizer: whose ids to store.
        chat_template: a Jinja template for messages; None for the tokenizer's own.
        validation_fraction: as in `tokenize`.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.store.tokenize import TokenizeConfig
    from marin_corpus.store.tokenize import tokenize_chat as tokenize_conversations

    stores = tokenize_conversations(
        documents.open(),
        tokenizer.path,
        TokenizeConfig(validation_fraction=validation_fraction),
        StepOutput(ctx, workers=workers),
        chat_template=chat_template,
    )
    return _artifact(stores)


def _artifact(stores: Mapping[Any, Any]) -> Tokens:
    """Sum up manifests of stores by split."""
    first = stores["train"]
    num_tokens = {split: store.num_tokens for split, store in stores.items()}
    text_bytes = {split: store.text_bytes for split, store in stores.items()}
    return Tokens(
        tokenizer=first.tokenizer,
        vocab_size=first.vocab_size,
        num_tokens=num_tokens,
        num_documents={split: store.num_documents for split, store in stores.items()},
        text_bytes=text_bytes,
        bytes_per_token=sum(text_bytes.values()) / sum(num_tokens.values()),
    )
