"""Steps that find evaluation items in documents."""

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.markers import Artifact, Runtime
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Attributes, Documents
from marin_pipe.steps.output import StepOutput


class EvaluationItems(Artifact):
    """The n-grams of evaluation sets, to look for in documents."""

    num_items: int
    """Different items; those of the same words are one."""
    num_ngrams: int
    """Different n-grams."""
    sets: dict[str, dict[str, int]]
    """By set: `num_items` as given, which are the sum of `num_searched`, `num_repeated`, `num_too_short` and
    `num_boilerplate`."""


class Contaminated(Attributes):
    """Attributes `contaminated`, `contamination_overlap`, `contamination_item`, `contamination_set`; and a report."""

    num_contaminated: int
    contaminated_by_set: dict[str, int]
    """Contaminated documents by the set of the item that overlaps most: they sum to `num_contaminated`."""
    items_found_by_set: dict[str, int]
    """Items that contaminate any document."""


@step
def evaluation_items(
    evaluation: tuple[Documents, ...],
    *,
    ngram_words: int = 13,
    short_ngram_words: int = 8,
    min_item_words: int = 5,
    boilerplate_items: int = 10,
    ctx: StepContext,
) -> EvaluationItems:
    """Index the n-grams of evaluation sets, once for all the documents that are to be compared with them.

    Args:
        evaluation: documents that are items; the `source` of each is the name of its set.
        ngram_words: words in the n-grams of items of at least three times as many.
        short_ngram_words: words in the n-grams of shorter items.
        min_item_words: items of fewer words are not looked for.
        boilerplate_items: an item is looked for if its n-grams together weigh at least one that this many items share.
        ctx: filled in by the engine.
    """
    from marin_corpus.dedup.contamination_index import IndexConfig, build_index

    config = IndexConfig(
        ngram_words=ngram_words,
        short_ngram_words=short_ngram_words,
        min_item_words=min_item_words,
        boilerplate_items=boilerplate_items,
    )
    facts = build_index([documents.open() for documents in evaluation], config, StepOutput(ctx))
    return EvaluationItems(num_items=facts["num_items"], num_ngrams=facts["num_ngrams"], sets=facts["sets"])


@step
def decontaminate(
    documents: Documents,
    *,
    items: EvaluationItems,
    threshold: float = 0.5,
    shown_matches: int = 200,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Contaminated:
    """Find the documents that hold evaluation items; `report.md` shows both texts side by side.

    Args:
        documents: where to look.
        items: of `evaluation_items`.
        threshold: least share of an item's n-grams.
        shown_matches: matches in the report, spread over the parts of the documents.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.dedup.contamination import SCHEMA, ContaminationConfig, find_contamination

    config = ContaminationConfig(threshold=threshold, shown_matches=shown_matches)
    found = find_contamination(documents.open(), str(items.path), config, StepOutput(ctx, workers=workers))
    return Contaminated(
        columns=tuple(SCHEMA.names),
        num_documents=found.num_documents,
        sums={"contaminated": found.num_contaminated},
        num_contaminated=found.num_contaminated,
        contaminated_by_set=found.contaminated_by_set,
        items_found_by_set=found.items_found_by_set,
    )
