"""What differs between two canonical forms, with the paths and values a user knows."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marin_pipe.execution.identity import canonical_json

_SHOWN_CHARACTERS = 100
_MISSING = "(absent)"


class _Absent:
    def __repr__(self) -> str:
        return _MISSING


ABSENT = _Absent()
"""Stands for a value that one of two forms does not have."""


@dataclass(frozen=True)
class Change:
    """One difference. `old` and `new` are canonical forms, or `ABSENT`."""

    path: str
    """Where, such as `config.optimizer.lr`."""
    old: Any
    new: Any

    @property
    def is_input(self) -> bool:
        """Whether all that changed is an upstream step's key: the reason lies there."""
        if not _is_step(self.old) or not _is_step(self.new):
            return False
        return bool(self.old["$step"] != self.new["$step"] and self.old.get("path") == self.new.get("path"))

    def __str__(self) -> str:
        return f"{self.path}: {readable(self.old)} -> {readable(self.new)}"


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """The smallest parts in which the canonical arguments of two steps differ."""
    names = [*old, *(name for name in new if name not in old)]
    return [c for name in names for c in _difference(old.get(name, ABSENT), new.get(name, ABSENT), name)]


def _difference(old: Any, new: Any, path: str) -> Iterator[Change]:
    if _same(old, new):
        return
    if _kind(old) != _kind(new) or _is_step(old):
        yield Change(path, old, new)
        return
    before, after = dict(children(old)), dict(children(new))
    if not before and not after:
        yield Change(path, old, new)
        return
    for part in [*before, *(part for part in after if part not in before)]:
        yield from _difference(before.get(part, ABSENT), after.get(part, ABSENT), f"{path}{part}")


def _same(old: Any, new: Any) -> bool:
    """Python takes 1, 1.0 and True for equal; their JSON tells them apart."""
    if old is ABSENT or new is ABSENT:
        return old is new
    return canonical_json(old) == canonical_json(new)


def _is_step(form: Any) -> bool:
    return isinstance(form, dict) and "$step" in form


def _kind(form: Any) -> Any:
    """Forms of one kind are compared part by part, others as a whole."""
    tag = _tag(form)
    if tag == "$class":
        return tag, form.get("$class"), form.get("package")
    return tag or type(form).__name__


def _tag(form: Any) -> str:
    if not isinstance(form, dict):
        return ""
    return next((key for key in ("$class", *form) if key in form and key.startswith("$")), "")


def children(form: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a form with what is appended to the path to name them: `.lr`, `[2]`, `['key']`."""
    tag = _tag(form)
    if tag == "$class":
        for name, value in form["fields"].items():
            yield f".{name}", value
    elif tag == "$tuple":
        yield from _indexed(form[tag])
    elif tag == "$dict":
        for key, value in form[tag]:
            yield f"[{readable(key)}]", value
    elif tag == "$set":
        for value in form[tag]:
            yield f"{{{readable(value)}}}", value
    elif tag in ("$file", "$files"):
        for name, size, digest in [form[tag]] if tag == "$file" else form[tag]:
            yield f"[{name!r}]", {"$content": [size, digest]}
    elif isinstance(form, list):
        yield from _indexed(form)
    elif isinstance(form, dict) and not tag:
        for key, value in form.items():
            yield f"[{key!r}]", value


def _indexed(values: list[Any]) -> Iterator[tuple[str, Any]]:
    for index, value in enumerate(values):
        yield f"[{index}]", value


def readable(form: Any) -> str:
    """A form on one line, as the value would be written in Python where it can."""
    text = _readable(form)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _readable(form: Any) -> str:
    if form is ABSENT:
        return _MISSING
    if form is None or isinstance(form, bool):
        return str(form)
    if isinstance(form, str):
        return json.dumps(form, ensure_ascii=False)
    if isinstance(form, list):
        return f"[{', '.join(map(_readable, form))}]"
    if not isinstance(form, dict):
        return repr(form)
    tag = _tag(form)
    body: Any = form.get(tag)
    if not tag:
        return f"{{{', '.join(f'{json.dumps(k)}: {_readable(v)}' for k, v in form.items())}}}"
    if "package" in form:
        return f"{form['package']}: {_readable({k: v for k, v in form.items() if k != 'package'})}"
    if tag == "$class":
        return f"{body}({', '.join(f'{k}={_readable(v)}' for k, v in form['fields'].items())})"
    if tag == "$tuple":
        return f"({', '.join(map(_readable, body))}{',' if len(body) == 1 else ''})"
    if tag == "$set":
        return f"{{{', '.join(map(_readable, body))}}}" if body else "set()"
    if tag == "$dict":
        return f"{{{', '.join(f'{_readable(k)}: {_readable(v)}' for k, v in body)}}}"
    if tag == "$step":
        return f"step {body[:16]}" + (f" / {form['path']}" if "path" in form else "")
    if tag == "$content":
        return f"{body[0]} bytes, {body[1][:19]}"
    if tag in ("$file", "$files"):
        names = [body[0]] if tag == "$file" else [name for name, _, _ in body]
        return f"{', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    if isinstance(body, str):
        return body
    return f"{tag[1:]} {json.dumps(body)}"
