"""Writes docs/reference/steps.md from the catalogue of steps itself: `python docs/steps.py`."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import marin_pipe.steps
from marin_pipe.execution.step import StepFunction

PAGE = Path(__file__).parent / "reference" / "steps.md"

INTRODUCTION = """\
# Steps

Written by `make docs` from the steps themselves.

Ready-made steps, by module of `marin_pipe.steps`. Each takes the handles or artifacts of others, and arguments that
bear identity unless they are marked *runtime*. [From raw text to batches](../explanation/data-flow.md) shows how they
go together; [file formats](file-formats.md) says what they leave, [attributes](attributes.md) which columns there are.
A function marked *makes several steps* is a shorthand.
"""

MODULES = {
    "sources": "Documents from files and from installed packages",
    "download": "Files from the web, archives and hubs",
    "transform": "Changes of text",
    "filters": "Facts about documents, and what to drop",
    "quality": "A trained quality classifier",
    "dedup": "Repeated and nearly equal documents",
    "decontaminate": "Evaluation items within documents",
    "tokenizers": "Tokenizers",
    "tokens": "Token stores",
}


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "".join(_module(name, title) for name, title in MODULES.items())


def _module(name: str, title: str) -> str:
    module = importlib.import_module(f"{marin_pipe.steps.__name__}.{name}")
    head = f"\n## {title}\n\n`from marin_pipe.steps.{name} import ...`\n"
    return head + "".join(_function(*found) for found in functions(module))


def functions(module: Any) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Public functions of a module in the order of its source: name, function, whether it is one step."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        function = value.fn if isinstance(value, StepFunction) else value
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            yield name, function, isinstance(value, StepFunction)


def _function(name: str, function: Callable[..., Any], is_step: bool) -> str:
    signature = inspect.signature(function)
    summary, arguments = _docstring(function)
    result = _type(signature.return_annotation)
    kind = "" if is_step else " (makes several steps)" if result.startswith("Step[") else " (a plain function)"
    rows = []
    for parameter in signature.parameters.values():
        if parameter.name == "ctx":
            continue
        annotation = _type(parameter.annotation)
        runtime = annotation.startswith("Runtime[")
        annotation = annotation.removeprefix("Runtime[").removesuffix("]") if runtime else annotation
        default = "" if parameter.default is inspect.Parameter.empty else f"`{_cell(repr(parameter.default))}`"
        told = arguments.get(parameter.name, "") + (" *(runtime)*" if runtime else "")
        rows.append(f"| `{parameter.name}` | `{_cell(annotation)}` | {default} | {_cell(told.strip())} |\n")
    table = f"\n| argument | type | default | |\n| --- | --- | --- | --- |\n{''.join(rows)}" if rows else ""
    return f"\n### {name}\n\nReturns `{result}`{kind}. {summary}\n{table}"


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What comes before `Args:`, and what is said of each argument."""
    text = inspect.getdoc(function) or ""
    summary = " ".join(re.split(r"\n\s*\n(?=Args:|Raises:|Returns:)|\n(?=Args:)", text, maxsplit=1)[0].split())
    section = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)*)", text, re.MULTILINE)
    arguments: dict[str, str] = {}
    for match in re.finditer(r"^ {4}(\w+): ((?:.*)(?:\n {8,}.*)*)", section[1] if section else "", re.MULTILINE):
        arguments[match[1]] = " ".join(match[2].split())
    return summary, arguments


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    # The class is what a reader looks for, not where it lives; and the engine's marks as they are written.
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text)
    text = re.sub(r"^Union\[.*Annotated\[Step\[(.*)\], <class '_StepSchema'>\], StepPath\]$", r"Ref[\1]", text)
    text = re.sub(r"^Optional\[(.*)\]$", r"\1 | None", text)
    return re.sub(r"^Annotated\[(.*), Runtime\]$", r"Runtime[\1]", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
