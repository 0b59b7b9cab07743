"""The grammar of keys: relative, "/"-separated, no part that a file system would interpret."""

CONTROL_DIRECTORY = ".marin_storage"
"""The local backend's own directory at the root: temporary files and locks. It appears in no listing."""

_FORBIDDEN_PARTS = frozenset(("", ".", ".."))


def check_key(key: str) -> None:
    """Raise `ValueError` unless `key` names an object below the root."""
    parts = key.split("/")
    if not _FORBIDDEN_PARTS.isdisjoint(parts) or "\0" in key:
        raise ValueError(
            f"storage key {key!r} is not allowed: a key is relative, its parts are separated by single slashes, "
            f"none is '.' or '..', and it holds no NUL"
        )
    if parts[0] == CONTROL_DIRECTORY:
        raise ValueError(f"storage key {key!r} is not allowed: {CONTROL_DIRECTORY!r} belongs to the storage layer")


def check_prefix(prefix: str) -> None:
    """Like `check_key`; the empty prefix means the whole root."""
    if prefix:
        check_key(prefix)
