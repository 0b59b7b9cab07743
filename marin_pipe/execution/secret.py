"""Secrets: passed by name, read where they are used, and kept out of everything that is stored or printed.

A secret is known by its value (of a declared `Secret`, or of an environment variable named as one) or by a token
prefix that services publish for this purpose; never by the name of a field or by how random a text looks, since
digests, revisions and `max_tokens` must survive.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import core_schema

from marin_pipe.execution.difference import children
from marin_pipe.execution.errors import ConfigurationError, GraphError, ResultError
from marin_pipe.execution.identity import canonical_json

_SECRET_WORDS = frozenset(
    {"KEY", "KEYS", "APIKEY", "TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE"}
    | {"CREDENTIAL", "CREDENTIALS"}
)
_LOCATION_WORDS = frozenset({"FILE", "PATH", "DIR", "DIRECTORY", "URL"})
"""Words that make the variable say where a secret lies, not what it is."""
_MINIMUM_LENGTH = 8
"""Shorter values of secret-named variables ("none", "disabled" is 8) occur in ordinary text."""
_MINIMUM_DECLARED_LENGTH = 4
_MINIMUM_LINE_LENGTH = 16
"""Lines of a private key are redacted one by one: logs come in lines."""

# Prefixes and lengths as the services document them.
_KNOWN_TOKENS = {
    "hf_": r"hf_[A-Za-z0-9]{30,}",
    "gh": r"gh[pousr]_[A-Za-z0-9]{36,}",
    "github_pat_": r"github_pat_[A-Za-z0-9_]{50,}",
    "glpat-": r"glpat-[A-Za-z0-9_-]{20,}",
    "sk-": r"sk-(?:(?:proj|ant|svcacct|admin|or|lf)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{20,})",
    "AKIA": r"AKIA[A-Z0-9]{16}(?![A-Z0-9])",
    "ASIA": r"ASIA[A-Z0-9]{16}(?![A-Z0-9])",
    "xox": r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    "AIza": r"AIza[A-Za-z0-9_-]{35}",
    "ya29.": r"ya29\.[A-Za-z0-9_-]{20,}",
}
_TOKEN_PATTERN = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(_KNOWN_TOKENS.values()) + ")")


@dataclass(frozen=True)
class Secret:
    """A value the step reads from the environment of the process it runs in. Bears no identity.

    `Secret("HF_TOKEN")` travels and is recorded by its name alone.
    """

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.name):
            raise GraphError("Secret() takes the name of an environment variable", next='write Secret("HF_TOKEN")')
        if _TOKEN_PATTERN.search(self.name):
            raise GraphError(
                "Secret() was given a token instead of the name of the environment variable that holds it",
                why="names are stored in records",
                next='put the token into the environment and write Secret("HF_TOKEN")',
            )
        _declared.add(self.name)

    def reveal(self) -> str:
        """The value. Raises ConfigurationError if the variable is not set where the step runs."""
        _declared.add(self.name)
        value = os.environ.get(self.name)
        if not value:
            raise ConfigurationError(
                f"the secret {self.name} is not set",
                why="secrets are read from the environment of the process that runs the step",
                next=f"export {self.name}=... on the machine that runs the step",
            )
        return value

    def __canonical__(self) -> Any:
        return {"$secret": None}

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(lambda secret: secret.name)
        )


class Redactor:
    """Replaces secrets in text. Immutable; safe to share between threads."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """`secrets`: value -> name of the variable it came from."""
        self._names = dict(secrets)
        self._needles = (*_KNOWN_TOKENS, *self._names)
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, longest_first), _TOKEN_PATTERN.pattern]))

    @classmethod
    def from_environment(
        cls, *, declared: Iterable[str] = (), environment: Mapping[str, str] | None = None
    ) -> "Redactor":
        """Secrets of this process: the `declared` names, and every variable named as a secret."""
        variables = os.environ if environment is None else environment
        secrets: dict[str, str] = {}
        for name in variables:
            if is_secret_name(name) and _is_secret_value(variables[name]):
                _add(secrets, name, variables[name])
        for name in declared:
            value = variables.get(name, "")
            if len(value) >= _MINIMUM_DECLARED_LENGTH:
                _add(secrets, name, value)
        return cls(secrets)

    def redact(self, text: str) -> str:
        """`text` with every secret replaced by a note that names its variable."""
        return self._pattern.sub(self._note, text) if self.suspects(text) else text

    def suspects(self, text: str) -> bool:
        """Whether `text` may hold a secret: quick, and True too often."""
        return any(needle in text for needle in self._needles)

    def find(self, text: str) -> str | None:
        """What kind of secret `text` holds: the name of its variable, "" for a known kind of token; None for none."""
        match = self._pattern.search(text)
        return None if match is None else self._names.get(match[0], "")

    def _note(self, match: "re.Match[str]") -> str:
        return f"[{self._names.get(match[0], 'token')} redacted]"


def is_secret_name(name: str) -> bool:
    """Whether an environment variable is named as a secret: one of its whole words says so."""
    words = frozenset(re.split(r"[^A-Z0-9]+", name.upper()))
    return not words.isdisjoint(_SECRET_WORDS) and words.isdisjoint(_LOCATION_WORDS)


def _is_secret_value(value: str) -> bool:
    """Numbers, short words and files that hold the secret are no secrets themselves."""
    return len(value) >= _MINIMUM_LENGTH and not value.isdigit() and not (value[0] == "/" and os.path.exists(value))


def _add(secrets: dict[str, str], name: str, value: str) -> None:
    """A value in the spellings it may be printed in."""
    from urllib.parse import quote

    escaped = canonical_json(value)[1:-1]
    lines = [line for line in value.splitlines() if len(line) >= _MINIMUM_LINE_LENGTH]
    for spelling in (value, value.strip(), escaped, quote(value, safe=""), *lines):
        secrets.setdefault(spelling, name)


_current: tuple[dict[bytes, bytes], int, Redactor] | None = None
_declared: set[str] = set()
"""Names of the secrets that this process has declared or revealed."""


def _redactor_of_this_process() -> Redactor:
    """The redactor for the environment as it is now; made anew only when it changed."""
    global _current
    # The mapping behind `os.environ`: each check of a launch asks, and going through the public one decodes every
    # variable, which costs thirty times as much.
    environment = vars(os.environ)["_data"]
    if _current is None or _current[0] != environment or _current[1] != len(_declared):
        redactor = Redactor.from_environment(declared=sorted(_declared))
        _current = (dict(environment), len(_declared), redactor)
    return _current[2]


def redact(text: str) -> str:
    """Redact by this process's environment."""
    return _redactor_of_this_process().redact(text)


