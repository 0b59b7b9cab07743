"""A Google Cloud Storage for tests that honours every precondition, and fails on demand.

The JSON API as far as its clients use it here: buckets, media, multipart and resumable uploads, generations and
`ifGenerationMatch` everywhere, ranges, listings with prefix, delimiter and pages, MD5 and CRC32C. Other emulators
accept conditional writes and ignore the condition. It lives in the test's process; worker processes reach it through
the environment variable `STORAGE_EMULATOR_HOST`.
"""

import base64
import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.message import Message
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c

MUTATING = ("POST", "PUT", "DELETE")
READING = ("GET",)


class FaultKind(StrEnum):
    """What happens to a request that meets a fault."""

    UNAVAILABLE_BEFORE = "503, nothing applied"
    UNAVAILABLE_AFTER = "503, although applied"
    REPLY_LOST = "applied, and the connection is closed without a reply"
    TOO_MANY_REQUESTS = "429, nothing applied"
    FORBIDDEN = "403, nothing applied"
    SILENT = "no reply until the server stops"
    CORRUPTED = "applied with a flipped bit"


@dataclass
class Fault:
    """Meets the next `count` requests with one of `methods` and `text` in their URL, after `skip` such requests."""

    kind: FaultKind
    methods: tuple[str, ...] = MUTATING
    text: str = ""
    skip: int = 0
    count: int = 1


@dataclass(frozen=True)
class StoredObject:
    name: str
    data: bytes
    generation: int
    updated: datetime


@dataclass
class _Upload:
    name: str
    preconditions: dict[str, str]
    data: bytearray = field(default_factory=bytearray)
    stored: "_Reply | None" = None


class _Refused(Exception):
    def __init__(self, status: int, reason: str, message: str):
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


@dataclass(frozen=True)
class Request:
    """One request to the API: `names` are the bucket and the object in its path."""

    method: str
    names: tuple[str, ...]
    query: dict[str, str]
    headers: Message
    body: bytes


