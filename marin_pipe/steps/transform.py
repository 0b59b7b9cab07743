"""Steps that make other documents of documents, one by one."""

from collections.abc import Callable
from typing import Any, Literal

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.markers import Runtime
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.documents import documents_artifact
from marin_pipe.steps.output import StepOutput


@step
def join_documents(
    documents: tuple[Documents, ...], *, workers: Runtime[int | None] = None, ctx: StepContext
) -> Documents:
    """Make one set of several, for steps that look across documents; `source` still tells them apart.

    Args:
        documents: in the order in which they follow each other.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.documents.join import join_documents as join

    written = join([each.open() for each in documents], StepOutput(ctx, workers=workers))
    return documents_artifact(written.parts, dropped=written.dropped)


@step
def map_documents(
    documents: Documents,
    *,
    function: Callable[..., Any],
    options: Any = None,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Documents:
    """Change, drop or multiply documents by a function of your own.

    Args:
        documents: what to change.
        function: at the top level of a module; `function(document, options)` gets a document (`text`, `source`, `meta`,
            `id`) and returns a Document, a text (source and meta stay), an iterable of Documents, or None to drop it
            (`Drop("reason")`, from `marin_corpus.transform.map`, to have it counted under that reason). The result must
            depend on the document and the options alone.
        options: plain data for the function.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.transform import map as transform

    written = transform.map_documents(documents.open(), function, options, output=StepOutput(ctx, workers=workers))
    return documents_artifact(written.parts, dropped=written.dropped)


@step
def extract_text(
    documents: Documents,
    *,
    extractor: Literal["main_content", "all_text"] = "main_content",
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Documents:
    """Extract the text of documents that are HTML pages; drops pages without text, and those nested too deeply.

    Texts without any tag stay as they are.

    Args:
        documents: whose texts are HTML.
        extractor: "main_content" leaves out menus, headers, footers and advertisements; "all_text" leaves out no more
            than scripts, styles and `<nav>`, and is faster.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.transform import html as transform

    config = transform.ExtractConfig(extractor=extractor)
    written = transform.extract_text(documents.open(), config, StepOutput(ctx, workers=workers))
    return documents_artifact(written.parts, dropped=written.dropped)


@step
def normalise(
    documents: Documents,
    *,
    unicode_form: Literal["NFC", "NFKC", "none"] = "NFC",
    max_spaces: int = 64,
    max_blank_lines: int = 2,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Documents:
    """Bring characters, line ends and whitespace into one form; drops texts of which nothing is left.

    Args:
        documents: what to normalise.
        unicode_form: NFC composes accents; NFKC also replaces ligatures, wide forms and the like; "none" does neither.
        max_spaces: spaces and tabs in a row within a line, indentation included; what goes beyond is cut.
        max_blank_lines: blank lines in a row.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.transform import normalise as transform

    config = transform.NormaliseConfig(
        unicode_form=unicode_form, max_spaces=max_spaces, max_blank_lines=max_blank_lines
    )
    written = transform.normalise(documents.open(), config, StepOutput(ctx, workers=workers))
    return documents_artifact(written.parts, dropped=written.dropped)


@step
def split_documents(
    documents: Documents,
    *,
    max_characters: int = 1_000_000,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Documents:
    """Cut long documents at paragraphs, else lines, else whitespace; pieces say so in their meta.

    Args:
        documents: what to split.
        max_characters: length of the longest piece.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.transform import split as transform

    config = transform.SplitConfig(max_characters=max_characters)
    written = transform.split_documents(documents.open(), config, StepOutput(ctx, workers=workers))
    return documents_artifact(written.parts, dropped=written.dropped)
