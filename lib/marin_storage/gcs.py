"""Google Cloud Storage: gcsfs for credentials and connections, but requests of our own.

gcsfs's own calls would not do: they retry by themselves (a lost reply then looks like a refusal), know no
compare-and-swap, and put small bodies between fixed MIME boundaries, which truncates a body that contains one.
`uploadType=media` has no boundary. Versions are generations.
"""

import base64
import hashlib
import io
import json
import os
import threading
from asyncio import timeout
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode

# Otherwise gcsfs asks every bucket for its type over gRPC, and stalls for 60 s where only HTTP answers.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

import aiohttp
import gcsfs
import google.auth.exceptions
import requests.exceptions
from yarl import URL

from marin_storage.backend import Blob, Entry, Listing, Transient
from marin_storage.errors import AlreadyExists, Conflict, NotFound, PermissionDenied, StorageError
from marin_storage.remote import (
    LARGE_UPLOADS,
    PARALLELISM,
    SINGLE_REQUEST_BYTES,
    gather_bounded,
    run,
    sha256_in_pieces,
    transfer_s,
)

_TOO_FAST = frozenset(("rateLimitExceeded", "userRateLimitExceeded"))
_WHOLE_BYTES = 1 << 19
"""Larger bodies are sent in pieces: handing the connection all of one would stop the event loop meanwhile."""

_OBJECT_FIELDS = "name,size,generation,updated"


