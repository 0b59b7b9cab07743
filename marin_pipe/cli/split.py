"""The split of argv into what click parses and what overrides the experiment's config. Pure."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from marin_pipe.cli.fields import Fields
from marin_pipe.execution.errors import ConfigurationError

Flags = Mapping[str, bool]
"""Flag as written (`"--only"`, `"-f"`) -> whether it takes a value."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """`arguments` are for click, in their order; `overrides` are (field, text) for draccus, in theirs."""

    arguments: tuple[str, ...]
    overrides: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: Literal["flag", "override", "positional"]
    words: tuple[str, ...]
    """As click wants them, or (field, text)."""
    index: int


def find_command(argv: Sequence[str], *, commands: Collection[str], flags: Flags, fields: Fields) -> int | None:
    """Where in `argv` the command stands: the first word that is neither a flag nor a value. None if there is none.

    `flags` are those of the default command. ConfigurationError if that word is no command.
    """
    for token in _tokens(argv, flags=flags, fields=fields, strict=False, commands=commands):
        if token.kind == "positional":
            word = token.words[0]
            if word in commands:
                return token.index
            if word != "--":
                raise ConfigurationError(
                    f"there is no command {word!r}", next=_nearest(word, sorted(commands), "the commands are")
                )
            return None
    return None


def split(argv: Sequence[str], *, flags: Flags, fields: Fields) -> Split:
    """Divide `argv` (without the command).

    `--name value` and `--name=value` are flags if the command has one of that name, with dashes or underscores, and
    config overrides otherwise. A value is the next word, unless that begins with `--` or is a flag itself.

    Raises:
        ConfigurationError: a name that is neither, with the nearest match; an override without a value.
    """
    arguments: list[str] = []
    overrides: list[tuple[str, str]] = []
    for token in _tokens(argv, flags=flags, fields=fields, strict=True):
        if token.kind == "override":
            overrides.append((token.words[0], token.words[1]))
        else:
            arguments.extend(token.words)
    return Split(arguments=tuple(arguments), overrides=tuple(overrides))


def _tokens(
    argv: Sequence[str], *, flags: Flags, fields: Fields, strict: bool, commands: Collection[str] = ()
) -> Iterator[_Token]:
    index = 0
    while index < len(argv):
        word = argv[index]
        following = argv[index + 1] if index + 1 < len(argv) else None
        if word == "--":
            for rest in range(index, len(argv)):
                yield _Token("positional", (argv[rest],), rest)
            return
        if not word.startswith("-") or word == "-":
            yield _Token("positional", (word,), index)
            index += 1
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        flag = _flag(name, flags)
        if flag is not None:
            own = (f"{flag}={value}",) if equals else (flag,)
            if flags[flag] and not equals and following is not None:
                own = (flag, following)
        elif not word.startswith("--"):
            own = (word,)  # short flags in clusters, or unknown ones: click knows
        else:
            token, taken = _override(name[2:], value if equals else None, following, flags, fields, strict, commands)
            yield _Token(token.kind, token.words, index)
            index += taken
            continue
        yield _Token("flag", own, index)
        index += 2 if len(own) == 2 else 1


def _override(
    name: str,
    value: str | None,
    following: str | None,
    flags: Flags,
    fields: Fields,
    strict: bool,
    commands: Collection[str],
) -> tuple[_Token, int]:
    """The override (or, where not strict, another command's flag) that begins here, and how many words it takes."""
    field = fields.resolve(name)
    if field is None and strict:
        raise ConfigurationError(
            f"--{name} is neither a flag of this command nor a field of the config",
            next=_nearest(name, [*(f[2:] for f in flags if f.startswith("--")), *fields.by_name], "see --help", "--"),
        )
    if value is not None:
        return _Token("override", (field or name, value), 0), 1
    usable = following is not None and not following.startswith("--") and following not in flags
    if field is None:
        return _Token("flag", (), 0), 2 if usable and following not in commands else 1
    if usable and fields.takes(field, following or ""):
        return _Token("override", (field, following or ""), 0), 2
    if strict and not (field in fields.by_name and fields.by_name[field].kind == "switch"):
        raise ConfigurationError(
            f"--{name} needs a value" + (f", and {following!r} is a flag" if following is not None else ""),
            why=f"its type is {fields.by_name[field].type_text}; only a bool may stand alone"
            if field in fields.by_name
            else "",
            next=f"write --{name} VALUE, or --{name}=VALUE if the value begins with --",
        )
    return _Token("override", (field, "true"), 0), 1


def _flag(name: str, flags: Flags) -> str | None:
    for candidate in (name, f"--{name[2:].replace('_', '-')}"):
        if candidate in flags:
            return candidate
    return None


def _nearest(word: str, known: Sequence[str], otherwise: str, prefix: str = "") -> str:
    by_spelling = {name.replace("_", "-"): name for name in known}
    close = difflib.get_close_matches(word.replace("_", "-"), list(by_spelling), n=1, cutoff=0.6)
    if close:
        return f"did you mean {prefix}{by_spelling[close[0]]}?"
    return otherwise if prefix else f"{otherwise}: {', '.join(known)}"
