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
            if token in known:
                columns[token] = None
            elif token.lower() in _KEYWORDS:
                continue
            elif position + 1 < len(tokens) and tokens[position + 1][1] == "(":
                _check_function(token, expression, name)
            else:
                _known(token, known, expression, name)
    if not columns:
        raise BadConfig(f"{_where(expression, name)} names no column", next=f"use some of {', '.join(known)}")
    return tuple(columns)


def compile_expression(expression: str, schema: Mapping[str, pl.DataType], *, name: str) -> pl.Expr:
    """A polars expression that gives a boolean for each document.

    Raises:
        BadConfig: see `columns_of`; or it is no SQL, its types do not fit, or its result is no boolean.
    """
    columns_of(expression, schema, name=name)
    try:
        compiled = pl.sql_expr(expression)
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
