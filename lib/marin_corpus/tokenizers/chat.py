"""Conversations to ids, with a mask of what the loss counts: what the assistant writes, up to and with its end of turn.

Special tokens that the chat template writes become their ids; text of a message that spells one stays text. Text is cut
at special tokens and where an assistant's turn begins and ends, and encoded piece by piece, so no token reaches across.
That is also what generation gives: the prompt ends where the turn begins.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.tokenizers.templates import Marks, choose_marks, has_generation_marks, render
from marin_corpus.tokenizers.tokenizer import Tokenizer

Encoded = tuple[NDArray[np.uint32], NDArray[np.uint8]]
"""Ids, and 1 for each that the loss counts, else 0."""


def encode_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    template: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> Encoded:
    """Lay a conversation out by a chat template and encode it.

    What the assistant writes is what the template marks by `{% generation %}`. Without such marks it is what each
    assistant message adds to the text of the messages before it with `add_generation_prompt=True`, without blanks after
    the last special token.

    Args:
        tokenizer: its special tokens are those of the template.
        messages: each with `role` and `content`; what else they hold is for the template.
        template: None for the tokenizer's own.
        tools: for the template.

    Raises:
        BadInput: a message lacks something, the template fails, or no token counts for the loss.
        BadConfig: there is no template; or it has no generation marks and does not append messages one after another.
    """
    template = tokenizer.chat_template if template is None else template
    if template is None:
        raise BadConfig(
            "the tokenizer has no chat template",
            next="give a template, or train a tokenizer with chat_template=DEFAULT_CHAT_TEMPLATE "
            "(of marin_corpus.tokenizers.templates)",
        )
    _check_messages(messages)
    marks = choose_marks([template, json.dumps([messages, tools], ensure_ascii=False)])
    guard = _guard(tuple(tokenizer.special_tokens), marks.breaks)
    guarded = [{key: guard.value(value, edges=key != "role") for key, value in each.items()} for each in messages]
    # Templates of hubs ask whether these are none, and take what is not defined for something.
    variables = _role_tokens(tokenizer) | {"tools": None if tools is None else guard.value(tools), "documents": None}
    if has_generation_marks(template):
        text = render(template, guarded, marks=marks, **variables)
    else:
        text = _mark_by_prefixes(template, guarded, marks, tokenizer.special_pattern, variables)
    ids, mask = _encode_marked(tokenizer, text, marks)
    if not mask.any():
        raise BadInput(
            f"none of the {len(messages)} messages is one to learn from",
            why=f"their roles are {', '.join(sorted({str(each['role']) for each in messages}))}; the loss counts what "
            "the assistant writes",
            next="call the role that is learned from 'assistant', or leave the conversation out",
        )
    return ids, mask


def encode_prompt_completion(tokenizer: Tokenizer, prompt: str, completion: str) -> Encoded:
    """Both texts one after another, and the end-of-sequence token; the loss counts the completion and that token.

    No token reaches across the two, as when the completion is generated.

    Raises:
        BadConfig: the tokenizer has no end-of-sequence token.
    """
    if tokenizer.eos_id is None:
        raise BadConfig("the tokenizer has no end-of-sequence token", why="a completion is closed by it")
    first, second = tokenizer.encode_batch([prompt, completion])
    ids = np.concatenate([first, second, np.array([tokenizer.eos_id], np.uint32)])
    mask = np.ones(len(ids), np.uint8)
    mask[: len(first)] = 0
    return ids, mask


def encode_chat_document(tokenizer: Tokenizer, text: str, template: str | None = None) -> Encoded:
    """Encode a document whose text is the JSON object `{"messages": [...]}` or `{"prompt": "", "completion": ""}`.

    Beside `messages` there may be `tools`.

    Raises:
        BadInput: it is something else; see `encode_chat`.
    """
    try:
        return _encode_content(tokenizer, text, template)
    except RecursionError as error:
        raise BadInput("objects and arrays nest too deeply in the text", next=_FORM) from error


def _encode_content(tokenizer: Tokenizer, text: str, template: str | None) -> Encoded:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise BadInput(f"the text is not JSON: {error}", next=_FORM) from error
    if not isinstance(content, dict):
        raise BadInput(f"the text is {type(content).__name__} in JSON, not an object", next=_FORM)
    if content.keys() == {"prompt", "completion"}:
        for name, value in content.items():
            if not isinstance(value, str):
                raise BadInput(f"{name} must be text, and is {type(value).__name__}", next=_FORM)
        return encode_prompt_completion(tokenizer, content["prompt"], content["completion"])
    if "messages" in content and content.keys() <= {"messages", "tools"}:
        return encode_chat(tokenizer, content["messages"], template=template, tools=content.get("tools"))
    raise BadInput(f"the text is an object of {', '.join(map(repr, content)) or 'nothing'}", next=_FORM)


_FORM = 'a conversation is {"messages": [...]}, with "tools" if need be, or {"prompt": "...", "completion": "..."}'


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise BadInput("messages must be a list with at least one message")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise BadInput(f"messages[{index}] must be an object, and is {type(message).__name__}")
        for name in ("role", "content"):
            if name not in message:
                raise BadInput(
                    f"messages[{index}] has no {name!r}; it has {', '.join(map(repr, message)) or 'nothing'}"
                )
        if not isinstance(message["role"], str):
            raise BadInput(f"messages[{index}]['role'] must be text, and is {type(message['role']).__name__}")
        content = message["content"]
        # The content of a turn that only calls tools is null; parts of content are for the template.
        if not isinstance(content, str | list) and not (content is None and message.get("tool_calls")):
            raise BadInput(f"messages[{index}]['content'] must be text, and is {type(content).__name__}")


def _role_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """Template variables, only for roles that are filled: templates ask whether they are defined."""
    special = tokenizer.special
    named = {"bos_token": special.bos, "eos_token": special.eos, "pad_token": special.pad}
    return {name: token for name, token in named.items() if token is not None}


class _Guard:
    """Keeps text that spells a special token from being taken for one."""

    def __init__(self, tokens: tuple[str, ...], breaks: str) -> None:
        if short := [token for token in tokens if len(token) < 2]:
            raise BadConfig(
                f"the tokenizer has the special token {short[0]!r}, of one character",
                why="messages that hold it could not be told from the chat template",
            )
        self._break = breaks
        # Whatever the case: a template may change it.
        self._inside = re.compile("|".join(map(re.escape, tokens)) or r"(?!)", re.IGNORECASE)
        # A token may also come about where texts meet.
        self._beginnings = tuple({token[:n] for token in tokens for n in range(1, len(token))})
        self._ends = tuple({token[n:] for token in tokens for n in range(1, len(token))})

    def value(self, value: Any, *, edges: bool = True) -> Any:
        """A JSON value with all its texts broken where they spell a special token.

        Args:
            value: of a message.
            edges: also where they begin or end as one does. Not for roles, out of which templates make special tokens.
        """
        if isinstance(value, str):
            return self._text(value, edges=edges)
        if isinstance(value, Mapping):
            return {self._text(str(key), edges=False): self.value(each) for key, each in value.items()}
        if isinstance(value, Sequence):
            return [self.value(each) for each in value]
        return value

    def _text(self, text: str, *, edges: bool) -> str:
        text = self._inside.sub(lambda match: f"{match[0][0]}{self._break}{match[0][1:]}", text)
        if edges and text.endswith(self._beginnings):
            text += self._break
        if edges and text.startswith(self._ends):
            text = self._break + text
        return text


@lru_cache(maxsize=8)
def _guard(tokens: tuple[str, ...], breaks: str) -> _Guard:
    return _Guard(tokens, breaks)


def _mark_by_prefixes(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    marks: Marks,
    special: re.Pattern[str],
    variables: Mapping[str, Any],
) -> str:
    """The conversation's text, marked where each assistant message adds to the text of those before it."""
    whole = render(template, messages, marks=marks, **variables)
    pieces: list[str] = []
    done = 0
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = render(template, messages[:index], marks=marks, add_generation_prompt=True, **variables)
        upto = render(template, messages[: index + 1], marks=marks, **variables)
        if not (upto.startswith(before) and whole.startswith(upto) and len(before) >= done):
            raise BadConfig(
                f"what the chat template makes of messages[{index}] cannot be told from the rest",
                why="the text of the messages before it, with add_generation_prompt, is no prefix of the text with it",
                next="mark in the template what the assistant writes: {% generation %}...{% endgeneration %}",
            )
        end = len(upto)
        for match in special.finditer(upto, len(before)):
            end = match.end() if not upto[match.end() :].strip() else len(upto)
        pieces += [whole[done : len(before)], marks.start, whole[len(before) : end], marks.end]
        done = end
    return "".join([*pieces, whole[done:]])


