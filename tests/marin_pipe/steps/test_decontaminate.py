from pathlib import Path

from marin_corpus.documents.attributes import read_attributes
from speeches import paragraphs, speeches, verses
from text_steps import fill

from marin_pipe import StepContext, run, step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.decontaminate import decontaminate, evaluation_items


@step
def dirty_speeches(*, ctx: StepContext) -> Documents:
    """Paragraphs of an address; the third holds a verse in capitals."""
    texts = paragraphs(speeches(1990, 1990))[:20]
    texts[2] += f" {verses()[120].upper()}"
    return fill(ctx, texts, source="sotu", num_parts=2)


@step
def questions(source: str, begin: int, *, ctx: StepContext) -> Documents:
    """Verses as an evaluation set."""
    return fill(ctx, verses()[begin : begin + 100], source=source, num_parts=2)


def test_contamination_through_the_engine(tmp_path: Path) -> None:
    items = evaluation_items((questions("genesis", 100), questions("psalms", 14000)))
    found = decontaminate(dirty_speeches(), items=items)
    report = run({"found": found}, root=str(tmp_path), backend="inline")
    assert report.ok, [row.failure for row in report.steps]
    indexed, result = items.load(root=str(tmp_path)), found.load(root=str(tmp_path))
    assert set(indexed.sets) == {"genesis", "psalms"}
    assert sum(counts["num_items"] for counts in indexed.sets.values()) == 200
    assert result.num_contaminated == result.sums["contaminated"] == 1
    assert result.num_documents == 20
    assert result.contaminated_by_set == {"genesis": 1, "psalms": 0}
    assert result.items_found_by_set == {"genesis": 1, "psalms": 0}
    attributes = result.open()
    attributes.check_made_for(dirty_speeches().load(root=str(tmp_path)).open())
    flags = [flag for part in attributes.parts for flag in read_attributes(part)["contaminated"].to_pylist()]
    assert [number for number, flag in enumerate(flags) if flag] == [2]
    assert verses()[120].upper()[:40] in (result.path / "matches.jsonl").read_text()
    assert (result.path / "report.md").read_text().startswith("# Contamination")
