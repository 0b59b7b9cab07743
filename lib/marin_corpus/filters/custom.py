"""Attributes by a function of the user's own."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from marin_corpus.documents.attributes import TYPES, Compute, map_attributes
from marin_corpus.documents.read import DocumentSet
from marin_corpus.errors import BadConfig, BadInput, described
from marin_corpus.output import Output


@dataclass(frozen=True, kw_only=True)
class CustomConfig:
    """A function and the columns it makes."""

    function: Compute
    """At the top level of a module: `function(batch, options)` returns sequences of the batch's length by name."""
    columns: Mapping[str, str]
    """Name to type: one of "bool", "int64", "float64", "string", "spans"."""
    options: Any = None
    """Plain data for the function."""

    def __post_init__(self) -> None:
        if not self.columns:
            raise BadConfig("columns must name at least one column")
        for name, kind in self.columns.items():
            if kind not in TYPES:
                raise BadConfig(
                    f"columns[{name!r}]={kind!r} is no type of attributes", next=f"use one of {', '.join(TYPES)}"
                )


def compute_custom(documents: DocumentSet, config: CustomConfig, output: Output) -> list[Any]:
    """Write the columns for all documents, in the order of their names; see `map_attributes`.

    Raises:
        BadInput: what the function returned does not fit the columns or the documents.
    """
    schema = custom_schema(config)
    return map_attributes(documents, _checked, config, schema=schema, output=output)


def custom_schema(config: CustomConfig) -> pa.Schema:
    """The columns by name, whatever the order in which they were given."""
    return pa.schema([(name, TYPES[kind]) for name, kind in sorted(config.columns.items())])


def _checked(batch: pa.RecordBatch, config: CustomConfig) -> Mapping[str, Any]:
    name = f"{config.function.__module__}.{config.function.__qualname__}"
    try:
        columns = config.function(batch, config.options)
    except Exception as error:
        raise BadInput(
            f"{name} failed for {len(batch)} documents, the first of which is {batch.column('id')[0]}",
            why=described(error),
            next="correct the function: it must have a value for every document",
        ) from error
    if not isinstance(columns, Mapping):
        raise BadInput(
            f"{name} returned a value of type {type(columns).__name__}", next="return a dict of sequences by column"
        )
    if set(columns) != set(config.columns):
        raise BadInput(
            f"{name} returned the columns {sorted(columns)}",
            why=f"columns names {sorted(config.columns)}",
            next="make them agree",
        )
    checked = {}
    for field in custom_schema(config):
        if not isinstance(columns[field.name], Sized):
            raise BadInput(
                f"{name} returned a value of type {type(columns[field.name]).__name__} for {field.name!r}",
                next="return a sequence with one value for each document of the batch",
            )
        if len(columns[field.name]) != len(batch):
            raise BadInput(
                f"{name} returned {len(columns[field.name])} values of {field.name!r} for {len(batch)} documents",
                next="return one value for each document of the batch, in its order",
            )
        try:
            checked[field.name] = _column(columns[field.name], field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise BadInput(
                f"{name} returned values of {field.name!r} that are no {config.columns[field.name]}: {error}",
                why=f"columns says so of {field.name!r}",
                next="correct the function or the type",
            ) from error
    return checked


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    """Arrow would cut the fractions off numbers that are asked for as integers; a cast refuses them."""
    return pa.array(values).cast(kind) if pa.types.is_integer(kind) else pa.array(values, type=kind)
