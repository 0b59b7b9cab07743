"""Conditions on documents: SQL expressions over attribute columns, such as "num_words < 50 OR language <> 'en'".

An expression is text from a configuration, so it can do nothing but look at one document at a time: every word of it
must be a column, a keyword or a function listed here. Nothing is evaluated before all of them were checked.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import polars as pl

from marin_corpus.errors import BadConfig

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<comment>--|/\*)
      | (?P<operator><>|!=|<=|>=|\|\||[-+*/%<>=(),])""",
    re.VERBOSE,
)
# fmt: off
_KEYWORDS = frozenset((
    "and", "or", "not", "in", "is", "null", "like", "ilike", "between", "case", "when", "then", "else", "end", "true",
    "false", "cast", "as", "int", "integer", "bigint", "double", "float", "real", "varchar", "text", "boolean",
))
FUNCTIONS = frozenset((
    "abs", "ceil", "coalesce", "ends_with", "floor", "greatest", "if", "ifnull", "least", "length", "ln", "log10",
    "lower", "nullif", "pow", "regexp_like", "round", "sqrt", "starts_with", "strpos", "substr", "upper",
))
"""Functions of one document's values. Aggregates, windows and what reads files are none."""
# fmt: on
_PARTIAL_FUNCTIONS = frozenset(("ln", "log10", "pow", "sqrt"))
"""Functions that have no value for some numbers."""
_MAX_OPERATORS = 400
"""polars takes time that grows with the cube of their number: seconds for so many, for some thousands a crash."""


def columns_of(expression: str, known: Mapping[str, Any], *, name: str) -> tuple[str, ...]:
    """The columns that an expression uses, in order of appearance.

    Args:
        expression: the SQL.
        known: the columns that there are.
        name: what the expression is for, for errors.

    Raises:
        BadConfig: a column that does not exist, or anything but row-wise SQL.
    """
    columns: dict[str, None] = {}
    tokens = _tokens(expression, name)
    for position, (kind, token) in enumerate(tokens):
        if kind == "quoted":
            columns[_known(token[1:-1].replace('""', '"'), known, expression, name)] = None
        elif kind == "word":
            is_call = position + 1 < len(tokens) and tokens[position + 1][1] == "("
            if token in known and not is_call:
                columns[token] = None
            elif token.lower() in _KEYWORDS:
                continue
            elif is_call:
                _check_function(token, expression, name)
            else:
                _known(token, known, expression, name)
    if not columns:
        raise BadConfig(f"{_where(expression, name)} names no column", next=f"use some of {', '.join(known)}")
    num_operators = sum(
        token.lower() in ("and", "or", "not") or (kind == "operator" and token not in {"(", ")", ","})
        for kind, token in tokens
    )
    if num_operators > _MAX_OPERATORS:
        raise BadConfig(
            f"the expression of {name!r}, {expression[:60]!r}..., has {num_operators} operators; at most "
            f"{_MAX_OPERATORS} are evaluated",
            next="compare with many values by IN (...), use several reasons, or compute a column for it",
        )
    return tuple(columns)


def compile_expression(expression: str, schema: Mapping[str, pl.DataType], *, name: str) -> pl.Expr:
    """A polars expression that gives a boolean, or null, for each document.

    A division by zero is null, and so is a function without a value, such as the root of a negative number.

    Raises:
        BadConfig: see `columns_of`; or it is no SQL, its types do not fit, or its result is no boolean.
    """
    columns_of(expression, schema, name=name)
    try:
        pl.sql_expr(expression)
        # In parentheses it can have no alias: in "num_words < 50 clean" that would be the column which was to decide.
        compiled = pl.sql_expr(f"({_without_nan([token for _, token in _tokens(expression, name)])})")
        result = pl.DataFrame(schema=dict(schema)).select(compiled).dtypes
    except pl.exceptions.PolarsError as error:
        raise BadConfig(
            f"{_where(expression, name)} cannot be evaluated", why=str(error).split("\n", maxsplit=1)[0]
        ) from error
    if result != [pl.Boolean]:
        raise BadConfig(
            f"{_where(expression, name)} gives {result[0]}, not a boolean",
            next="compare it with something, as in num_words < 50",
        )
    return compiled


def _where(expression: str, name: str) -> str:
    return f"the expression of {name!r}, {expression!r},"


def _tokens(expression: str, name: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None or match.lastgroup == "comment":
            raise BadConfig(
                f"{_where(expression, name)} has {expression[position : position + 10]!r} where none may be",
                why="an expression is made of columns, numbers, 'texts', operators and functions",
            )
        if match.lastgroup != "space":
            tokens.append((str(match.lastgroup), match.group()))
        position = match.end()
    return tokens


def _without_nan(tokens: list[str]) -> str:
    """The expression with NULL where polars would give NaN, which it holds to be greater than all, or infinities."""
    pieces, at = [], 0
    while at < len(tokens):
        token = tokens[at]
        if token in ("/", "%"):
            end = _operand_end(tokens, at + 1)
            pieces.append(f"{token} NULLIF({_without_nan(tokens[at + 1 : end])}, 0)")
        elif token.lower() in _PARTIAL_FUNCTIONS and tokens[at + 1 : at + 2] == ["("]:
            end = _operand_end(tokens, at)
            call = f"{token} {_without_nan(tokens[at + 1 : end])}"
            for none in ("NaN", "inf", "-inf"):
                call = f"NULLIF({call}, CAST('{none}' AS DOUBLE))"
            pieces.append(call)
        else:
            end = at + 1
            pieces.append(token)
        at = end
    return " ".join(pieces)


def _operand_end(tokens: list[str], begin: int) -> int:
    """Behind the operand that begins there: a literal or column, a call, or what stands in parentheses."""
    at = begin
    while tokens[at : at + 1] in (["-"], ["+"]):
        at += 1
    if tokens[at : at + 1] != ["("] and tokens[at + 1 : at + 2] == ["("]:
        at += 1
    pairs = {"(": ")", "case": "end"}
    opening = tokens[at].lower() if at < len(tokens) else ""
    depth = 0
    for end in range(at, len(tokens)):
        word = tokens[end].lower()
        depth += (word == opening) - (word == pairs.get(opening))
        if depth == 0 or opening not in pairs:
            return end + 1
    return len(tokens)


def _known(column: str, known: Mapping[str, Any], expression: str, name: str) -> str:
    if column in known:
        return column
    near = get_close_matches(column, known, n=1)
    raise BadConfig(
        f"{_where(expression, name)} names {column!r}, which is no column",
        why="expressions see one document at a time: its columns, literals, row-wise operators and functions",
        next=f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}",
    )


def _check_function(function: str, expression: str, name: str) -> None:
    if function.lower() in FUNCTIONS:
        return
    near = get_close_matches(function.lower(), FUNCTIONS, n=1)
    raise BadConfig(
        f"{_where(expression, name)} calls {function!r}, which is not allowed",
        why="expressions see one document at a time: no aggregates, windows, subqueries or files",
        next=f"did you mean {near[0]}?" if near else f"the functions are {', '.join(sorted(FUNCTIONS))}",
    )