@dataclass
class _Reply:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class StrictGcs:
    """The server. Use as a context manager; `url` goes into `STORAGE_EMULATOR_HOST`."""

    def __init__(self, *, page_size: int = 1000, with_md5: bool = True):
        self.buckets: dict[str, dict[str, StoredObject]] = {}
        self.requests: list[str] = []
        self.page_size = page_size
        self.with_md5 = with_md5
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self._faults: list[Fault] = []
        self._uploads: dict[str, _Upload] = {}
        self._num_uploads = 0
        self._generation = 1_700_000_000_000_000
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "StrictGcs":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def reset(self) -> None:
        """Forget all buckets and faults."""
        with self.lock:
            self.buckets.clear()
            self.requests.clear()
            self._faults.clear()
            self.page_size, self.with_md5 = 1000, True

    def inject(self, kind: FaultKind, **where: Any) -> Fault:
        """Add a fault; see `Fault` for where it strikes."""
        fault = Fault(kind, **where)
        with self.lock:
            self._faults.append(fault)
        return fault

    def fault_for(self, method: str, target: str) -> FaultKind | None:
        with self.lock:
            self.requests.append(f"{method} {target}")
            for fault in self._faults:
                if method in fault.methods and fault.text in target and fault.count:
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.count -= 1
                    return fault.kind
        return None

    def answer(self, method: str, target: str, headers: Message, body: bytes) -> _Reply:
        """Apply one request."""
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self.lock:
            for pattern, operation in _ROUTES:
                match = pattern.fullmatch(parts.path)
                if match is not None:
                    names = tuple(unquote(group) for group in match.groups())
                    return operation(self, Request(method, names, query, headers, body))
        raise _Refused(501, "notImplemented", f"{method} {parts.path}")

    def bucket_list(self, request: Request) -> _Reply:
        _require(request.method == "POST", 501, "notImplemented", "listing buckets")
        name = json.loads(request.body)["name"]
        _require(name not in self.buckets, 409, "conflict", f"bucket {name} exists")
        self.buckets[name] = {}
        return _json({"kind": "storage#bucket", "name": name})

    def bucket(self, request: Request) -> _Reply:
        self._objects(request.names[0])
        return _json({"kind": "storage#bucket", "name": request.names[0]})

    def object_list(self, request: Request) -> _Reply:
        objects = self._objects(request.names[0])
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter")
        after = base64.urlsafe_b64decode(request.query.get("pageToken", "")).decode()
        size = min(int(request.query.get("maxResults", self.page_size)), self.page_size)
        items: list[dict[str, Any]] = []
        prefixes: list[str] = []
        for name in sorted(objects, key=str.encode):
            if not name.startswith(prefix):
                continue
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            shown = name if cut < 0 else name[: cut + 1]
            if shown.encode() <= after.encode() or (prefixes and prefixes[-1] == shown):
                continue
            if len(items) + len(prefixes) == size:
                last = max([*prefixes[-1:], *[item["name"] for item in items[-1:]]], key=str.encode)
                token = base64.urlsafe_b64encode(last.encode()).decode()
                return _json({"items": items, "prefixes": prefixes, "nextPageToken": token})
            if cut < 0:
                items.append(self._metadata(request.names[0], objects[name]))
            else:
                prefixes.append(shown)
        return _json({"kind": "storage#objects", "items": items, "prefixes": prefixes})

    def object(self, request: Request) -> _Reply:
        bucket, name = request.names
        objects = self._objects(bucket)
        found = objects.get(name)
        if request.method in ("GET", "DELETE"):
            _require(found is not None, 404, "notFound", f"No such object: {bucket}/{name}")
            assert found is not None
            if "generation" in request.query:
                known = int(request.query["generation"]) == found.generation
                _require(known, 404, "notFound", f"No such generation of {bucket}/{name}")
        self._check(found, request.query)
        if request.method == "DELETE":
            del objects[name]
            return _Reply(204)
        _require(request.method == "GET", 501, "notImplemented", f"{request.method} of an object")
        assert found is not None
        if request.query.get("alt") != "media":
            return _json(self._metadata(bucket, found))
        return self._media(found, request.headers.get("Range"))

    def download(self, request: Request) -> _Reply:
        return self.object(replace(request, query={**request.query, "alt": "media"}))

    def upload(self, request: Request) -> _Reply:
        bucket = request.names[0]
        objects = self._objects(bucket)
        if "upload_id" in request.query:
            return self._continue_upload(bucket, request)
        kind = request.query.get("uploadType")
        if kind == "media":
            return self._store(bucket, request.query["name"], request.body, request.query)
        if kind == "multipart":
            metadata, data = _parse_multipart(request.headers, request.body)
            return self._store(bucket, request.query.get("name") or metadata["name"], data, request.query)
        _require(kind == "resumable", 400, "invalid", f"uploadType {kind!r}")
        name = request.query.get("name") or json.loads(request.body)["name"]
        self._check(objects.get(name), request.query)
        self._num_uploads += 1
        identity = f"upload-{self._num_uploads}"
        self._uploads[identity] = _Upload(name, dict(request.query))
        location = f"{self.url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={identity}"
        return _Reply(200, headers={"Location": location})

    def _continue_upload(self, bucket: str, request: Request) -> _Reply:
        identity = request.query["upload_id"]
        upload = self._uploads.get(identity)
        _require(upload is not None, 404, "notFound", f"upload {identity}")
        assert upload is not None
        if request.method == "DELETE":
            del self._uploads[identity]
            return _Reply(499)
        if upload.stored is not None:
            return upload.stored
        given = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", request.headers.get("Content-Range", "bytes */*"))
        _require(given is not None, 400, "invalid", "Content-Range")
        assert given is not None
        if given[1] is not None:
            known = len(upload.data) - int(given[1])
            _require(known >= 0, 400, "invalid", "a gap between the parts")
            upload.data += request.body[known:]
        if given[3] == "*" or len(upload.data) < int(given[3]):
            received = {"Range": f"bytes=0-{len(upload.data) - 1}"} if upload.data else {}
            return _Reply(308, headers=received)
        upload.stored = self._store(bucket, upload.name, bytes(upload.data), upload.preconditions)
        return upload.stored

    def _store(self, bucket: str, name: str, data: bytes, query: dict[str, str]) -> _Reply:
        objects = self._objects(bucket)
        self._check(objects.get(name), query)
        self._generation += 1
        objects[name] = StoredObject(name, data, self._generation, datetime.now(UTC))
        return _json(self._metadata(bucket, objects[name]))

    def _objects(self, bucket: str) -> dict[str, StoredObject]:
        _require(bucket in self.buckets, 404, "notFound", "The specified bucket does not exist.")
        return self.buckets[bucket]

    @staticmethod
    def _check(found: StoredObject | None, query: dict[str, str]) -> None:
        present = found.generation if found is not None else 0
        wanted, unwanted = query.get("ifGenerationMatch"), query.get("ifGenerationNotMatch")
        holds = (wanted is None or int(wanted) == present) and (unwanted is None or int(unwanted) != present)
        message = "At least one of the pre-conditions you specified did not hold."
        _require(holds, 412, "conditionNotMet", message)

    def _metadata(self, bucket: str, stored: StoredObject) -> dict[str, Any]:
        updated = stored.updated.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        md5 = {"md5Hash": _md5(stored.data)} if self.with_md5 else {}
        return {
            "kind": "storage#object",
            "bucket": bucket,
            "name": stored.name,
            "generation": str(stored.generation),
            "metageneration": "1",
            "size": str(len(stored.data)),
            "crc32c": _crc32c(stored.data),
            "timeCreated": updated,
            "updated": updated,
            **md5,
        }

    def _media(self, stored: StoredObject, wanted: str | None) -> _Reply:
        hashes = f"crc32c={_crc32c(stored.data)}" + (f",md5={_md5(stored.data)}" if self.with_md5 else "")
        headers = {"X-Goog-Generation": str(stored.generation), "X-Goog-Hash": hashes}
        if wanted is None:
            return _Reply(200, stored.data, headers)
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
        _require(match is not None, 400, "invalid", wanted)
        assert match is not None
        size = len(stored.data)
        start = int(match[1]) if match[1] else max(0, size - int(match[2]))
        stop = min(size, int(match[2]) + 1) if match[1] and match[2] else size
        _require(start < size, 416, "requestedRangeNotSatisfiable", wanted)
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return _Reply(206, stored.data[start:stop], headers)


Operation = Callable[[StrictGcs, Request], _Reply]
_ROUTES: list[tuple[re.Pattern[str], Operation]] = [
    (re.compile(r"/storage/v1/b"), StrictGcs.bucket_list),
    (re.compile(r"/storage/v1/b/([^/]+)"), StrictGcs.bucket),
    (re.compile(r"/storage/v1/b/([^/]+)/o"), StrictGcs.object_list),
    (re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)"), StrictGcs.object),
    (re.compile(r"/download/storage/v1/b/([^/]+)/o/([^/]+)"), StrictGcs.download),
    (re.compile(r"/upload/storage/v1/b/([^/]+)/o"), StrictGcs.upload),
]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], store: StrictGcs):
        super().__init__(address, _Handler)
        self.store = store


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without a write buffer and with Nagle's algorithm a small reply takes 40 ms.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _handle(self) -> None:
        store = self.server.store
        body = b"".join(self._body())
        fault = store.fault_for(self.command, self.path)
        if fault is FaultKind.SILENT:
            store.stopped.wait(60)
            self.close_connection = True
            return
        if fault is FaultKind.CORRUPTED:
            body = bytes([body[0] ^ 1]) + body[1:]
        try:
            if fault is FaultKind.UNAVAILABLE_BEFORE:
                raise _Refused(503, "backendError", "SlowDown")
            if fault is FaultKind.TOO_MANY_REQUESTS:
                raise _Refused(429, "rateLimitExceeded", "Too many requests")
            if fault is FaultKind.FORBIDDEN:
                raise _Refused(403, "forbidden", "somebody does not have storage.objects.create access")
            reply = store.answer(self.command, self.path, self.headers, body)
            if fault is FaultKind.REPLY_LOST:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if fault is FaultKind.UNAVAILABLE_AFTER:
                raise _Refused(503, "backendError", "SlowDown")
        except _Refused as refused:
            error = {"code": refused.status, "message": refused.message, "errors": [{"reason": refused.reason}]}
            reply = _json({"error": error}, refused.status)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status != 204:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            yield self.rfile.read(int(self.headers.get("Content-Length", 0)))


def _require(holds: bool, status: int, reason: str, message: str) -> None:
    if not holds:
        raise _Refused(status, reason, message)


def _json(content: object, status: int = 200) -> _Reply:
    return _Reply(status, json.dumps(content).encode(), {"Content-Type": "application/json"})


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def _parse_multipart(headers: Message, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Split at the boundary as RFC 2046 says: a body that contains it ends there."""
    boundary = headers.get_param("boundary", header="Content-Type")
    assert isinstance(boundary, str)
    parts = re.split(rb"\r?\n--" + re.escape(boundary.encode()), b"\n" + body)
    metadata, media = (re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1] for part in parts[1:3])
    return json.loads(metadata), media
