"""Object-storage primitives: atomic create, compare-and-swap, listing and digests on disk, GCS, S3 and memory."""

from marin_storage.backend import Backend, Blob, Entry, Listing, Transient
from marin_storage.errors import (
    AlreadyExists,
    Conflict,
    MissingExtra,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    UnknownOutcome,
    Unsuitable,
)
from marin_storage.open import open_store
from marin_storage.probe import ProbeResult, ensure_writable, probe
from marin_storage.retry import RetryPolicy
from marin_storage.store import Store

__all__ = [
    "AlreadyExists",
    "Backend",
    "Blob",
    "Conflict",
    "Entry",
    "Listing",
    "MissingExtra",
    "NotFound",
    "OutOfSpace",
    "PermissionDenied",
    "ProbeResult",
    "RetryPolicy",
    "StorageError",
    "Store",
    "Transient",
    "Unavailable",
    "UnknownOutcome",
    "Unsuitable",
    "ensure_writable",
    "open_store",
    "probe",
]
