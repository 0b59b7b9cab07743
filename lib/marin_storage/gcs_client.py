"""Requests to the JSON API of Google Cloud Storage, each tried once, over the connections and credentials of gcsfs."""

import asyncio
import copy
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase, BytesIO
from typing import Any, Self
from urllib.parse import quote, urlencode

# Otherwise gcsfs asks every bucket for its type over gRPC, and stalls for 60 s where only HTTP answers.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

import aiohttp
import gcsfs
import google.auth.exceptions
from yarl import URL

from marin_storage.backend import Transient
from marin_storage.errors import Conflict, NotFound, PermissionDenied, StorageError
from marin_storage.remote import PART_BYTES, run, transfer_s

_WHOLE_BYTES = 1 << 19
"""Larger bodies are sent in pieces: handing the connection all of one would stop the event loop meanwhile."""

_PART_TRIES = 4
_TOO_FAST = frozenset(("rateLimitExceeded", "userRateLimitExceeded"))
_CONTENT_TYPE = "application/octet-stream"


class RangeBeyondEnd(StorageError):
    """A range that begins at or beyond the end of the object."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply with a status below 400, its body read to the end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class GcsClient:
    """Requests about one bucket. Errors are those of a backend: 404 `NotFound`, 412 `Conflict`, and so on."""

    def __init__(self, bucket: str, *, try_s: float, options: Mapping[str, Any]):
        self._bucket = quote(bucket, safe="")
        self._try_s = try_s
        self._filesystem: Any = gcsfs.GCSFileSystem(**options)
        self.loop: asyncio.AbstractEventLoop = self._filesystem.loop

    def with_try_limit(self, try_s: float) -> Self:
        other = copy.copy(self)
        other._try_s = try_s
        return other

    def get(self, name: str, headers: Mapping[str, str] | None = None, **params: str | None) -> Reply:
        """The object (`alt="media"`) or its description."""
        return run(self.loop, self._request("GET", self._object_url(name, params), headers))

    def get_page(self, **params: str | None) -> Any:
        """One page of a listing."""
        return run(self.loop, self._request("GET", self._url("storage/v1", "", params))).json()

    async def delete(self, name: str, **params: str | None) -> None:
        await self._request("DELETE", self._object_url(name, params))

    def insert(self, name: str, data: bytes | BufferedIOBase, size_bytes: int, **params: str | None) -> Any:
        """Write an object by one request, with no boundary that the body might contain; returns its description."""
        url = self._url("upload/storage/v1", "", {"uploadType": "media", "name": quotable(name), **params})
        if isinstance(data, bytes) and len(data) > _WHOLE_BYTES:
            data = BytesIO(data)
        headers = {"Content-Type": _CONTENT_TYPE, "Content-Length": str(size_bytes)}
        return run(self.loop, self._request("POST", url, headers, data, size_bytes)).json()

    async def insert_in_parts(self, name: str, file: BufferedIOBase, size_bytes: int) -> Any:
        """Write a large object by a resumable upload; returns its description.

        A part whose reply is missing is asked about and continued a few times before the whole upload fails.
        """
        url = self._url("upload/storage/v1", "", {"uploadType": "resumable", "name": quotable(name)})
        headers = {"X-Upload-Content-Type": _CONTENT_TYPE, "X-Upload-Content-Length": str(size_bytes)}
        session = URL((await self._request("POST", url, headers)).headers["Location"], encoded=True)
        start = failures = 0
        while True:
            file.seek(start)
            part = file.read(PART_BYTES)
            headers = {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{size_bytes}"}
            try:
                reply = await self._request("PUT", session, headers, BytesIO(part), len(part))
                failures = 0
            except Transient:
                failures += 1
                if failures == _PART_TRIES:
                    raise
                await asyncio.sleep(failures)
                reply = await self._request("PUT", session, {"Content-Range": f"bytes */{size_bytes}"})
            if reply.status != 308:
                return reply.json()
            start = int(reply.headers.get("Range", "bytes=0--1").partition("-")[2]) + 1

    def _object_url(self, name: str, params: Mapping[str, str | None]) -> URL:
        return self._url("storage/v1", f"/{quote(quotable(name), safe='')}", params)

    def _url(self, api: str, rest: str, params: Mapping[str, str | None]) -> URL:
        given = {name: value for name, value in params.items() if value is not None}
        location = self._filesystem._location
        return URL(f"{location}/{api}/b/{self._bucket}/o{rest}?{urlencode(given)}", encoded=True)

    async def _request(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str] | None = None,
        data: bytes | BufferedIOBase | None = None,
        size_bytes: int = 0,
    ) -> Reply:
        filesystem = self._filesystem
        what = f"{method} {url.with_query(None)}"
        with self._mapped(what):
            async with asyncio.timeout(transfer_s(self._try_s, size_bytes)) as limit:
                await filesystem._set_session()
                async with filesystem.session.request(
                    method,
                    url,
                    headers=filesystem._get_headers(dict(headers or {})),
                    data=data,
                    timeout=aiohttp.ClientTimeout(),  # the limit above grows with the reply
                    allow_redirects=False,  # 308 says that an upload may go on
                ) as response:
                    expected = int(response.headers.get("Content-Length", 0))
                    limit.reschedule(self.loop.time() + transfer_s(self._try_s, expected))
                    body = await response.read()
                    if response.status >= 400:
                        raise _error_of(response.status, response.headers, body, what)
                    return Reply(response.status, response.headers, body)

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
                f"no usable Google credentials: {error} ({what}). Run `gcloud auth application-default login`."
            ) from error


def quotable(name: str) -> str:
    """`name`, or `ValueError` if it cannot be written in UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"storage key {name!r} is not valid Unicode: object stores name objects in UTF-8") from error
    return name


def _error_of(status: int, headers: Mapping[str, str], body: bytes, what: str) -> StorageError:
    message, reason = _message_of(body)
    text = f"{status} {message or 'no message'} ({what})"
    if status == 404:
        return NotFound(text)
    if status == 412:
        return Conflict(text)
    if status == 416:
        return RangeBeyondEnd(text)
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
