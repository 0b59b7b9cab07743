"""Peak memory of a worker that tokenizes: 2 GB of synthetic documents in one part, with a few of several MB.

The baseline is 1 GiB, what a worker may use. Run as a program it is that worker.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.output import LocalOutput
from marin_corpus.store.tokenize import TokenizeConfig, tokenize_documents

from tests.benchmarks.measure import REPOSITORY, Row, against, python
from tests.demo_corpus import chapters, train_bpe

TOTAL_BYTES = 2_000_000_000
_GIANT_EVERY_BYTES = 200_000_000


def write_corpus(folder: Path, total_bytes: int) -> None:
    """Passages of real chapters in random order, between 1 and 30 of them a document, now and then 2,000."""
    texts = chapters()
    rng = random.Random(0)
    folder.mkdir()
    size, giant_at = 0, 0
    with DocumentWriter(folder / "part-00000", part_text_bytes=total_bytes * 2) as writer:
        while size < total_bytes:
            text = "\n".join(rng.choices(texts, k=2000 if size >= giant_at else rng.randint(1, 30)))
            giant_at += _GIANT_EVERY_BYTES if size >= giant_at else 0
            writer.add(text, source="synthetic")
            size += len(text)
    write_documents_manifest(LocalOutput(folder), writer.summary())


def rows(runs: int) -> Iterator[Row]:
    del runs  # one is minutes long, and memory does not vary
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train_bpe(chapters(), 32_768, folder / "tokenizer")
        write_corpus(folder / "documents", TOTAL_BYTES)
        done = subprocess.run(
            python("-m", "tests.benchmarks.tokenization_memory", name),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout)
        label = f"tokenize-memory: {TOTAL_BYTES / 1e9:g} GB of documents"
        yield against(label, found["peak_mib"], "MiB", baseline=1024, runs=1)
        yield against(f"{label}, rate", TOTAL_BYTES / 1e6 / found["cpu_s"], "MB per CPU second", baseline=None, runs=1)


def main() -> None:
    folder = Path(sys.argv[1])
    documents = DocumentSet.open(folder / "documents")
    tokenize_documents(documents, folder / "tokenizer", TokenizeConfig(), LocalOutput(folder / "tokens"))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"peak_mib": _peak_mib(), "cpu_s": usage.ru_utime + usage.ru_stime}))


def _peak_mib() -> float:
    """Of this program alone: `ru_maxrss` would include what its parent held when it started this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024


if __name__ == "__main__":
    main()