@dataclass(frozen=True, slots=True)
class _Reply:
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class GcsBackend:
    """`gs://bucket/prefix`. The endpoint may be another by the environment variable `STORAGE_EMULATOR_HOST`."""

    parallelism = PARALLELISM

    def __init__(self, bucket: str, prefix: str, *, try_s: float):
        self.url = f"gs://{bucket}/{prefix}".rstrip("/")
        self._base = f"{prefix}/" if prefix else ""
        self._bucket = bucket
        self._try_s = try_s
        # Listing caches hide what other processes write; without a timeout a silent server is waited for indefinitely.
        self.storage_options: Mapping[str, Any] = {
            "use_listings_cache": False,
            "requests_timeout": try_s,
            "consistency": "md5",
        }
        self._filesystem: Any = gcsfs.GCSFileSystem(**self.storage_options)
        self._large_uploads = threading.Semaphore(LARGE_UPLOADS)

    def read(self, key: str, *, version: str | None = None) -> Blob:
        reply = self._run("GET", self._object(key), alt="media", ifGenerationMatch=version)
        expected = _stored_md5(reply.headers)
        if expected is not None and expected != _md5(reply.body):
            raise Transient(f"{self.url}/{key}: the bytes received do not match the store's MD5", applied=False)
        return Blob(reply.body, reply.headers["X-Goog-Generation"])

    def read_range(self, key: str, start: int, length: int, *, version: str | None = None) -> bytes:
        if length == 0:
            return b""
        headers = {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            return self._run("GET", self._object(key), headers, alt="media", ifGenerationMatch=version).body
        except _BeyondEnd:
            return b""

    def stat(self, key: str) -> Entry:
        return self._entry(self._run("GET", self._object(key), fields=_OBJECT_FIELDS).json())

    def list_directory(self, prefix: str) -> Listing:
        base = f"{self._base}{prefix}/" if prefix else self._base
        items, prefixes = self._list(base, "/")
        return Listing(
            [self._entry(item) for item in items if not item["name"].endswith("/")],
            sorted(found[len(base) : -1] for found in prefixes),
        )

    def list_files(self, prefix: str) -> list[Entry]:
        items, _ = self._list(f"{self._base}{prefix}/" if prefix else self._base)
        # Names that end in a slash are directory markers, which other tools leave behind.
        entries = [self._entry(item) for item in items if not item["name"].endswith("/")]
        return sorted(entries, key=lambda entry: entry.key)

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        del durable  # the store promises it
        try:
            return self._insert(key, data, len(data), _md5(data), generation="0")
        except Conflict as error:
            raise AlreadyExists(f"{self.url}/{key} exists") from error

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        del durable
        return self._insert(key, data, len(data), _md5(data), generation=version)

    def write(self, key: str, data: bytes) -> str:
        return self._insert(key, data, len(data), _md5(data), generation=None)

    def delete(self, key: str, *, version: str | None = None) -> None:
        try:
            self._run("DELETE", self._object(key), ifGenerationMatch=version)
        except NotFound as error:
            if version is not None:
                raise Conflict(f"{self.url}/{key} is gone; version {version} was expected") from error

    def delete_tree(self, prefix: str) -> int:
        items, _ = self._list(f"{self._base}{prefix}/")
        names = [item["name"] for item in items]
        run(self._filesystem.loop, gather_bounded([self._delete_if_present(name) for name in names]))
        return len(names)

    def digest(self, key: str) -> str:
        found = self._run("GET", self._object(key), fields="size,generation,md5Hash").json()
        if "md5Hash" in found:
            return f"md5:{base64.b64decode(found['md5Hash']).hex()}"
        # Composed objects have no MD5.
        generation = found["generation"]
        return sha256_in_pieces(
            int(found["size"]), lambda start, length: self.read_range(key, start, length, version=generation)
        )

    def upload(self, source: Path, key: str) -> None:
        size_bytes = source.stat().st_size
        if size_bytes <= SINGLE_REQUEST_BYTES:
            with source.open("rb") as file:
                md5 = base64.b64encode(hashlib.file_digest(file, "md5").digest()).decode()
                file.seek(0)
                self._insert(key, file, size_bytes, md5, generation=None)
            return
        path = f"{self._bucket}/{self._base}{key}"
        with self._large_uploads:
            run(self._filesystem.loop, self._upload_in_parts(str(source), path, size_bytes))

    def make_durable(self, prefix: str) -> None:
        del prefix

    def local_path(self, key: str) -> None:
        del key

    def _object(self, key: str) -> str:
        return self._object_url(self._base + key)

    def _object_url(self, name: str) -> str:
        return f"storage/v1/b/{quote(self._bucket, safe='')}/o/{_quote_name(name)}"

    def _entry(self, item: Mapping[str, Any]) -> Entry:
        return Entry(
            key=item["name"][len(self._base) :],
            size_bytes=int(item["size"]),
            version=item["generation"],
            modified=datetime.fromisoformat(item["updated"]).timestamp(),
        )

    def _list(self, prefix: str, delimiter: str | None = None) -> tuple[list[dict[str, Any]], list[str]]:
        items: list[dict[str, Any]] = []
        prefixes: list[str] = []
        page: str | None = None
        fields = f"nextPageToken,prefixes,items({_OBJECT_FIELDS})"
        while True:
            try:
                found = self._run(
                    "GET",
                    f"storage/v1/b/{quote(self._bucket, safe='')}/o",
                    prefix=prefix,
                    pageToken=page,
                    fields=fields,
                    delimiter=delimiter,
                ).json()
            except NotFound as error:
                raise self._no_bucket() from error
            items += found.get("items", ())
            prefixes += found.get("prefixes", ())
            page = found.get("nextPageToken")
            if page is None:
                return items, prefixes

    def _insert(self, key: str, data: bytes | IO[bytes], size_bytes: int, md5: str, *, generation: str | None) -> str:
        name = self._base + key
        _quote_name(name)
        if isinstance(data, bytes) and len(data) > _WHOLE_BYTES:
            data = io.BytesIO(data)
        try:
            stored = self._run(
                "POST",
                f"upload/storage/v1/b/{quote(self._bucket, safe='')}/o",
                {"Content-Type": "application/octet-stream", "Content-Length": str(size_bytes)},
                data,
                size_bytes,
                uploadType="media",
                name=name,
                ifGenerationMatch=generation,
            ).json()
        except NotFound as error:
            raise self._no_bucket() from error
        if stored.get("md5Hash", md5) != md5:
            raise StorageError(
                f"{self.url}/{key}: the store keeps bytes with MD5 {stored['md5Hash']}, but {md5} was sent. "
                f"They were changed on the way. Delete the object and write it again."
            )
        version: str = stored["generation"]
        return version

    async def _delete_if_present(self, name: str) -> None:
        with self._mapped(name):
            try:
                await self._request("DELETE", self._object_url(name), {}, None, 0, {})
            except NotFound:
                return

    async def _upload_in_parts(self, source: str, path: str, size_bytes: int) -> None:
        with self._mapped(path):
            try:
                async with timeout(transfer_s(self._try_s, size_bytes)):
                    await self._filesystem._put_file(source, path, chunksize=SINGLE_REQUEST_BYTES, consistency="md5")
            except FileNotFoundError as error:
                raise self._no_bucket() from error

    def _run(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        data: bytes | IO[bytes] | None = None,
        size_bytes: int = 0,
        **params: str | None,
    ) -> _Reply:
        """One request, tried once."""
        given = {name: value for name, value in params.items() if value is not None}
        with self._mapped(path):
            return run(self._filesystem.loop, self._request(method, path, headers or {}, data, size_bytes, given))

    async def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        data: bytes | IO[bytes] | None,
        size_bytes: int,
        params: Mapping[str, str],
    ) -> _Reply:
        filesystem = self._filesystem
        url = URL(f"{filesystem._location}/{path}?{urlencode(params)}", encoded=True)
        async with timeout(transfer_s(self._try_s, size_bytes)) as limit:
            await filesystem._set_session()
            async with filesystem.session.request(
                method, url, headers=filesystem._get_headers(dict(headers)), data=data, timeout=aiohttp.ClientTimeout()
            ) as response:
                expected = int(response.headers.get("Content-Length", 0))
                limit.reschedule(filesystem.loop.time() + transfer_s(self._try_s, expected))
                body = await response.read()
                if response.status >= 400:
                    raise _error_of(response.status, response.headers, body, f"{method} {self.url}: {path}")
                return _Reply(response.headers, body)

    @contextmanager
    def _mapped(self, what: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise Transient(f"no answer within {self._try_s:g} s ({what})") from error
        except aiohttp.ClientConnectorError as error:
            raise Transient(f"no connection: {error} ({what})", applied=False) from error
        except aiohttp.ClientError as error:
            raise Transient(f"{type(error).__name__}: {error} ({what})") from error
        except google.auth.exceptions.TransportError as error:
            raise Transient(f"{type(error).__name__}: {error} ({what})", applied=False) from error
        except google.auth.exceptions.GoogleAuthError as error:
            raise PermissionDenied(
                f"{self.url}: no usable Google credentials: {error}. Run `gcloud auth application-default login`."
            ) from error
        except (gcsfs.retry.HttpError, gcsfs.retry.ChecksumError, requests.exceptions.RequestException) as error:
            raise Transient(f"{type(error).__name__}: {error} ({what})") from error

    def _no_bucket(self) -> StorageError:
        return StorageError(f"the bucket gs://{self._bucket} does not exist. Create it, or correct the storage root.")


class _BeyondEnd(StorageError):
    """A range that begins at or beyond the end of the object."""


def _error_of(status: int, headers: Mapping[str, str], body: bytes, what: str) -> StorageError:
    message, reason = _message_of(body)
    text = f"{status} {message or 'no message'} ({what})"
    if status == 404:
        return NotFound(text)
    if status == 412:
        return Conflict(text)
    if status == 416:
        return _BeyondEnd(text)
    if status == 429 or reason in _TOO_FAST:
        return Transient(text, applied=False, retry_after_s=_retry_after_s(headers))
    if status in (401, 403):
        return PermissionDenied(f"{text}. Check which account is used and its rights on the bucket.")
    if status in (408, 409) or (status >= 500 and status != 501):
        return Transient(text, retry_after_s=_retry_after_s(headers))
    return StorageError(text)


def _message_of(body: bytes) -> tuple[str, str]:
    """The text and the reason of an error reply, which proxies also send as HTML or nothing."""
    try:
        error = json.loads(body)["error"]
        return error["message"], error["errors"][0]["reason"]
    except (ValueError, LookupError, TypeError):
        return body[:200].decode(errors="replace"), ""


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None


def _quote_name(name: str) -> str:
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise ValueError(f"storage key {name!r} is not valid Unicode: object stores name objects in UTF-8") from error


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _stored_md5(headers: Mapping[str, str]) -> str | None:
    if headers.get("X-Goog-Stored-Content-Encoding", "identity") != "identity":
        return None
    for part in headers.get("X-Goog-Hash", "").split(","):
        name, _, value = part.strip().partition("=")
        if name == "md5":
            return value
    return None
