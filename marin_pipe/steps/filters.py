"""Steps that measure documents, and the one that acts on what was measured."""

from collections.abc import Callable, Mapping
from typing import Any

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.markers import Runtime
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Attributes, Documents
from marin_pipe.steps.documents import attributes_artifact, documents_artifact
from marin_pipe.steps.output import StepOutput


@step
def heuristics(documents: Documents, *, workers: Runtime[int | None] = None, ctx: StepContext) -> Attributes:
    """Measure the form of each document: lengths, repetition, punctuation, as in the rules of Gopher, C4 and FineWeb.

    Thresholds are for `consolidate`; those published are in `marin_corpus.filters.rules`.

    Args:
        documents: what to measure.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.filters.heuristics import SCHEMA, measure_heuristics

    opened = documents.open()
    return attributes_artifact(opened, SCHEMA.names, measure_heuristics(opened, StepOutput(ctx, workers=workers)))


@step
def language(
    documents: Documents, *, max_characters: int = 2_000, workers: Runtime[int | None] = None, ctx: StepContext
) -> Attributes:
    """Identify the language of each document: `language` (ISO 639) and `language_score` (0 to 1).

    Needs the extra `language`; its model is installed with it.

    Args:
        documents: what to identify.
        max_characters: how much of the beginning of each text is looked at.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.filters.language import SCHEMA, LanguageConfig, identify_languages

    opened = documents.open()
    config = LanguageConfig(max_characters=max_characters)
    return attributes_artifact(
        opened, SCHEMA.names, identify_languages(opened, config, StepOutput(ctx, workers=workers))
    )


@step
def pii(documents: Documents, *, workers: Runtime[int | None] = None, ctx: StepContext) -> Attributes:
    """Find e-mail addresses, public IP addresses and telephone numbers: spans to replace, and counts.

    Args:
        documents: where to look.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.filters.pii import SCHEMA, find_pii

    opened = documents.open()
    return attributes_artifact(opened, SCHEMA.names, find_pii(opened, StepOutput(ctx, workers=workers)))


@step
def compute_attributes(
    documents: Documents,
    *,
    function: Callable[..., Mapping[str, Any]],
    columns: dict[str, str],
    options: Any = None,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Attributes:
    """Compute attributes by a function of your own.

    Args:
        documents: what to compute them for.
        function: at the top level of a module; `function(batch, options)` gets some documents (a record batch with
            `id`, `text`, `source` and `meta`) and returns for each column a sequence with one value for each of them.
            The values must depend on the document and the options alone: how documents are cut into batches may change.
        columns: name to type, one of "bool", "int64", "float64", "string", "spans".
        options: plain data for the function.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.filters.custom import CustomConfig, compute_custom, custom_schema

    opened = documents.open()
    config = CustomConfig(function=function, columns=columns, options=options)
    summaries = compute_custom(opened, config, StepOutput(ctx, workers=workers))
    return attributes_artifact(opened, custom_schema(config).names, summaries)


@step
def consolidate(
    documents: Documents,
    *,
    attributes: tuple[Attributes, ...],
    drop: tuple[tuple[str, str], ...] = (),
    edits: tuple[str, ...] = (),
    prefixes: tuple[str, ...] = (),
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Documents:
    """Write the documents that no expression drops, with edits applied; `drops.json` shows samples of what was dropped.

    Args:
        documents: what the attributes were made for.
        attributes: one or more sets of columns.
        drop: pairs of a reason and a SQL expression over the columns, evaluated for one document at a time, such as
            `(("too short", "num_words < 50"), ("not English", "language <> 'en'"))`. The first that holds counts.
        edits: columns of spans whose replacements to put in the text.
        prefixes: one for each of `attributes`, put before its columns' names, if two of them have equal ones.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.filters.consolidate import consolidate as write_consolidated

    written = write_consolidated(
        documents.open(),
        [each.open() for each in attributes],
        drop=drop,
        edits=edits,
        prefixes=prefixes,
        output=StepOutput(ctx, workers=workers),
    )
    return documents_artifact(written.parts, dropped=written.dropped)
