"""`extract_text`: the text of HTML pages."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.schema import Document
from marin_corpus.documents.write import Written
from marin_corpus.errors import BadConfig
from marin_corpus.output import Output
from marin_corpus.transform.map import NO_TEXT, Drop, map_documents
from marin_corpus.transform.nesting import is_too_deep

Extractor = Literal["main_content", "all_text"]

TOO_DEEP = "nested too deeply"
MAX_DEPTH = 2000
"""For which parsers take a tenth of a second. Pages that people made stay below 100; browsers stop at 512."""
_MAX_REPEATED = 2_000_000

_TAG = re.compile(r"<[a-zA-Z!/]")
_NO_TEXT_WITHIN = ["script", "style", "nav", "noscript", "template"]
_BLOCKS = (
    "address,article,aside,blockquote,br,dd,details,div,dl,dt,fieldset,figcaption,figure,footer,form,h1,h2,h3,h4,h5,h6,"
    "header,hr,li,main,ol,option,p,pre,section,table,td,th,tr,ul"
)


@dataclass(frozen=True, kw_only=True)
class ExtractConfig:
    """Which text of a page."""

    extractor: Extractor = "main_content"
    """"main_content": without menus, headers, footers and advertisements, by the heuristics of resiliparse.
    "all_text": all but scripts, styles and `<nav>`, by selectolax (lexbor), in two thirds of the time: for pages whose
    layout is known to have little else."""

    def __post_init__(self) -> None:
        if self.extractor not in get_args(Extractor):
            raise BadConfig(
                f"extractor={self.extractor!r} is unknown", next=f"use one of {', '.join(get_args(Extractor))}"
            )


def extract_text(documents: DocumentSet, config: ExtractConfig, output: Output) -> Written:
    """Write the text of documents that are HTML pages.

    A text without any tag is no page, and stays as it is. Pages without text are dropped and counted, and so are those
    that nest elements deeper than `MAX_DEPTH`, which would take a parser minutes.
    """
    return map_documents(documents, _extract_document, config, output=output)


def _extract_document(document: Document, config: ExtractConfig) -> str | Drop:
    page = document.text
    if not _TAG.search(page):
        # A parser would join its lines.
        return page if page.strip() else Drop(NO_TEXT)
    if is_too_deep(page, max_depth=MAX_DEPTH, max_repeated=_MAX_REPEATED):
        return Drop(TOO_DEEP)
    text = _main_content(page) if config.extractor == "main_content" else _all_text(page)
    return text if text.strip() else Drop(NO_TEXT)


def _main_content(page: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return str(extract_plain_text(page, main_content=True))


def _all_text(page: str) -> str:
    """Blocks begin on lines of their own; other whitespace is that of the page."""
    from selectolax.lexbor import LexborHTMLParser

    body = LexborHTMLParser(page).body
    if body is None:  # a page of frames
        return ""
    body.strip_tags(_NO_TEXT_WITHIN)
    for block in body.css(_BLOCKS):
        block.insert_before("\n")
        block.insert_after("\n")
    return body.text()