def _encode_marked(tokenizer: Tokenizer, text: str, marks: Marks) -> Encoded:
    """Ids and mask of text with marks."""
    plain, bounds = _remove_marks(text, marks)
    pieces: list[str | int] = []
    counts: list[int] = []

    def add_text(start: int, end: int) -> None:
        while start < end:
            run = bisect_right(bounds, start)
            stop = min(end, bounds[run]) if run < len(bounds) else end
            pieces.append(plain[start:stop].replace(marks.breaks, ""))
            counts.append(run % 2)
            start = stop

    done = 0
    # Here, not between marks: a token may swallow the blanks behind it.
    for match in tokenizer.special_pattern.finditer(plain):
        add_text(done, match.start())
        assert match.lastgroup is not None
        pieces.append(int(match.lastgroup[1:]))
        counts.append(bisect_right(bounds, match.start(match.lastgroup)) % 2)
        done = match.end()
    add_text(done, len(plain))
    encoded = iter(tokenizer.encode_batch([piece for piece in pieces if isinstance(piece, str)]))
    ids = [next(encoded) if isinstance(piece, str) else np.array([piece], np.uint32) for piece in pieces]
    mask = np.repeat(np.array(counts, np.uint8), [len(each) for each in ids])
    return np.concatenate([np.empty(0, np.uint32), *ids]), mask


def _remove_marks(text: str, marks: Marks) -> tuple[str, list[int]]:
    """The text without marks, and where in it what the assistant writes begins, ends, begins, ends and so on."""
    parts: list[str] = []
    bounds: list[int] = []
    depth = length = 0
    for part in re.split(f"([{marks.start}{marks.end}])", text):
        if part not in (marks.start, marks.end):
            parts.append(part)
            length += len(part)
            continue
        if depth == (0 if part == marks.start else 1):
            bounds.append(length)
        depth += 1 if part == marks.start else -1
        if depth < 0:
            break
    if depth:
        raise BadConfig("the chat template cuts text out of a {% generation %} block", next="put the block around it")
    return "".join(parts), bounds
