"""Several sets as one: every document of each, in order."""

from pathlib import Path

from marin_corpus.documents.join import join_documents
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.output import LocalOutput
from speeches import write_documents


def test_sets_follow_one_another_and_keep_their_sources(tmp_path: Path) -> None:
    first = write_documents(tmp_path / "a", ["one", "two", "three"], source="numbers", num_parts=2)
    second = write_documents(tmp_path / "b", ["red", "green", "one"], source="colours", num_parts=2)
    written = join_documents([first, second], LocalOutput(tmp_path / "both", workers=2))
    both = DocumentSet.open(tmp_path / "both")
    rows = [
        (row["text"], row["source"])
        for part in both.parts
        for batch in read_batches(part, ("text", "source"))
        for row in batch.to_pylist()
    ]
    expected = [(text, "numbers") for text in ("one", "two", "three")]
    assert rows == [*expected, *((text, "colours") for text in ("red", "green", "one"))]
    assert (both.num_documents, both.sources) == (6, {"colours": 3, "numbers": 3})
    assert [part["name"] for part in written.parts] == [part.name for part in both.parts]
    assert len({part.name for part in both.parts}) == 4
