import json
from pathlib import Path

from marin_corpus.documents.attributes import read_attributes
from speeches import paragraphs, speeches
from text_steps import artifact, fill

from marin_pipe import StepContext, run, step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.quality import quality, train_quality_classifier


@step
def some_paragraphs(first_year: int, last_year: int, *, ctx: StepContext) -> Documents:
    """A few paragraphs of speeches of these years."""
    return fill(ctx, paragraphs(speeches(first_year, last_year))[:400])


def test_classifier_and_scores_through_the_engine(tmp_path: Path) -> None:
    new, old = some_paragraphs(1980, 2000), some_paragraphs(1850, 1860)
    classifier = train_quality_classifier(positive=new, negative=old, num_buckets=1 << 14)
    report = run(
        {"old": quality(old, classifier=classifier), "new": quality(new, classifier=classifier)},
        root=str(tmp_path),
        backend="inline",
    )
    assert report.ok, [row.failure for row in report.steps]
    trained = classifier.load(root=str(tmp_path))
    assert trained.auc > 0.95
    assert trained.num_train + trained.num_held_out == trained.num_positive + trained.num_negative
    facts = json.loads((trained.path / "model.json").read_text())
    assert facts["metrics"]["auc"] == trained.auc
    means = []
    for documents in (old, new):
        scores = quality(documents, classifier=classifier).load(root=str(tmp_path))
        assert scores.columns == ("quality",)
        opened = scores.open()
        opened.check_made_for(documents.load(root=str(tmp_path)).open())
        values = [value for part in opened.parts for value in read_attributes(part)["quality"].to_pylist()]
        assert scores.num_documents == len(values) > 100
        assert abs(scores.sums["quality"] - sum(values)) < 1e-6
        means.append(sum(values) / len(values))
    assert means[0] < 0.2 < 0.8 < means[1]


def test_the_steps_are_plain_functions(tmp_path: Path) -> None:
    new = artifact(tmp_path / "new", paragraphs(speeches(1980, 1990))[:200])
    old = artifact(tmp_path / "old", paragraphs(speeches(1850, 1855))[:200])
    ctx = StepContext.for_test(tmp_path / "model")
    classifier = train_quality_classifier.fn(positive=new, negative=old, num_buckets=1 << 14, ctx=ctx)
    assert classifier.num_positive == classifier.num_negative == 200
    assert {file.name for file in ctx.output.iterdir()} == {"weights.f32", "model.json"}
