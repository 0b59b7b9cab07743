"""Amazon S3 and compatible stores: s3fs for sessions and large uploads, but requests of our own.

s3fs's own calls would not do: they retry by themselves, report a failed condition as EINVAL unless the store adds a
non-standard element, and drop the condition for empty bodies. Versions are ETags; since an ETag is a digest of the
content, every body written with a condition must be unique.
"""

import copy
import os
import re
import threading
from asyncio import timeout
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Self

import botocore.exceptions
import s3fs

from marin_storage.backend import Blob, Entry, Listing, Transient
from marin_storage.errors import AlreadyExists, Conflict, NotFound, PermissionDenied, StorageError
from marin_storage.remote import (
    LARGE_UPLOADS,
    PARALLELISM,
    PART_BYTES,
    SINGLE_REQUEST_BYTES,
    base64_md5,
    gather_bounded,
    run,
    sha256_in_pieces,
    transfer_s,
)

_PLAIN_MD5 = re.compile(r"[0-9a-f]{32}")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f]")
_MAX_PARTS = 9_000
_DELETE_BATCH = 1_000


class S3Backend:
    """`s3://bucket/prefix`. Endpoint, region and credentials come from the environment, as for every AWS tool."""

    parallelism = PARALLELISM

    def __init__(self, bucket: str, prefix: str, *, try_s: float):
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._base = f"{prefix}/" if prefix else ""
        self._bucket = bucket
        self._try_s = try_s
        self.storage_options: Mapping[str, Any] = {
            "use_listings_cache": False,
            # Given here, since fsspec would otherwise share one instance among different endpoints.
            "endpoint_url": os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"),
            "max_concurrency": LARGE_UPLOADS,
            "config_kwargs": {
                "connect_timeout": min(10.0, try_s),
                "read_timeout": try_s,
                "max_pool_connections": PARALLELISM,
                "retries": {"total_max_attempts": 1, "mode": "standard"},
                # Compatible stores refuse the newer checksum headers; Content-MD5 is checked by all of them.
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
        }
        self._filesystem: Any = s3fs.S3FileSystem(**self.storage_options)
        self._large_uploads = threading.Semaphore(LARGE_UPLOADS)

    def read(self, key: str, *, version: str | None = None) -> Blob:
        data, etag = self._get(key, version, None)
        return Blob(data, etag)

    def read_range(self, key: str, start: int, length: int, *, version: str | None = None) -> bytes:
        if length == 0:
            return b""
        try:
            return self._get(key, version, f"bytes={start}-{start + length - 1}")[0]
        except _BeyondEnd:
            return b""

    def stat(self, key: str) -> Entry:
        found = self._run("head_object", key)
        return Entry(
            key=key,
            size_bytes=found["ContentLength"],
            version=found["ETag"],
            modified=found["LastModified"].timestamp(),
        )

    def list_directory(self, prefix: str) -> Listing:
        base = f"{self._base}{prefix}/" if prefix else self._base
        items, prefixes = self._list(base, Delimiter="/")
        return Listing(
            [self._entry(item) for item in items if not item["Key"].endswith("/")],
            sorted(found[len(base) : -1] for found in prefixes),
        )

    def list_files(self, prefix: str) -> list[Entry]:
        items, _ = self._list(f"{self._base}{prefix}/" if prefix else self._base)
        # Names that end in a slash are directory markers, which other tools leave behind.
        entries = [self._entry(item) for item in items if not item["Key"].endswith("/")]
        return sorted(entries, key=lambda entry: entry.key)

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        del durable  # the store promises it
        try:
            return self._put(key, data, len(data), base64_md5(data), IfNoneMatch="*")
        except Conflict as error:
            raise AlreadyExists(f"{self.url}/{key} exists") from error

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        del durable
        try:
            return self._put(key, data, len(data), base64_md5(data), IfMatch=version)
        except NotFound as error:
            raise Conflict(f"{self.url}/{key} is gone; version {version} was expected") from error

    def write(self, key: str, data: bytes) -> str:
        return self._put(key, data, len(data), base64_md5(data))

    def delete(self, key: str, *, version: str | None = None) -> None:
        condition = {} if version is None else {"IfMatch": version}
        with suppress(NotFound):
            try:
                self._run("delete_object", key, **condition)
            except Conflict:
                # Some stores answer so when the object is absent.
                self._run("head_object", key)
                raise

    def delete_tree(self, prefix: str) -> int:
        items, _ = self._list(f"{self._base}{prefix}/")
        names = [item["Key"] for item in items]
        # XML cannot carry control characters, so objects with such names cannot be in a batch.
        batched = [name for name in names if not _CONTROL_CHARACTER.search(name)]
        batches = [batched[start : start + _DELETE_BATCH] for start in range(0, len(batched), _DELETE_BATCH)]
        single = [name for name in names if _CONTROL_CHARACTER.search(name)]
        run(
            self._filesystem.loop,
            gather_bounded(
                [self._delete_batch(batch) for batch in batches]
                + [self._request("delete_object", {"Key": name}, 0) for name in single]
            ),
        )
        return len(names)

    def digest(self, key: str) -> str:
        found = self._run("head_object", key)
        etag = found["ETag"]
        plain = etag.strip('"')
        encrypted = found.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in found
        if _PLAIN_MD5.fullmatch(plain) and not encrypted:
            return f"md5:{plain}"
        return sha256_in_pieces(
            found["ContentLength"], lambda start, length: self.read_range(key, start, length, version=etag)
        )

    def upload(self, source: Path, key: str) -> None:
        size_bytes = source.stat().st_size
        if size_bytes <= SINGLE_REQUEST_BYTES:
            with source.open("rb") as file:
                md5 = base64_md5(file)
                file.seek(0)
                self._put(key, file, size_bytes, md5)
            return
        part_bytes = max(PART_BYTES, -(-size_bytes // _MAX_PARTS))
        with self._large_uploads:
            run(self._filesystem.loop, self._upload_in_parts(str(source), key, size_bytes, part_bytes))

    def with_try_limit(self, try_s: float) -> Self:
        other = copy.copy(self)
        other._try_s = try_s
        return other

    def make_durable(self, prefix: str) -> None:
        del prefix

    def local_path(self, key: str) -> None:
        del key

    def _entry(self, item: Mapping[str, Any]) -> Entry:
        return Entry(
            key=item["Key"][len(self._base) :],
            size_bytes=item["Size"],
            version=item["ETag"],
            modified=item["LastModified"].timestamp(),
        )

    def _get(self, key: str, version: str | None, byte_range: str | None) -> tuple[bytes, str]:
        params = {"Key": self._base + key, "IfMatch": version, "Range": byte_range}
        given = {name: value for name, value in params.items() if value is not None}
        found = run(self._filesystem.loop, self._request("get_object", given, 0))
        data: bytes = found["Body"]
        etag: str = found["ETag"]
        return data, etag

    def _put(self, key: str, data: bytes | BufferedIOBase, size_bytes: int, md5: str, **condition: str) -> str:
        params = {"Key": self._base + key, "Body": data, "ContentLength": size_bytes, "ContentMD5": md5, **condition}
        etag: str = run(self._filesystem.loop, self._request("put_object", params, size_bytes))["ETag"]
        return etag

    def _list(self, prefix: str, **params: str) -> tuple[list[dict[str, Any]], list[str]]:
        items: list[dict[str, Any]] = []
        prefixes: list[str] = []
        while True:
            found = run(self._filesystem.loop, self._request("list_objects_v2", {"Prefix": prefix, **params}, 0))
            items += found.get("Contents", ())
            prefixes += [entry["Prefix"] for entry in found.get("CommonPrefixes", ())]
            if not found["IsTruncated"]:
                return items, prefixes
            params["ContinuationToken"] = found["NextContinuationToken"]

    async def _delete_batch(self, names: list[str]) -> None:
        params = {"Delete": {"Objects": [{"Key": name} for name in names], "Quiet": True}}
        errors = (await self._request("delete_objects", params, 0)).get("Errors", ())
        for error in errors:
            name = error.get("Key")
            raise _error_of(error.get("Code", ""), 0, error.get("Message", ""), f"delete {self.url}: {name}")

    async def _upload_in_parts(self, source: str, key: str, size_bytes: int, part_bytes: int) -> None:
        path = f"{self._bucket}/{self._base}{key}"
        with self._mapped(f"upload {self.url}/{key}"):
            try:
                async with timeout(transfer_s(self._try_s, size_bytes)):
                    await self._filesystem._put_file(source, path, chunksize=part_bytes)
            except FileNotFoundError as error:
                raise StorageError(f"{error}. Create the bucket {self._bucket}, or correct the root.") from error
            except PermissionError as error:
                raise PermissionDenied(f"{error} (upload {self.url}/{key})") from error

    def _run(self, operation: str, key: str, **params: Any) -> dict[str, Any]:
        return run(self._filesystem.loop, self._request(operation, {"Key": self._base + key, **params}, 0))

    async def _request(self, operation: str, params: Mapping[str, Any], size_bytes: int) -> dict[str, Any]:
        """One request, tried once, with a body in the reply read to its end."""
        with self._mapped(f"{operation} {self.url}: {params.get('Key', params.get('Prefix', ''))}"):
            async with timeout(transfer_s(self._try_s, size_bytes)) as limit:
                client = await self._filesystem.set_session()
                reply: dict[str, Any] = await getattr(client, operation)(Bucket=self._bucket, **params)
                if operation == "get_object":
                    expected = transfer_s(self._try_s, reply["ContentLength"])
                    limit.reschedule(self._filesystem.loop.time() + expected)
                    async with reply["Body"] as stream:
                        reply["Body"] = await stream.read()
                return reply

    @contextmanager
    def _mapped(self, what: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise Transient(f"no answer within {self._try_s:g} s ({what})") from error
        except UnicodeEncodeError as error:
            raise ValueError(f"{what}: the key is not valid Unicode: object stores name objects in UTF-8") from error
        except botocore.exceptions.ClientError as error:
            details = error.response.get("Error", {})
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise _error_of(details.get("Code", ""), status, details.get("Message", ""), what) from error
        except (botocore.exceptions.EndpointConnectionError, botocore.exceptions.ConnectTimeoutError) as error:
            raise Transient(f"no connection: {error} ({what})", applied=False) from error
        except (botocore.exceptions.HTTPClientError, botocore.exceptions.IncompleteReadError) as error:
            raise Transient(f"{type(error).__name__}: {error} ({what})") from error
        except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError) as error:
            raise PermissionDenied(
                f"{self.url}: no usable AWS credentials: {error}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                f"or run `aws configure`."
            ) from error
        except botocore.exceptions.BotoCoreError as error:
            raise StorageError(f"{type(error).__name__}: {error} ({what})") from error


class _BeyondEnd(StorageError):
    """A range that begins at or beyond the end of the object."""


def _error_of(code: str, status: int, message: str, what: str) -> StorageError:
    """The meaning of an error reply: by the status where there is one, since stores differ in their codes."""
    text = f"{code or status} {message} ({what})"
    if code == "NoSuchBucket":
        return StorageError(f"{text}. Create the bucket, or correct the storage root.")
    if status == 404 or code in ("NoSuchKey", "404"):
        return NotFound(text)
    if status == 412 or code == "PreconditionFailed":
        return Conflict(text)
    if status == 416 or code == "InvalidRange":
        return _BeyondEnd(text)
    if status == 409 or code in ("ConditionalRequestConflict", "OperationAborted"):
        # Two conditional writes met: this one was not applied, and may be tried again.
        return Transient(text, applied=False)
    if status == 429 or code in ("SlowDown", "Throttling", "TooManyRequests"):
        return Transient(text, applied=False)
    if code in ("BadDigest", "RequestTimeout", "XAmzContentSHA256Mismatch"):
        return Transient(text, applied=False)
    if status in (401, 403) or code == "AccessDenied":
        return PermissionDenied(f"{text}. Check which account is used and its rights on the bucket.")
    if (status >= 500 and status != 501) or code in ("InternalError", "ServiceUnavailable"):
        return Transient(text)
    return StorageError(text)
