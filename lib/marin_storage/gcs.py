"""Google Cloud Storage. Versions are generations.

gcsfs's own calls would not do: they retry by themselves (a lost reply then looks like a refusal), know no
compare-and-swap, and put small bodies between fixed MIME boundaries, which truncates a body that contains one.
"""

import base64
import copy
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Semaphore
from typing import Any, Self

from marin_storage.backend import Blob, Entry, Listing, Transient
from marin_storage.errors import AlreadyExists, Conflict, NotFound, StorageError
from marin_storage.gcs_client import GcsClient, RangeBeyondEnd
from marin_storage.remote import (
    LARGE_UPLOADS,
    PARALLELISM,
    SINGLE_REQUEST_BYTES,
    base64_md5,
    gather_bounded,
    run,
    sha256_in_pieces,
)

_FIELDS = "name,size,generation,updated"


class GcsBackend:
    """`gs://bucket/prefix`. The endpoint may be another by the environment variable `STORAGE_EMULATOR_HOST`."""

    parallelism = PARALLELISM

    def __init__(self, bucket: str, prefix: str, *, try_s: float):
        self.url = f"gs://{bucket}/{prefix}".rstrip("/")
        self._base = f"{prefix}/" if prefix else ""
        self._bucket = bucket
        # Listing caches hide what other processes write; without a timeout a silent server is waited for for ever;
        # without the checksum a truncated upload goes unnoticed.
        self.storage_options: Mapping[str, Any] = {
            "use_listings_cache": False,
            "requests_timeout": try_s,
            "consistency": "md5",
        }
        self._client = GcsClient(bucket, try_s=try_s, options=self.storage_options)
        self._large_uploads = Semaphore(LARGE_UPLOADS)

    def read(self, key: str, *, version: str | None = None) -> Blob:
        reply = self._client.get(self._base + key, alt="media", ifGenerationMatch=version)
        expected = _stored_md5(reply.headers)
        if expected is not None and expected != base64_md5(reply.body):
            raise Transient(f"{self.url}/{key}: the bytes received do not match the store's MD5", applied=False)
        generation = reply.headers.get("X-Goog-Generation")
        if generation is None:
            raise StorageError(f"{self.url}/{key}: the reply names no generation, so that no version can be relied on")
        return Blob(reply.body, generation)

    def read_range(self, key: str, start: int, length: int, *, version: str | None = None) -> bytes:
        if length == 0:
            return b""
        headers = {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            return self._client.get(self._base + key, headers, alt="media", ifGenerationMatch=version).body
        except RangeBeyondEnd:
            return b""

    def stat(self, key: str) -> Entry:
        return self._entry(self._client.get(self._base + key, fields=_FIELDS).json())

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
            return self._insert(key, data, generation="0")
        except Conflict as error:
            raise AlreadyExists(f"{self.url}/{key} exists") from error

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        del durable
        return self._insert(key, data, generation=version)

    def write(self, key: str, data: bytes) -> str:
        return self._insert(key, data, generation=None)

    def delete(self, key: str, *, version: str | None = None) -> None:
        run(self._client.loop, self._delete(self._base + key, version))

    def delete_tree(self, prefix: str) -> int:
        items, _ = self._list(f"{self._base}{prefix}/")
        run(self._client.loop, gather_bounded([self._delete(item["name"], None) for item in items]))
        return len(items)

    def digest(self, key: str) -> str:
        found = self._client.get(self._base + key, fields="size,generation,md5Hash").json()
        if "md5Hash" in found:
            return f"md5:{base64.b64decode(found['md5Hash']).hex()}"
        # Composed objects have no MD5.
        generation = found["generation"]
        return sha256_in_pieces(
            int(found["size"]), lambda start, length: self.read_range(key, start, length, version=generation)
        )

    def upload(self, source: Path, key: str) -> None:
        name = self._base + key
        with source.open("rb") as file:
            size_bytes = source.stat().st_size
            md5 = base64_md5(file)
            file.seek(0)
            try:
                if size_bytes <= SINGLE_REQUEST_BYTES:
                    stored = self._client.insert(name, file, size_bytes)
                else:
                    with self._large_uploads:
                        stored = run(self._client.loop, self._client.insert_in_parts(name, file, size_bytes))
            except NotFound as error:
                raise self._no_bucket() from error
        self._require_md5(key, stored, md5)

    def with_try_limit(self, try_s: float) -> Self:
        other = copy.copy(self)
        other._client = self._client.with_try_limit(try_s)
        return other

    def make_durable(self, prefix: str) -> None:
        del prefix

    def local_path(self, key: str) -> None:
        del key

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
        fields = f"nextPageToken,prefixes,items({_FIELDS})"
        while True:
            try:
                found = self._client.get_page(prefix=prefix, pageToken=page, fields=fields, delimiter=delimiter)
            except NotFound as error:
                raise self._no_bucket() from error
            items += found.get("items", ())
            prefixes += found.get("prefixes", ())
            page = found.get("nextPageToken")
            if page is None:
                return items, prefixes

    def _insert(self, key: str, data: bytes, *, generation: str | None) -> str:
        try:
            stored = self._client.insert(self._base + key, data, len(data), ifGenerationMatch=generation)
        except NotFound as error:
            raise self._no_bucket() from error
        self._require_md5(key, stored, base64_md5(data))
        version: str = stored["generation"]
        return version

    async def _delete(self, name: str, version: str | None) -> None:
        # The connection may have repeated a deletion by itself, so that nothing is said by an object's being absent.
        with suppress(NotFound):
            await self._client.delete(name, ifGenerationMatch=version)

    def _require_md5(self, key: str, stored: Mapping[str, Any], sent: str) -> None:
        if stored.get("md5Hash", sent) != sent:
            raise StorageError(
                f"{self.url}/{key}: the store keeps bytes with MD5 {stored['md5Hash']}, but {sent} was sent. "
                f"They were changed on the way. Delete the object and write it again."
            )

    def _no_bucket(self) -> StorageError:
        return StorageError(f"the bucket gs://{self._bucket} does not exist. Create it, or correct the storage root.")


def _stored_md5(headers: Mapping[str, str]) -> str | None:
    if headers.get("X-Goog-Stored-Content-Encoding", "identity") != "identity":
        return None
    for part in headers.get("X-Goog-Hash", "").split(","):
        name, _, value = part.strip().partition("=")
        if name == "md5":
            return value
    return None
