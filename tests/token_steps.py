"""A small pipeline up to token stores: `python -m token_steps ROOT WORKERS [KILL_AT]`.

With KILL_AT the process kills itself when the files of parts are written to for the KILL_ATth time.
"""

import json
import os
import signal
import sys

from demo_corpus import speeches
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest

from marin_pipe import Step, StepContext, run, step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.documents import documents_artifact
from marin_pipe.steps.output import StepOutput
from marin_pipe.steps.tokenizers import TokenizerFiles, train_bpe
from marin_pipe.steps.tokens import Tokens, tokenize


@step
def some_speeches(num_speeches: int, num_parts: int, *, ctx: StepContext) -> Documents:
    """Paragraphs of the first speeches, as documents in several parts."""
    parts = []
    for part in range(num_parts):
        with DocumentWriter(ctx.local_output() / f"part-{part:03d}") as writer:
            for speech in speeches()[part:num_speeches:num_parts]:
                for paragraph in filter(None, speech.split("\n")):
                    writer.add(paragraph, source="speeches")
        parts += writer.summary()
    write_documents_manifest(StepOutput(ctx), parts)
    return documents_artifact(parts)


@step
def some_chats(num_chats: int, *, ctx: StepContext) -> Documents:
    """Conversations as documents."""
    with DocumentWriter(ctx.local_output() / "part-000") as writer:
        for k in range(num_chats):
            messages = [
                {"role": "user", "content": f"Which speech is number {k}?"},
                {"role": "assistant", "content": f"Speech {k} it is."},
            ]
            writer.add(json.dumps({"messages": messages}), source="chats")
    write_documents_manifest(StepOutput(ctx), writer.summary())
    return documents_artifact(writer.summary())


def small_tokenizer() -> Step[TokenizerFiles]:
    """A byte-level BPE of two speeches."""
    return train_bpe(some_speeches(2, 1), vocab_size=500)


def build(workers: int = 1) -> Step[Tokens]:
    """Tokens of 12 speeches in 6 parts."""
    return tokenize(some_speeches(12, 6), tokenizer=small_tokenizer(), validation_fraction=0.1, workers=workers).named(
        "tokens"
    )


def _kill_at(count: int) -> None:
    from marin_corpus.store.write import TokenWriter

    write, left = TokenWriter._write, [count]

    def counted(*arguments: object) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        write(*arguments)  # type: ignore[arg-type]

    TokenWriter._write = counted  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    if len(sys.argv) > 3:
        _kill_at(int(sys.argv[3]))
    report = run({"tokens": build(int(sys.argv[2]))}, root=sys.argv[1], backend="inline")
    sys.exit(0 if report.ok else 1)
