"""From a URL to a `Store`."""

import os
import re
import stat

from marin_storage.backend import Backend
from marin_storage.errors import MissingExtra, Unsuitable
from marin_storage.local import LocalBackend
from marin_storage.retry import RetryPolicy
from marin_storage.store import Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(url: str, *, retry: RetryPolicy | None = None) -> Store:
    """The store at a path, `file://`, `memory://`, `gs://` or `s3://` URL. Reads no object and writes nothing.

    Raises `Unsuitable` for any other scheme, and for a path where no directory is or can be; `MissingExtra` if a
    package is not installed.
    """
    policy = retry or RetryPolicy()
    try:
        return Store(_open_backend(url, policy), retry=policy)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{url!r} needs {error.name}, which is not installed", "s3" if url.lower().startswith("s3") else "gcs"
        ) from error


def _open_backend(url: str, policy: RetryPolicy) -> Backend:
    match = _SCHEME.match(url)
    if match is None:
        if not url:
            raise Unsuitable("the storage root is empty. Give a directory, or a gs://, s3:// or memory:// URL.")
        return _open_directory(url, os.path.abspath(os.path.expanduser(url)))
    scheme, rest = match[1].lower(), url[match.end() :].rstrip("/")
    if scheme == "file":
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise Unsuitable(f"{url!r} names the host {parts.netloc!r}: file:// reaches this machine only.")
        return _open_directory(url, os.path.abspath(unquote(url[match.end() + len(parts.netloc) :])))
    if scheme == "memory":
        from marin_storage.memory import MemoryBackend

        return MemoryBackend(rest.lstrip("/"))
    if scheme in ("gs", "gcs"):
        from marin_storage.gcs import GcsBackend

        return GcsBackend(*_bucket_and_prefix(url, rest), try_s=policy.try_s)
    if scheme in ("s3", "s3a"):
        from marin_storage.s3 import S3Backend

        return S3Backend(*_bucket_and_prefix(url, rest), try_s=policy.try_s)
    raise Unsuitable(
        f"{url!r}: {scheme}:// cannot be a storage root, because it has no atomic create-if-absent that this project "
        f"knows. Give a directory, or a gs://, s3:// or memory:// URL."
    )


def _open_directory(url: str, path: str) -> LocalBackend:
    """A root on disk, which may be missing: the first write makes it."""
    rule = "A root on disk is a directory, or a path where one can be made."
    try:
        is_directory = stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        if os.path.islink(path):
            raise Unsuitable(f"the storage root {url!r} is a symbolic link to nothing.\n{rule}") from None
        return LocalBackend(path)
    except PermissionError:
        # Not the root's fault; whatever is tried in it says who may not.
        return LocalBackend(path)
    except NotADirectoryError:
        raise Unsuitable(f"the storage root {url!r} lies below something that is no directory.\n{rule}") from None
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise Unsuitable(f"the storage root {url!r} cannot be a path here ({problem}).\n{rule}") from None
    if not is_directory:
        raise Unsuitable(f"the storage root {url!r} is no directory.\n{rule}")
    return LocalBackend(path)


def _bucket_and_prefix(url: str, rest: str) -> tuple[str, str]:
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise Unsuitable(f"{url!r} names no bucket. Write it as scheme://bucket/prefix.")
    return bucket, prefix
