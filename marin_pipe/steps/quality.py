"""Steps that train a quality classifier and score documents with it."""

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.markers import Artifact, Runtime
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Attributes, Documents
from marin_pipe.steps.documents import attributes_artifact
from marin_pipe.steps.output import StepOutput


class QualityClassifier(Artifact):
    """A trained classifier: `weights.f32` and `model.json`."""

    auc: float
    """ROC AUC on documents it has not seen."""
    accuracy: float
    """Share of them on the right side of 0.5, the mean over both labels."""
    num_train: int
    num_held_out: int
    num_positive: int
    num_negative: int
    num_repeated: int
    """Copies left out."""
    num_contradicting: int
    """Documents left out because both labels have them."""
    num_iterations: int


@step
def train_quality_classifier(
    *,
    positive: Documents,
    negative: Documents,
    held_out_fraction: float = 0.1,
    max_documents_per_label: int = 50_000,
    num_buckets: int = 1 << 19,
    l2: float = 1e-5,
    ctx: StepContext,
) -> QualityClassifier:
    """Learn to tell good documents from bad ones, and measure it on a held-out part.

    Args:
        positive: documents of the kind to keep.
        negative: documents of the kind to drop.
        held_out_fraction: share of the documents, by hash of their ids, that are only measured on.
        max_documents_per_label: a sample by hash of the id where there are more.
        num_buckets: weights of hashed words and word pairs, a power of two.
        l2: penalty on the weights; larger is smoother.
        ctx: filled in by the engine.
    """
    from dataclasses import asdict

    from marin_corpus.filters.quality import QualityConfig, train_quality
    from marin_corpus.filters.quality_model import LinearConfig

    config = QualityConfig(
        held_out_fraction=held_out_fraction,
        max_documents_per_label=max_documents_per_label,
        linear=LinearConfig(num_buckets=num_buckets, l2=l2),
    )
    metrics = train_quality(positive.open(), negative.open(), config, StepOutput(ctx))
    return QualityClassifier(**asdict(metrics))


@step
def quality(
    documents: Documents, *, classifier: QualityClassifier, workers: Runtime[int | None] = None, ctx: StepContext
) -> Attributes:
    """Score each document: attribute `quality`, from 0 to 1, by a trained classifier.

    Args:
        documents: what to score.
        classifier: of `train_quality_classifier`.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.filters.quality import SCHEMA, score_quality

    opened = documents.open()
    summaries = score_quality(opened, str(classifier.path), StepOutput(ctx, workers=workers))
    return attributes_artifact(opened, SCHEMA.names, summaries)
