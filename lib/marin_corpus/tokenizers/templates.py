"""Chat templates: Jinja code that lays out a conversation as text, with marks around what the assistant generates.

Templates come with tokenizers, from anywhere. They run in a sandbox that has neither files nor a clock nor chance: what
they write depends on the conversation alone. `strftime_now` is not defined, so a template that asks whether it is takes
its fixed date, and one that does not fails.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from marin_corpus.errors import BadConfig, BadInput

CHAT_SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>")
"""What `DEFAULT_CHAT_TEMPLATE` writes around each turn."""

DEFAULT_CHAT_TEMPLATE = """\
{%- for message in messages %}
    {%- if message.content is not string %}
        {{- raise_exception("content must be text") }}
    {%- endif %}
    {{- "<|im_start|>" + message.role + "\\n" }}
    {%- if message.role == "assistant" %}
        {%- generation %}
            {{- message.content + "<|im_end|>" }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content + "<|im_end|>" }}
    {%- endif %}
    {{- "\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\\n" }}
{%- endif %}
"""
"""Each turn is its role, a line end, its text, and the end of the turn, which the assistant learns to write."""

_LOOKS_SPECIAL = re.compile(r"<\|[^|<>\s]+\|>")


class Marks(NamedTuple):
    """Characters that stand in no text of a conversation."""

    start: str
    """Begins what the assistant generates."""
    end: str
    """Ends it."""
    breaks: str
    """Put into text that spells a special token, so that it is not taken for one."""


def choose_marks(texts: Sequence[str]) -> Marks:
    """The first private-use characters that none of `texts` holds."""
    used = set().union(*texts)
    free = (chr(code) for code in range(0xF0000, 0x10FFFE) if chr(code) not in used)
    return Marks(next(free), next(free), next(free))


def has_generation_marks(template: str) -> bool:
    """Whether the template says itself, by `{% generation %}`, what the assistant generates."""
    return re.search(r"\{%[-+]?\s*generation\b", template) is not None


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    marks: Marks,
    add_generation_prompt: bool = False,
    **variables: Any,
) -> str:
    """The text of a conversation, with `marks` around each `{% generation %}` block.

    Raises:
        BadConfig: the template is not Jinja.
        BadInput: it fails on, or refuses, these messages.
    """
    compiled = _compile(template, marks)
    try:
        return compiled.render(messages=messages, add_generation_prompt=add_generation_prompt, **variables)
    except Exception as error:
        # The template's own operations fail with errors of any class.
        clock = "strftime_now" in str(error)
        raise BadInput(
            f"the chat template failed: {error}",
            why="what is made of a conversation must not depend on the clock" if clock else "",
            next="write a date into the template" if clock else "change the messages, or give another template",
        ) from error


def check_special_tokens(template: str, special_tokens: Sequence[str]) -> None:
    """Refuse a template whose literal text has the look of a special token, `<|name|>`, that there is not.

    Raises:
        BadConfig: naming the tokens; or the template is not Jinja.
    """
    with _syntax_checked():
        tree = _Environment(choose_marks([template])).parse(template)
    written = {match for text in _literals(tree) for match in _LOOKS_SPECIAL.findall(text)}
    if missing := sorted(written - set(special_tokens)):
        raise BadConfig(
            f"the chat template writes {', '.join(missing)}, not among the special tokens",
            why="they would be encoded as ordinary text, in several tokens, that a message can imitate",
            next=f"add special_tokens=({', '.join(map(repr, missing))},)",
        )


class _Environment(ImmutableSandboxedEnvironment):
    """As templates of hubs expect it."""

    def __init__(self, marks: Marks) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"])
        self.marks = marks
        self.filters["tojson"] = _to_json(marks)
        self.globals["raise_exception"] = _raise_exception
        # These draw by chance.
        del self.filters["random"], self.globals["lipsum"]


class _GenerationBlock(Extension):
    """`{% generation %} ... {% endgeneration %}`: writes the block between marks. It has a scope of its own."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: Callable[[], str]) -> str:
        assert isinstance(self.environment, _Environment)
        marks = self.environment.marks
        return f"{marks.start}{caller()}{marks.end}"


def _to_json(marks: Marks) -> Callable[..., str]:
    """JSON as it is, not escaped for HTML as by Jinja's own filter."""

    def to_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
        if not ensure_ascii or text.isascii():
            return text
        # The marks must be found again.
        return "".join(c if c.isascii() or c in marks else json.dumps(c)[1:-1] for c in text)

    return to_json


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


@contextmanager
def _syntax_checked() -> Iterator[None]:
    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise BadConfig(f"the chat template is not Jinja: line {error.lineno}: {error.message}") from error


@lru_cache(maxsize=8)
def _compile(template: str, marks: Marks) -> jinja2.Template:
    with _syntax_checked():
        return _Environment(marks).from_string(template)


def _literals(tree: nodes.Template) -> Iterator[str]:
    for data in tree.find_all(nodes.TemplateData):
        yield data.data
    for constant in tree.find_all(nodes.Const):
        if isinstance(constant.value, str):
            yield constant.value
