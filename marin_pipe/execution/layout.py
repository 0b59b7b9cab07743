"""Where things lie below a root. Only this file knows the names; every key is relative to the root."""

import os
import re
import secrets

STEP_DIRECTORY = re.compile(r"^(?P<name>.+)-(?P<key>[0-9a-f]{16})$")
ATTEMPT = re.compile(r"^[0-9]{6,}-[0-9a-f]{6}$")
COMMIT_FILE = re.compile(r"^commit(?:\.(?P<number>[1-9][0-9]*))?\.json$")
KEY_DIGITS = 16
PROJECT = ".marin_pipe"
STORE_FILE = f"{PROJECT}/store.json"
GC_FILE = f"{PROJECT}/gc.json"
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+@,-]*\Z")


def name_problem(name: str) -> str | None:
    """Why `name` cannot name a step, an experiment or a label; None if it can.

    Names become paths on every kind of storage, so only characters that all of them carry unchanged are allowed.
    """
    if not name:
        return "it is empty"
    if len(name) > 200:
        return f"it has {len(name)} characters; at most 200 are allowed"
    parts = name.split("/")
    for part in parts:
        if not _SEGMENT.match(part):
            bad = next((c for c in part if not re.match(r"[A-Za-z0-9_.=+@,-]", c)), None)
            if bad is not None:
                return f"it has the character {bad!r}; allowed are letters, digits, _ . = + @ , - and / between parts"
            return f"its part {part!r} is empty or does not begin with a letter, a digit or _"
    for part in parts[:-1]:
        if STEP_DIRECTORY.match(part):
            return f"its part {part!r} looks like the directory of another step"
    return None


def step_directory(name: str, key: str) -> str:
    """`<name>-<first 16 hex of key>`."""
    return f"{name}-{key[:KEY_DIGITS]}"


def display_name(directory: str) -> str:
    """The step's name in `<name>-<key16>`."""
    parent, _, last = directory.rpartition("/")
    match = STEP_DIRECTORY.match(last)
    name = match["name"] if match is not None else last
    return f"{parent}/{name}" if parent else name


def is_name_part(text: str) -> bool:
    """Whether a directory's name can be part of a step's name, or a step directory: others are none of ours."""
    return _SEGMENT.match(text) is not None


def is_pin_address(directory: str) -> bool:
    """Whether a record's input was read through a pin: step directories are relative to their root."""
    return "://" in directory or os.path.isabs(directory)


def commit_key(directory: str, number: int) -> str:
    """`commit.json`, `commit.2.json`, ..."""
    return f"{directory}/commit.json" if number == 1 else f"{directory}/commit.{number}.json"


def commit_number(file_name: str) -> int | None:
    """The number in a commit's file name, or None for another file."""
    if not file_name.startswith("commit"):
        return None  # as most names are: no need for the pattern
    match = COMMIT_FILE.match(file_name)
    if match is None:
        return None
    number = int(match["number"] or 1)
    return None if match["number"] == "1" else number


def lease_key(directory: str) -> str:
    return f"{directory}/lease.json"


def new_nonce() -> str:
    """16 hex digits that name one owner of a lease."""
    return secrets.token_hex(8)


def attempt_name(epoch: int, nonce: str) -> str:
    """`000001-9f3c2a`: sorts by epoch."""
    return f"{epoch:06d}-{nonce[:6]}"


def attempt_epoch(attempt: str) -> int:
    """The epoch in an attempt's name."""
    return int(attempt.partition("-")[0])


def attempt_directory(directory: str, attempt: str) -> str:
    return f"{directory}/attempts/{attempt}"


def work_mark_file(directory: str, attempt: str) -> str:
    """Beside the attempt's output, so that `work/` holds nothing but what the step put there."""
    return f"{directory}/attempts/{attempt}/work.json"


def work_directory(directory: str, attempt: str) -> str:
    return f"{directory}/work/{attempt}"


def build_key_file(build_key: str) -> str:
    return f"{PROJECT}/builds/{build_key}.json"


def packages_file(digest: str) -> str:
    return f"{PROJECT}/packages/{digest}.json"


def label_file(label: str) -> str:
    return f"{PROJECT}/labels/{label}.json"


def launches_directory(experiment: str) -> str:
    return f"{PROJECT}/experiments/{experiment}"


def join_url(root: str, key: str) -> str:
    """A key's URL below a root."""
    return f"{root.rstrip('/')}/{key}"