def refuse_secrets(arguments: Mapping[str, Any]) -> None:
    """GraphError if a secret stands as text in canonical arguments, naming the part that holds it."""
    _refuse((_texts(form, f"argument {name}") for name, form in arguments.items()), canonical_json(arguments))


def refuse_secret_text(text: str, *, where: str) -> None:
    """GraphError if `text`, which is stored and shown, holds a secret. `where` says what it is: "a name of a step"."""
    _refuse(([(where, text)],), text)


def refuse_secrets_in_json(value: Any, *, where: str) -> None:
    """GraphError if a secret stands in a JSON value that is to be stored, naming the part that holds it."""
    _refuse((_json_texts(value, where),), json.dumps(value, default=str))


def refuse_secrets_in_result(value: Any, *, where: str) -> None:
    """ResultError if a secret stands in JSON that a body made: its result, the name of a file or a metric."""
    try:
        refuse_secrets_in_json(value, where=where)
    except GraphError as error:
        raise ResultError(
            error.what,
            why="what a step makes is stored in records and shown to everyone who can read the outputs",
            next=f"leave it out; {error.next} wherever it is needed",
        ) from None


def _refuse(found: Iterable[Iterable[tuple[str, str]]], everything: str) -> None:
    redactor = _redactor_of_this_process()
    if not redactor.suspects(everything):
        return
    for where, text in (pair for pairs in found for pair in pairs):
        name = redactor.find(text)
        if name is not None:
            what = f"the value of the environment variable {name}" if name else "a token of a known kind"
            raise GraphError(
                f"{redactor.redact(where)} contains {what}",
                why="arguments and names are stored in records and shown in plans",
                next=f'pass Secret("{name or "NAME_OF_THE_VARIABLE"}") and call .reveal() in the step',
            )


def _json_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield path, key
            yield from _json_texts(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _json_texts(item, f"{path}[{index}]")


def _texts(form: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in a form, keys included, with the path of the argument part that holds it."""
    parts = list(children(form))
    if isinstance(form, str):
        yield path, form
    elif parts:
        for part, child in parts:
            yield path, part
            yield from _texts(child, f"{path}{part}")
    elif isinstance(form, list | dict):
        for child in form.values() if isinstance(form, dict) else form:
            yield from _texts(child, path)
