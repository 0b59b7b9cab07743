"""Errors of the storage layer. Every backend maps its own errors onto these."""


class StorageError(Exception):
    """Base of all storage errors."""


class NotFound(StorageError, FileNotFoundError):
    """No object (or directory) has this key."""


class AlreadyExists(StorageError, FileExistsError):
    """`create` found an object with other bytes under the key: somebody else's."""


class Conflict(StorageError):
    """The object's version is not the one the caller named: somebody else changed it."""


class PermissionDenied(StorageError, PermissionError):
    """The store refuses this operation to this identity. Never retried."""


class OutOfSpace(StorageError, OSError):
    """The disk or the quota is full. Never retried."""


class Unavailable(StorageError):
    """The store did not answer well within the deadline, after retries. The operation was not applied."""


class UnknownOutcome(Unavailable):
    """A write may or may not have been applied, and reading back did not settle it."""


class Unsuitable(StorageError):
    """The store cannot keep the promises asked of it (for example, its conditional writes lie)."""


class MissingExtra(Unsuitable):
    """A package that this kind of store needs is not installed. `extra` of this distribution holds it."""

    def __init__(self, message: str, extra: str):
        super().__init__(message, extra)
        self.extra = extra

    def __str__(self) -> str:
        return str(self.args[0])
