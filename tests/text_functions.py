"""Functions of a user's own for `map_documents`, in a module that worker processes can import."""

from collections.abc import Iterator

from marin_corpus.documents.schema import Document


def label(document: Document, options: dict[str, str]) -> Document:
    """Another source and one more name in the meta."""
    return Document(document.text, options["source"], {**document.meta, "length": len(document.text)})


def lines(document: Document, options: int) -> Iterator[Document]:
    """The lines of at least `options` characters, each a document."""
    for number, line in enumerate(document.text.split("\n")):
        if len(line) >= options:
            yield Document(line, document.source, {"number": number})
