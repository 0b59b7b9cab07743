"""Text and meta of a record."""

import json
import math
from collections.abc import Mapping
from typing import Any

from marin_corpus.sources.config import ReadConfig
from marin_corpus.sources.problems import BadRecord

_SHOWN_NAMES = 12


def lookup(record: Mapping[str, Any], name: str) -> Any:
    """The value of a field by its key or dotted path. Raises KeyError."""
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise KeyError(name)
        value = value[key]
    return value


def canonical_json(value: Any) -> str:
    """Sorted keys, no blanks. Raises ValueError for NaN and infinities."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_as_text
    )


def _as_text(value: Any) -> str:
    """Of dates, times and decimals in parquet, whose types were checked before."""
    return str(value)


def text_of(record: Mapping[str, Any], config: ReadConfig) -> str | BadRecord:
    """The text of a record, which is not blank."""
    try:
        if config.json_fields:
            return _json_text(record, config.json_fields)
        text = lookup(record, config.text_field)
    except KeyError as error:
        return missing(error.args[0], record)
    if isinstance(text, str):
        return BadRecord("empty", "the text is empty") if not text or text.isspace() else text
    if text is None:
        return BadRecord("empty", "the text is null")
    return BadRecord("wrong_type", f"the field {config.text_field!r} is {_kind(text)}, not text")


def _json_text(record: Mapping[str, Any], names: tuple[str, ...]) -> str | BadRecord:
    values = {name: lookup(record, name) for name in names}
    if all(value is None or value in ("", [], {}) for value in values.values()):
        return BadRecord("empty", f"{', '.join(names)}: all of them are empty")
    try:
        return canonical_json(values)
    except ValueError:
        return BadRecord("invalid_json", "the text would hold NaN or an infinity, which JSON cannot say")


def missing(name: str, record: Mapping[str, Any]) -> BadRecord:
    """A record without a field that it must have."""
    names = [repr(key) for key in record][:_SHOWN_NAMES]
    more = len(record) - len(names)
    there = ", ".join(names) + (f" and {more} more" if more else "") if names else "no field at all"
    return BadRecord("missing_field", f"there is no field {name!r}; there is {there}")


def meta_of(record: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The fields that a record has of `names`."""
    found = {}
    for name in names:
        try:
            found[name] = lookup(record, name)
        except KeyError:
            continue
    return found


def encode_record_meta(meta: Mapping[str, Any]) -> str:
    """As JSON; numbers that JSON cannot say become null."""
    try:
        return canonical_json(meta)
    except ValueError:
        return canonical_json(_finite(meta))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return {"list": "an array", "dict": "an object"}.get(type(value).__name__, type(value).__name__)
