"""Expressions: what they mean, against SQLite; and that nothing but a look at one document gets through."""

import sqlite3
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marin_corpus.errors import BadConfig
from marin_corpus.filters.expressions import columns_of, compile_expression
from marin_corpus.filters.heuristics import SCHEMA as HEURISTICS
from marin_corpus.filters.rules import C4, FINEWEB, GOPHER

SCHEMA: dict[str, pl.DataType] = {
    "num_words": pl.Int64(),
    "score": pl.Float64(),
    "language": pl.String(),
    "clean": pl.Boolean(),
}
ROWS: list[dict[str, Any]] = [
    {"num_words": 10, "score": 0.5, "language": "en", "clean": True},
    {"num_words": 0, "score": -1.0, "language": "de", "clean": False},
    {"num_words": None, "score": 2.5, "language": None, "clean": True},
    {"num_words": 99, "score": None, "language": "it's", "clean": None},
]


def evaluate(expression: str) -> list[bool | None]:
    return pl.DataFrame(ROWS, SCHEMA).select(compile_expression(expression, SCHEMA, name="r")).to_series().to_list()


def by_sqlite(expression: str) -> list[bool | None]:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (num_words INTEGER, score REAL, language TEXT, clean INTEGER)")
        connection.executemany("INSERT INTO t VALUES (:num_words, :score, :language, :clean)", ROWS)
        found = [value for (value,) in connection.execute(f"SELECT ({expression}) FROM t ORDER BY rowid")]  # noqa: S608
    connection.close()
    return [None if value is None else bool(value) for value in found]


ATOMS = [
    *("num_words < 50", "num_words >= 10", "score <> 0.5", "score * 2 + 1 > num_words", "clean", "language = 'en'"),
    *("language IN ('en', 'de')", "language = 'it''s'", "num_words BETWEEN 1 AND 10", "score IS NULL", "clean = TRUE"),
    *("coalesce(num_words, 0) = 0", "language LIKE '%t%'", "abs(score) = 1", "length(language) > 2", "-score < 0"),
    *("CASE WHEN clean THEN num_words > 5 ELSE score < 0 END", "language IS NOT NULL", "num_words NOT IN (0, 99)"),
    *("num_words % 3 = 0", '"num_words" = 10', "lower(language) < 'e'", "1e1 = num_words", "score > .4"),
    *("score / num_words > 0", "2.5 / - (num_words * num_words) < 0", "7 % num_words = 7", "sqrt(score) > 0"),
    *("ln(score * 2) >= 0 OR clean", "1.0 / CASE WHEN clean THEN num_words ELSE 0 END + 1 > 1", "pow(score, 0.5) > 0"),
    *("1.0 / coalesce(num_words, 0) / 2 > 0", "sqrt(sqrt(score) - 1) > 0", "log10(num_words) > score"),
]


@pytest.mark.parametrize("expression", ATOMS)
def test_means_what_sqlite_says(expression: str) -> None:
    assert evaluate(expression) == by_sqlite(expression)


CONDITIONS = st.recursive(
    st.sampled_from(ATOMS).map(lambda atom: f"({atom})"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda one: f"(NOT {one})"),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
@settings(max_examples=60)
def test_conditions_combine_as_in_sqlite(expression: str) -> None:
    assert evaluate(expression) == by_sqlite(expression)


def test_a_misspelt_column_is_told_the_nearest() -> None:
    with pytest.raises(BadConfig, match=r"'too short'.*'num_word'(.|\n)*did you mean num_words"):
        compile_expression("num_word < 50", SCHEMA, name="too short")
    with pytest.raises(BadConfig, match=r"there are num_words, score, language, clean"):
        compile_expression("xyz < 50", SCHEMA, name="too short")


REFUSED = [
    *("SUM(num_words) > 1", "num_words > AVG(num_words)", "COUNT(*) > 1", "first(num_words) = 1", "max(score) > 1"),
    *("ROW_NUMBER() OVER (ORDER BY num_words) > 1", "LAG(score) OVER (ORDER BY num_words) > 1", "rank() > 1"),
    *("num_words IN (SELECT 1)", "EXISTS (SELECT 1)", "(SELECT TRUE)", "array_agg(num_words) = 1", "unnest(language)"),
    *("read_csv('/etc/passwd')", "read_parquet('x') > 1", "t.num_words > 1", "random() > score", "now() > score"),
    *("num_words > 1; SELECT 1", "num_words > 1 -- rest", "num_words > 1 /* rest */", "num_words > CURRENT_DATE"),
    *("", "1 = 1", "TRUE", "num_words >", "num_words", "score + 1", "num_words > 'a'", "language < 2"),
    *("*", "num_words & 1", "num_words > 1 AS x", "'num_words > 1'", "num_words @ 1", "num_words\x00 > 1", '"" > 1'),
    *("num_words > 1)", "(num_words > 1", "__import__('os')", "COLUMNS('.*') > 1", '"^num.*$" > 1', "NUM_WORDS > 1"),
    *(r"language = '\' OR SUM(num_words) > 1 OR language = 'x'", "num_words OVER () > 1", "num_words, score"),
    *("num_words > 1 clean", "num_words > 1 AS clean", "num_words > 1) OR (clean"),
]


@pytest.mark.parametrize("expression", REFUSED)
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(BadConfig, match="'reason'"):
        compile_expression(expression, SCHEMA, name="reason")


def test_a_backslash_escapes_nothing() -> None:
    # Else what is checked as text here could run as SQL there.
    expression = r"language = '\'' OR sum(num_words) > 1 OR language = '"
    assert columns_of(expression, SCHEMA, name="r") == ("language",)
    compiled = compile_expression(expression, SCHEMA, name="r")
    assert pl.DataFrame(ROWS, SCHEMA).select(compiled).to_series().to_list() == [False, False, None, False]


def test_a_column_called_like_an_aggregate_makes_none_of_it() -> None:
    with pytest.raises(BadConfig, match="calls 'sum'"):
        compile_expression("sum(num_words) > 1", {**SCHEMA, "sum": pl.Int64()}, name="r")


def test_more_operators_than_can_be_evaluated_are_refused() -> None:
    with pytest.raises(BadConfig, match="has 20001 operators; at most"):
        compile_expression("num_words" + " + 1" * 20_000 + " > 1", SCHEMA, name="r")
    values = ", ".join(map(str, range(1000)))
    assert evaluate(f"num_words IN ({values})") == [True, True, None, True]


def test_columns_are_named_once_in_order() -> None:
    assert columns_of("score > 1 OR num_words < 2 AND \"score\" < 3 AND language <> 'clean'", SCHEMA, name="r") == (
        "score",
        "num_words",
        "language",
    )


@pytest.mark.parametrize(("reason", "expression"), [*GOPHER, *C4, *FINEWEB])
def test_published_rules_fit_the_columns_of_heuristics(reason: str, expression: str) -> None:
    schema = {field.name: pl.Series([], dtype=_polars(str(field.type))).dtype for field in HEURISTICS}
    assert set(columns_of(expression, schema, name=reason)) <= set(HEURISTICS.names)
    compile_expression(expression, schema, name=reason)


def _polars(kind: str) -> type[pl.DataType]:
    return {"int64": pl.Int64, "double": pl.Float64, "bool": pl.Boolean}[kind]
