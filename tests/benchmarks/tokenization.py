"""Documents to a token store, in one process: 10 MB of the State of the Union addresses and the King James Bible.

An own byte-level BPE of 32,768 tokens is trained on the same text first (not measured). The baseline encodes the texts
with Hugging Face's `encode_batch_fast` in one thread and keeps nothing.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.output import LocalOutput
from marin_corpus.store.tokenize import TokenizeConfig, tokenize_documents
from marin_corpus.tokenizers.load import load_tokenizer

from tests.benchmarks.measure import Row, against
from tests.demo_corpus import chapters, speeches, train_bpe

MAX_BYTES = 10_000_000
VOCAB_SIZE = 32_768


def corpus() -> list[str]:
    """Whole chapters and speeches, together at most 10 MB."""
    texts, size = [], 0
    for text in [*chapters(), *speeches()]:
        size += len(text.encode())
        if size > MAX_BYTES:
            break
        texts.append(text)
    return texts


def write_documents(folder: Path, texts: list[str]) -> DocumentSet:
    folder.mkdir(parents=True)
    with DocumentWriter(folder / "part-00000") as writer:
        for text in texts:
            writer.add(text, source="corpus")
    write_documents_manifest(LocalOutput(folder), writer.summary())
    return DocumentSet.open(folder)


def rows(runs: int) -> Iterator[Row]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = corpus()
        size_mb = sum(len(text.encode()) for text in texts) / 1e6
        documents = write_documents(folder / "documents", texts)
        hugging_face = train_bpe(texts, VOCAB_SIZE, folder / "tokenizer")
        ours, theirs, loading = [], [], []
        for run in range(runs):
            begin = time.process_time()
            stores = tokenize_documents(
                documents, folder / "tokenizer", TokenizeConfig(), LocalOutput(folder / f"run-{run}")
            )
            ours.append(size_mb / (time.process_time() - begin))
            begin = time.process_time()
            encoded = hugging_face.encode_batch_fast(texts, add_special_tokens=False)
            theirs.append(size_mb / (time.process_time() - begin))
            begin = time.process_time()
            load_tokenizer(folder / "tokenizer")
            loading.append(time.process_time() - begin)
            assert stores["train"].num_tokens == sum(len(one.ids) for one in encoded) + len(texts)
        yield against(
            f"tokenize: {size_mb:.1f} MB of documents to a token store, vocabulary {VOCAB_SIZE}",
            statistics.median(ours),
            "MB per CPU second",
            baseline=statistics.median(theirs),
            runs=runs,
        )
        label = "tokenize: of it, loading the tokenizer, once for each worker"
        yield against(label, statistics.median(loading), "CPU seconds", baseline=None, runs=runs)
