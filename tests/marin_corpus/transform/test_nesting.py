"""Nesting: as deep as the parser's own tree, on pages with every kind of end tag left out."""

import pytest
from marin_corpus.transform.nesting import is_too_deep
from selectolax.lexbor import LexborHTMLParser, LexborNode


def depth_of_tree(page: str) -> int:
    """Elements above one another below `<body>`, in the tree that lexbor builds."""
    body = LexborHTMLParser(page).body
    assert body is not None
    level, depth = [body], -1
    while level:
        depth += 1
        level = [child for node in level for child in _elements(node)]
    return depth


def _elements(node: LexborNode) -> list[LexborNode]:
    return list(node.iter(include_text=False))


SHALLOW = {
    "paragraphs": "<p>hello" * 600,
    "items": "<ul>" + "<li>hello <div>x" * 600,
    "definitions": "<dl>" + "<dt>a<dd>b" * 600,
    "cells": "<table>" + "<tr><td><font>hello<td><div>x" * 600,
    "unclosed spans": "<div><span>x</div>" * 600,
    "voids": "<br><img src=x><hr>" * 600,
    "comments": "<!-- <div> -->" * 600,
    "scripts": "<script>'<div>'</script>" * 600,
    "attributes": "<p title='<div>'>x</p>" * 600,
    "options": "<select>" + "<option>x" * 600,
    "closed": "<DIV><P>x</P></div >" * 600,
}
DEEP = {
    "divs": "<div>" * 600,
    "lists": "<ul><li>" * 300,
    "tables": "<table><tr><td>" * 200,
    "end tags in attributes": "<div title='</div>'>" * 600,
    "end tags in comments": "<div><!-- </div> -->" * 600,
    "end tags out of reach": "<div><object></div>" * 600,
    "end tags of formatting": "<b><div></b>" * 600,
    "end tags of spans": "<span><div></span>" * 600,
}


@pytest.mark.parametrize("page", SHALLOW.values(), ids=SHALLOW.keys())
def test_shallow_pages_are_not_refused(page) -> None:
    assert depth_of_tree(page) < 20
    assert not is_too_deep(page, max_depth=20, max_repeated=1_000_000)


@pytest.mark.parametrize("page", DEEP.values(), ids=DEEP.keys())
def test_deep_pages_are_refused(page) -> None:
    assert depth_of_tree(page) > 500
    assert is_too_deep(page, max_depth=300, max_repeated=1_000_000)
