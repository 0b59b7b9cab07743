import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from speeches import files_of

from marin_pipe import Step, StepContext, run, step
from marin_pipe.execution.shards import ShardsStopped
from marin_pipe.steps.artifacts import Attributes, Documents
from marin_pipe.steps.dedup import (
    find_exact_duplicates,
    find_near_duplicates,
    find_repeated_paragraphs,
    minhash,
    near_duplicates,
)
from marin_pipe.steps.documents import documents_artifact
from marin_pipe.steps.output import StepOutput

PAGE = "It is a long paragraph that stands on every page, and nobody reads it twice."


@step
def pages(*, texts: tuple[str, ...], num_parts: int = 2, ctx: StepContext) -> Documents:
    """Documents of these texts."""
    from marin_corpus.documents.write import DocumentWriter, write_documents_manifest

    parts = []
    for index in range(num_parts):
        with DocumentWriter(Path(str(ctx.output / f"part-{index}.parquet")), part_text_bytes=None) as writer:
            for text in texts[index::num_parts]:
                writer.add(text, source="test")
        parts += writer.summary()
    write_documents_manifest(StepOutput(ctx, workers=1), parts)
    return documents_artifact(parts)


@step
def columns(found: list[Attributes]) -> list[list[str]]:
    """A consumer of any attributes."""
    return [list(attributes.open().columns) for attributes in found]


def story(seed, num_words=200):
    return " ".join(f"w{(seed * 7919 + k * k) % 1000}" for k in range(num_words))


def test_all_kinds_through_the_engine(tmp_path):
    texts = (story(1), f"{PAGE}\n\nOne.", story(1) + " end", f"Two.\n\n{PAGE}", story(1), story(2))
    documents = pages(texts=texts, num_parts=1)
    found: dict[str, Step[Any]] = {
        "exact": find_exact_duplicates(documents),
        "paragraphs": find_repeated_paragraphs(documents),
        "near": find_near_duplicates(documents),
        "against": find_exact_duplicates(pages(texts=(story(2), story(3))).named("more"), against=[documents]),
    }
    names = columns(list(found.values())).named("columns")
    assert run({**found, "columns": names}, root=str(tmp_path), backend="inline").exit_code == 0
    loaded = {name: handle.load(root=str(tmp_path)) for name, handle in found.items()}
    assert loaded["exact"].sums == {"exact_duplicate": 1}
    assert loaded["paragraphs"].sums["num_repeated_paragraphs"] == 2
    assert loaded["near"].sums == {"near_duplicate": 3}
    assert loaded["near"].cluster_sizes == {"2": 1, "3": 1}
    assert loaded["near"].precision == 1.0
    assert loaded["against"].sums == {"exact_duplicate": 1}
    assert names.load(root=str(tmp_path))[0] == ["exact_duplicate", "exact_duplicate_of"]


def in_folder(artifact, folder):
    return artifact.located_at(str(folder / "attempt" / "output"))


def test_steps_as_plain_functions(tmp_path):
    made = pages.fn(texts=(story(1), story(1), story(2)), ctx=StepContext.for_test(tmp_path / "documents"))
    documents = in_folder(made, tmp_path / "documents")
    signatures = minhash.fn(documents, ctx=StepContext.for_test(tmp_path / "signatures"))
    assert signatures.num_documents == 3
    found = near_duplicates.fn(
        documents,
        signatures=in_folder(signatures, tmp_path / "signatures"),
        workers=2,
        ctx=StepContext.for_test(tmp_path / "found"),
    )
    assert found.num_duplicates == 1
    assert found.num_documents == 3


def test_importing_the_steps_loads_no_heavy_package():
    code = (
        "import sys, marin_pipe.steps.dedup; "
        "print([m for m in ('numpy', 'pyarrow', 'polars', 'marin_corpus.dedup') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_stopped_steps_go_on_where_they_were_and_end_with_equal_bytes(tmp_path):
    texts = tuple(story(number // 3) for number in range(24))
    made = pages.fn(texts=texts, num_parts=6, ctx=StepContext.for_test(tmp_path / "documents"))
    documents = in_folder(made, tmp_path / "documents")
    minhash.fn(documents, workers=1, ctx=StepContext.for_test(tmp_path / "whole"))
    asked = iter([False] * 3 + [True] * 9)
    with pytest.raises(ShardsStopped):
        minhash.fn(
            documents, workers=1, ctx=StepContext.for_test(tmp_path / "stopped", should_stop=lambda: next(asked))
        )
    stopped = tmp_path / "stopped"
    (stopped / "work").rename(stopped / "before")
    done = sorted((stopped / "before" / "shards" / "done").iterdir())
    assert 0 < len(done) < 6
    shutil.rmtree(stopped / "attempt")
    minhash.fn(documents, workers=1, ctx=StepContext.for_test(stopped, earlier_work=["before"]))
    assert files_of(stopped / "attempt" / "output") == files_of(tmp_path / "whole" / "attempt" / "output")
    made_again = sorted(file.name for file in (stopped / "work" / "shards" / "done").iterdir())
    assert len(made_again) == 6 - len(done)
