"""Text of HTML: Python's documentation against the reST it was made from, and pages that would break a parser."""

import re
from collections import Counter
from pathlib import Path

import pytest
from marin_corpus.documents.read import DocumentSet, read_batches
from marin_corpus.errors import BadConfig
from marin_corpus.output import LocalOutput
from marin_corpus.transform.html import ExtractConfig, extract_text
from speeches import write_documents

DOCUMENTATION = Path("/usr/share/doc/python3.11/html")
needs_documentation = pytest.mark.skipif(
    not (DOCUMENTATION / "_sources/library").is_dir(), reason="Debian's package python3.11-doc is not installed"
)
PAGES = ["argparse", "asyncio-task", "collections", "datetime", "difflib", "email.message", "functools"]
PAGES += ["itertools", "json", "logging", "re", "sqlite3"]


def extract(tmp_path: Path, pages: list[str], extractor: str) -> tuple[list[str], dict[str, int]]:
    documents = write_documents(tmp_path / "in", pages)
    config = ExtractConfig(extractor=extractor)  # type: ignore[arg-type]
    result = extract_text(documents, config, LocalOutput(tmp_path / "out"))
    parts = DocumentSet.open(tmp_path / "out").parts
    return [t for part in parts for batch in read_batches(part) for t in batch["text"].to_pylist()], result.dropped


def word_f1(found: list[str], expected: list[str]) -> float:
    """F1 of all pages together, each a multiset of its words: runs of letters and digits, in small letters."""
    num_common = num_words = 0
    for pair in zip(found, expected, strict=True):
        mine, theirs = (Counter(re.findall(r"\w+", text.lower())) for text in pair)
        num_common += (mine & theirs).total()
        num_words += mine.total() + theirs.total()
    return 2 * num_common / num_words


def score(tmp_path: Path, names: list[str], extractor: str) -> float:
    pages = [(DOCUMENTATION / f"library/{name}.html").read_text() for name in names]
    sources = [(DOCUMENTATION / f"_sources/library/{name}.rst.txt").read_text() for name in names]
    return word_f1(extract(tmp_path, pages, extractor)[0], sources)


@needs_documentation
@pytest.mark.parametrize(("extractor", "least"), [("main_content", 0.92), ("all_text", 0.88)])
def test_words_of_the_python_documentation(tmp_path, extractor, least) -> None:
    assert score(tmp_path, PAGES, extractor) >= least


@pytest.mark.slow
@needs_documentation
@pytest.mark.parametrize(("extractor", "least"), [("main_content", 0.92), ("all_text", 0.88)])
def test_words_of_the_whole_library_reference(tmp_path, extractor, least) -> None:
    names = sorted(file.name.removesuffix(".rst.txt") for file in (DOCUMENTATION / "_sources/library").glob("*.txt"))
    assert len(names) > 300
    assert score(tmp_path, names, extractor) >= least


PAGE = """<!doctype html><html><head><title>T</title><style>p {color: red}</style></head><body>
<nav><a href="/">Home</a> <a href="/x">Elsewhere</a></nav>
<article><h1>Of peace</h1><p>It is <b>go</b>od to have it.</p><p>Caf&eacute; &lt;here&gt;</p>
<script>var hidden = "no";</script></article></body></html>"""


@pytest.mark.parametrize("extractor", ["main_content", "all_text"])
def test_a_page(tmp_path, extractor) -> None:
    (text,), dropped = extract(tmp_path, [PAGE], extractor)
    assert not dropped
    lines = [line for line in text.split("\n") if line.strip()]
    assert lines == ["Of peace", "It is good to have it.", "Caf\u00e9 <here>"]


MALFORMED = {
    "unclosed": "<p>hello <b>world<p>again",
    "misnested": "<b><p>hello</b> world</p></div></span>",
    "no tags": "hello",
    "NUL": "<p>hel\0lo</p>\0",
    "open tag": "<p>hello</p><a href='",
    "open comment": "<p>hello</p><!-- never closed <p>",
    "tables": "<table><p>hello<tr><td><td></table></table>",
}


@pytest.mark.parametrize("extractor", ["main_content", "all_text"])
def test_malformed_pages_have_their_text(tmp_path, extractor) -> None:
    texts, dropped = extract(tmp_path, list(MALFORMED.values()), extractor)
    assert not dropped
    assert all("hel" in text for text in texts)


@pytest.mark.parametrize("extractor", ["main_content", "all_text"])
def test_pages_without_text_are_dropped_and_counted(tmp_path, extractor) -> None:
    empty = ["", " \n", "<html></html>", "<frameset><frame src=x></frameset>", "<script>x</script>", "<p>&nbsp;</p>"]
    texts, dropped = extract(tmp_path, ["<p>hello</p>", *empty], extractor)
    assert [text.strip() for text in texts] == ["hello"]
    assert dropped == {"no text": len(empty)}


@pytest.mark.parametrize("extractor", ["main_content", "all_text"])
def test_large_pages(tmp_path, extractor) -> None:
    paragraph = "<p>" + "hello world " * 800 + "</p>\n"
    pages = [paragraph * 1050, "<p>a" + " " * 10_000_000 + "b", "<" * 1_000_000]
    assert len(pages[0]) > 10_000_000
    texts, _ = extract(tmp_path, pages, extractor)
    assert texts[0].count("hello world") == 1050 * 800
    assert texts[1].split() == ["a", "b"]


@pytest.mark.parametrize("extractor", ["main_content", "all_text"])
def test_pages_that_would_hold_a_parser_up_are_dropped_and_counted(tmp_path, extractor) -> None:
    pages = [
        "<div>" * 100_000 + "hello" + "</div>" * 100_000,
        "".join(f"<b a={n}>" for n in range(2_000)) + "<p>x" * 100_000,
        "<p " + " ".join(f"a{n}=1" for n in range(1_000_000)) + ">hello",
        "<div><object></div>" * 100_000,
        "<br>" * 3000 + "<ul><object>" + "<span>" * 1000 + "hello" + "</ul>" * 100_000,
    ]
    texts, dropped = extract(tmp_path, [*pages, "<p>hello"], extractor)
    assert [text.strip() for text in texts] == ["hello"]
    assert dropped == {"nested too deeply": len(pages)}


def test_extractor_that_does_not_exist() -> None:
    with pytest.raises(BadConfig, match="trafilatura"):
        ExtractConfig(extractor="trafilatura")  # type: ignore[arg-type]


def test_a_text_without_tags_stays_as_it_is(tmp_path: Path) -> None:
    """A parser would join its lines, and take a `<` between numbers for the beginning of a tag."""
    texts = ["first line\nsecond line\n\n  indented: 1 < 2 and 3 > 2 & so on", "<p>a page</p>"]
    extract_text(
        write_documents(tmp_path / "in", texts), ExtractConfig(extractor="main_content"), LocalOutput(tmp_path / "out")
    )
    (part,) = DocumentSet.open(tmp_path / "out").parts
    (batch,) = read_batches(part, ("text",))
    assert batch["text"].to_pylist() == [texts[0], "a page"]
