"""The transforms' steps through the engine: in a chain, and with any number of workers."""

from pathlib import Path
from typing import Any

import pytest
from marin_corpus.documents.read import DocumentSet, read_batches
from speeches import files_of, speeches, write_documents
from text_functions import label, lines, pages

from marin_pipe import Step, StepContext, run
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.transform import extract_text, map_documents, normalise, split_documents


def chain(*, workers: int | None) -> dict[str, Step[Documents]]:
    texts = extract_text(pages(), workers=workers)
    normalised = normalise(texts, max_spaces=2, workers=workers)
    pieces = split_documents(normalised, max_characters=10_000, workers=workers)
    return {
        "labelled": map_documents(pieces, function=label, options={"source": "speeches"}, workers=workers),
        "normalised": normalised,
        "texts": texts,
    }


def words_of(documents: Documents) -> list[str]:
    return "".join(
        text
        for part in documents.open().parts
        for batch in read_batches(part, ["text"])
        for text in batch.column("text").to_pylist()
    ).split()


def load(found: Step[Any], root: Any) -> Any:
    return found.load(root=str(root))


def run_chain(folder: Path, *, workers: int) -> dict[str, Documents]:
    folder.mkdir()
    found = chain(workers=workers)
    # Here a step's end also ends what `multiprocessing` keeps for the next pool, of which that warns: own processes.
    run(found, root=str(folder), backend="inline" if workers == 1 else "local")
    return {name: load(each, folder) for name, each in found.items()}


def test_chain(tmp_path) -> None:
    found = run_chain(tmp_path / "1", workers=1)
    num_speeches = len(speeches(1990, 2000))
    assert (found["texts"].num_documents, found["texts"].dropped) == (num_speeches, {"no text": 1})
    assert found["labelled"].num_documents > num_speeches
    assert found["labelled"].sources == {"speeches": found["labelled"].num_documents}
    assert found["labelled"].text_bytes == found["normalised"].text_bytes
    assert words_of(found["labelled"]) == words_of(found["normalised"])


@pytest.mark.slow
def test_chain_with_any_number_of_workers(tmp_path) -> None:
    one, two, five = (run_chain(tmp_path / str(workers), workers=workers) for workers in (1, 2, 5))
    for name, documents in one.items():
        assert (
            files_of(Path(str(documents.path)))
            == files_of(Path(str(two[name].path)))
            == files_of(Path(str(five[name].path)))
        )


def test_workers_do_not_change_bytes(tmp_path) -> None:
    documents = DocumentSet.open(write_documents(tmp_path / "documents", speeches(1960, 1980), num_parts=5).url)
    given = Documents(
        num_documents=documents.num_documents,
        text_bytes=documents.text_bytes,
        num_parts=len(documents.parts),
        sources=documents.sources,
    ).located_at(documents.url)
    written = []
    for workers in (1, 2, 5):
        folder = tmp_path / str(workers)
        folder.mkdir()
        ctx = StepContext.for_test(folder)
        map_documents.fn(given, function=lines, options=100, workers=workers, ctx=ctx)
        written.append(files_of(Path(str(ctx.output))))
    assert written[0] == written[1] == written[2]
    expected = [line for text in speeches(1960, 1980) for line in text.split("\n") if len(line) >= 100]
    assert len(expected) == sum(part.num_documents for part in DocumentSet.open(str(ctx.output)).parts)
