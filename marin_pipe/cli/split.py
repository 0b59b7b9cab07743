"""The split of argv into what click parses and what overrides the experiment's config. Pure."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from marin_pipe.cli.fields import Fields
from marin_pipe.execution.errors import ConfigurationError

Flags = Mapping[str, bool]
"""Flag as written (`"--only"`, `"-f"`) -> whether it takes a value."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """`arguments` are for click, `overrides` are (field, text) for draccus; both in the order of argv."""

    arguments: tuple[str, ...]
    overrides: tuple[tuple[str, str], ...]


def find_command(argv: Sequence[str], *, commands: Collection[str], flags: Flags, fields: Fields) -> int | None:
    """Where in `argv` the command stands: the first word that is neither an option nor its value. None without one.

    `flags` are those of the default command. ConfigurationError if that word is no command.
    """
    index = 0
    while index < len(argv) and argv[index] != "--":
        word = argv[index]
        if not _is_option(word):
            if word in commands:
                return index
            known = f"the commands are: {', '.join(commands)}"
            raise ConfigurationError(f"there is no command {word!r}", next=_did_you_mean(word, commands) or known)
        following = argv[index + 1] if index + 1 < len(argv) else None
        # A flag that is unknown here may belong to the command that follows; a command is not taken for its value.
        unknown = _flag(word, flags) is None and fields.resolve(word[2:]) is None
        takes = _takes_next(word, following, flags, fields) and not (unknown and following in commands)
        index += 2 if takes else 1
    return None


def split(argv: Sequence[str], *, flags: Flags, fields: Fields) -> Split:
    """Divide `argv` (without the command).

    `--name value` and `--name=value` are flags if the command has one of that name, with dashes or underscores, and
    config overrides otherwise. The value of an override is the next word, unless that begins with `--` or is a flag.

    Raises:
        ConfigurationError: a name that is neither, with the nearest match; an override without a value.
    """
    arguments: list[str] = []
    overrides: list[tuple[str, str]] = []
    index = 0
    while index < len(argv):
        word = argv[index]
        if word == "--":
            arguments.extend(argv[index:])
            break
        following = argv[index + 1] if index + 1 < len(argv) else None
        takes = _is_option(word) and _takes_next(word, following, flags, fields)
        name, equals, value = word.partition("=")
        flag = _flag(name, flags)
        if flag is not None or not word.startswith("--"):
            # Single dashes too, also unknown ones and clusters: click knows.
            arguments.append(f"{flag}{equals}{value}" if flag is not None else word)
            arguments.extend([following] if takes and following is not None else [])
        else:
            given = value if equals else following if takes else None
            overrides.append(_override(name[2:], given, flags, fields))
        index += 2 if takes else 1
    return Split(arguments=tuple(arguments), overrides=tuple(overrides))


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _takes_next(word: str, following: str | None, flags: Flags, fields: Fields) -> bool:
    """Whether the word that follows the option `word` is its value."""
    if following is None or (word.startswith("--") and "=" in word):
        return False
    flag = _flag(word, flags)
    if flag is not None:
        return flags[flag]
    if not word.startswith("--") or following.startswith("--") or following in flags:
        return False
    field = fields.resolve(word[2:])
    return field is None or fields.takes(field, following)


def _override(name: str, value: str | None, flags: Flags, fields: Fields) -> tuple[str, str]:
    resolved = fields.resolve(name)
    if resolved is None:
        raise _unknown(name, value, flags, fields)
    if value is not None:
        return resolved, value
    field = fields.by_name.get(resolved)
    if field is not None and field.is_switch:
        return resolved, "true"
    raise ConfigurationError(
        f"--{name} needs a value",
        why=f"its type is {field.type_text}; only a bool may stand alone" if field is not None else "",
        next=f"write --{name} VALUE, or --{name}=VALUE if the value begins with --",
    )


def _unknown(name: str, value: str | None, flags: Flags, fields: Fields) -> ConfigurationError:
    what = (
        "neither a flag of this command nor a field of the config" if fields.by_name else "not a flag of this command"
    )
    switch = fields.switch(name[3:]) if name.startswith(("no-", "no_")) else None
    whole = fields.whole(name)
    if switch is not None:
        why = f"{switch} is a bool of the config, which is given by its value"
        next_ = f"write --{switch} false"
    elif whole is not None:
        why = f"{whole.name} is {whole.type_text}, which is given whole"
        key = name[len(whole.name) + 1 :]
        next_ = f"write --{whole.name} '{f'{{{key}: {value}}}' if whole.is_mapping else '[...]'}'"
    else:
        why = ""
        names = [*(flag[2:] for flag in flags if flag.startswith("--")), *fields.by_name]
        next_ = _did_you_mean(name, names, "--") or "see --help"
    return ConfigurationError(f"--{name} is {what}", why=why, next=next_)


def _flag(word: str, flags: Flags) -> str | None:
    for candidate in (word, f"--{word[2:].replace('_', '-')}"):
        if candidate in flags:
            return candidate
    return None


def _did_you_mean(word: str, known: Collection[str], prefix: str = "") -> str:
    by_spelling = {name.replace("_", "-"): name for name in known}
    close = difflib.get_close_matches(word.replace("_", "-"), list(by_spelling), n=1)
    return f"did you mean {prefix}{by_spelling[close[0]]}?" if close else ""
