"""Functions of a user's own for `map_documents`, and pages, in a module that worker processes can import."""

from collections.abc import Iterator

from marin_corpus.documents.schema import Document
from speeches import speeches
from text_steps import fill

from marin_pipe import StepContext, step
from marin_pipe.steps.artifacts import Documents


def label(document: Document, options: dict[str, str]) -> Document:
    """Another source and one more name in the meta."""
    return Document(document.text, options["source"], {**document.meta, "length": len(document.text)})


def lines(document: Document, options: int) -> Iterator[Document]:
    """The lines of at least `options` characters, each a document."""
    for number, line in enumerate(document.text.split("\n")):
        if len(line) >= options:
            yield Document(line, document.source, {"number": number})


@step
def pages(*, num_parts: int = 5, ctx: StepContext) -> Documents:
    """Speeches as HTML pages, and one without text."""
    texts = [f"<html><body><article><p>{text}</p></article></body></html>" for text in speeches(1990, 2000)]
    return fill(ctx, [*texts, "<html></html>"], num_parts=num_parts)
