"""Telling, before it is parsed, that an HTML page would take a parser quadratic time or memory."""

import re
from math import isqrt

_ATTRIBUTES = r"""(?:[^>=]|=\s*+(?:"[^"]*"|'[^']*')?)*+"""
_NO_TAGS_WITHIN = "script|style|textarea|title|xmp|iframe|noembed|noframes"
# A tag that is not closed reaches to the end, so that nothing is looked at twice.
_TAG = re.compile(
    rf"<!--.*?(?:-->|\Z)"
    rf"|<({_NO_TAGS_WITHIN})(?=[\s/>]){_ATTRIBUTES}>.*?(?:</\1|\Z)"
    rf"|<(/?[a-z][^\s/>]*+){_ATTRIBUTES}(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
# fmt: off
# HTML's elements without an end tag, and some that hold no others.
_VOID = frozenset(
    {
        "area", "base", "basefont", "bgsound", "body", "br", "circle", "col", "embed", "frame", "head", "hr", "html",
        "img", "input", "keygen", "link", "meta", "param", "path", "rect", "source", "track", "wbr",
    }
)
_FORMATTING = frozenset(
    {
        "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
    }
)
_SCOPES = frozenset(
    {
        "applet", "caption", "marquee", "math", "object", "svg", "table", "td", "template", "th",
    }
)
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "button", "center", "dd", "details", "dir", "div", "dl", "dt",
        "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "li",
        "listing", "main", "menu", "nav", "ol", "p", "pre", "section", "select", "summary", "tbody", "tfoot", "thead",
        "tr", "ul",
    }
)
# fmt: on
_ITEM = frozenset({"div", "p", "address"})
# What a start tag closes, and which blocks may lie between.
_CLOSES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset({"li"}), _ITEM),
    "dt": (frozenset({"dt", "dd"}), _ITEM),
    "dd": (frozenset({"dt", "dd"}), _ITEM),
    "option": (frozenset({"option"}), frozenset()),
    "td": (frozenset({"td", "th"}), _BLOCKS),
    "th": (frozenset({"td", "th"}), _BLOCKS),
    "tr": (frozenset({"tr"}), _BLOCKS | {"td", "th"}),
    "tbody": (frozenset({"tbody", "thead", "tfoot"}), _BLOCKS | {"td", "th"}),
    "tfoot": (frozenset({"tbody", "thead", "tfoot"}), _BLOCKS | {"td", "th"}),
} | {name: (frozenset({"p"}), frozenset()) for name in _BLOCKS - {"button", "li", "dd", "dt", "select"}}
_USUAL_FORMATTING = 8
_MAX_STEPS = 5_000_000
"""Half a second here. An 8 MB page of documentation comes to 72 thousand."""
_MAX_ATTRIBUTES = 1000
_LONG_TAG = re.compile(rf"<[a-z][^>]{{{2 * _MAX_ATTRIBUTES}}}+", re.IGNORECASE)
_MANY_ATTRIBUTES = re.compile(
    rf"""<[a-z][^\s/>]*+(?:[\s/]++[^\s/>=]++(?:\s*+=\s*+(?:"[^"]*"|'[^']*'|[^\s>]*+))?+){{{_MAX_ATTRIBUTES}}}+""",
    re.IGNORECASE,
)


def is_too_deep(page: str, *, max_depth: int, max_repeated: int) -> bool:
    """Whether elements nest deeper than `max_depth`, or something as costly holds.

    That is: open formatting would be repeated more than `max_repeated` times, a tag has over a thousand attributes, or
    all tags together look at more than `_MAX_STEPS` open elements.
    Parsers of HTML walk up the open elements at every tag, repeat open formatting (`<b>`) in every paragraph until it
    is closed, and compare each attribute with those before it; so 100 thousand open elements, half a megabyte, take
    them minutes, and open formatting takes gigabytes. The depth is an estimate by the main rules of HTML's tree
    construction: end tags that may be left out, end tags that nothing fits, comments and scripts count as there.
    """
    if _LONG_TAG.search(page) and _MANY_ATTRIBUTES.search(page):
        return True
    if page.count("<") - page.count("</") <= min(max_depth, isqrt(2 * max_repeated)):
        return False  # most pages: there are no more start tags than that
    stack: list[str] = []
    num_formatting = 0
    repeated = 0
    steps = 0
    for _, tag in _TAG.findall(page):
        name = tag.lower()
        if name[:1] == "/":
            name = name[1:]
            if name in _FORMATTING and num_formatting:
                num_formatting -= 1
            if stack and stack[-1] == name:
                stack.pop()
            else:
                steps += _end(stack, name)
                if steps > _MAX_STEPS:
                    return True
            continue
        if not name or name in _VOID:
            continue
        if name in _CLOSES:
            steps += _end_implied(stack, *_CLOSES[name])
        if name in _FORMATTING:
            num_formatting += 1
        elif name in ("td", "th") and "table" in stack:
            num_formatting = 0  # formatting does not leave its cell
        repeated += max(0, num_formatting - _USUAL_FORMATTING)
        stack.append(name)
        if len(stack) > max_depth or repeated > max_repeated or steps > _MAX_STEPS:
            return True
    return False


def _end(stack: list[str], name: str) -> int:
    """Close the element that the end tag belongs to, if it can reach one; returns how many were looked at."""
    depth = len(stack)
    is_block = name in _BLOCKS or name in _SCOPES
    is_cell_or_table = name in ("table", "td", "th")
    for index in range(len(stack) - 1, -1, -1):
        open_name = stack[index]
        if open_name == name:
            if name in _FORMATTING:
                del stack[index]
            else:
                del stack[index:]
            return depth - index
        if open_name in _SCOPES and not (is_cell_or_table and open_name in ("td", "th", "caption")):
            return depth - index
        if not is_block and name not in _FORMATTING and open_name in _BLOCKS:
            return depth - index
    return depth


def _end_implied(stack: list[str], names: frozenset[str], between: frozenset[str]) -> int:
    """Close what a start tag closes; returns how many elements were looked at."""
    depth = len(stack)
    for index in range(len(stack) - 1, -1, -1):
        open_name = stack[index]
        if open_name in names:
            del stack[index:]
            return depth - index
        if (open_name in _BLOCKS or open_name in _SCOPES) and open_name not in between:
            return depth - index
    return depth
