"""Downloading one file over http or https: resumed where it broke off, taken for whole by its digest alone."""

import hashlib
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from marin_corpus.errors import BadConfig, BadInput

_CHUNK_BYTES = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))


@dataclass(frozen=True, kw_only=True)
class Download:
    """What to fetch, and what it must be."""

    url: str
    sha256: str
    """Of the whole file, 64 hex digits."""
    size_bytes: int | None = None
    """Where it is known, a file of another size is refused at once."""
    max_tries: int = 8
    """In a row without a byte of progress."""
    read_timeout_s: float = 60.0
    """Without a byte from the server."""
    total_timeout_s: float = 24 * 3600.0
    """For all tries together: a server that sends a byte now and then is not waited for without end."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if not _is_web(self.url):
            raise BadConfig(f"url={self.url!r} is no http or https address")
        if not self.url.isascii() or not self.url.isprintable() or " " in self.url:
            raise BadConfig(
                f"url={self.url!r} holds characters that no address has", next="write them as %20 and the like"
            )
        if parts.username is not None or parts.password is not None:
            raise BadConfig("the URL holds a user name or password, which would be recorded", next="leave them out")
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise BadConfig(
                f"sha256={self.sha256!r} must be 64 lower-case hex digits", next="sha256sum FILE prints them"
            )
        if self.size_bytes is not None and self.size_bytes < 0:
            raise BadConfig(f"size_bytes={self.size_bytes} must not be negative")
        for field in ("max_tries", "read_timeout_s", "total_timeout_s"):
            if not getattr(self, field) > 0:
                raise BadConfig(f"{field}={getattr(self, field)} must be above 0")


class _Broken(Exception):
    """A try that may be repeated, `wait_s` from now if the server said so."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class _Other(Exception):
    """The server's file is another one than was asked for, or than the one begun."""

    def __init__(self, what: str, *, in_one_piece: bool) -> None:
        super().__init__(what)
        self.in_one_piece = in_one_piece


def download(
    wanted: Download,
    partial: Path,
    *,
    progress: Callable[[int], object] | None = None,
    pause: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Fetch a file to `partial`, going on behind what is there already; returns its size in bytes.

    Only when this returns is the file whole; move it to its place then. A file left by a killed try is taken up again;
    the file of `validator_path(partial)` beside it says which version of the server's file it is the beginning of. If
    the digest is wrong after that, the file is fetched once more from its beginning. Certificates are verified; proxies
    are those of the environment.

    Args:
        wanted: what to fetch.
        partial: a local file; its directory exists.
        progress: called with the bytes that are there, as they come.
        pause: called with the seconds to wait before another try.
        clock: seconds since some moment.

    Raises:
        BadInput: the server does not have it, has another file, or does not answer.
    """
    end_s = clock() + wanted.total_timeout_s
    call = _Call(wanted=wanted, partial=partial, progress=progress, pause=pause, left_s=lambda: end_s - clock())
    for again in (True, False):
        try:
            in_one_piece = _fetch(call)
            size = partial.stat().st_size
            digest = _sha256(partial)
            if digest == wanted.sha256 and wanted.size_bytes in (None, size):
                validator_path(partial).unlink(missing_ok=True)
                return size
            expected = wanted.sha256 if wanted.size_bytes is None else f"{wanted.size_bytes} with {wanted.sha256}"
            why = f"{size} bytes with sha256 {digest} instead of {expected}"
        except _Other as error:
            in_one_piece = error.in_one_piece
            why = str(error)
        partial.unlink(missing_ok=True)
        validator_path(partial).unlink(missing_ok=True)
        if in_one_piece or not again:
            break
    raise BadInput(
        f"{wanted.url} is not the file that was asked for",
        why=why,
        next="correct digest and size if the file was changed on purpose",
    )


def validator_path(partial: Path) -> Path:
    """Where the server's word for the version of a partial file is kept."""
    return partial.with_name(partial.name + ".version")


@dataclass(frozen=True, kw_only=True)
class _Call:
    """The arguments of `download`, and the time that is left."""

    wanted: Download
    partial: Path
    progress: Callable[[int], object] | None
    pause: Callable[[float], object]
    left_s: Callable[[], float]


def _fetch(call: _Call) -> bool:
    """Until the server says that the file is complete; returns whether it came in one piece."""
    wanted, partial = call.wanted, call.partial
    failures = furthest = 0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        # Of a server that always starts again, a little more than the last time is no progress.
        furthest = max(furthest, before)
        try:
            return _try(call, before)
        except (_Broken, urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise BadInput(f"{wanted.url} cannot be downloaded", why=f"its certificate: {reason}") from error
            after = partial.stat().st_size if partial.exists() else 0
            failures = 1 if after > furthest else failures + 1
            wait_s = min(60.0, max(2.0 ** (failures - 1), error.wait_s if isinstance(error, _Broken) else 0.0))
            out_of_time = call.left_s() <= wait_s
            if failures >= wanted.max_tries or out_of_time:
                raise BadInput(
                    f"{wanted.url} cannot be downloaded",
                    why=(f"total_timeout_s={wanted.total_timeout_s:g} are over; " if out_of_time else "")
                    + f"{failures} tries in a row failed, the last one with: {reason}",
                    next="check the connection; what was fetched is kept for the next run",
                ) from error
            call.pause(wait_s)


def _try(call: _Call, offset: int) -> bool:
    wanted = call.wanted
    headers = {"User-Agent": "marin_pipe", "Accept-Encoding": "identity"}
    version = _version(call.partial) if offset else None
    if offset:
        headers["Range"] = f"bytes={offset}-"
    if version is not None:
        # The server then sends all of a file that has changed, and not its end.
        headers["If-Range"] = version
    request = urllib.request.Request(wanted.url, headers=headers)  # noqa: S310  the scheme is checked
    try:
        response = _opener().open(request, timeout=max(0.001, min(wanted.read_timeout_s, call.left_s())))
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and offset:
                # Nothing lies behind what is there: it is complete, or another file; the digest tells.
                return False
            if error.code in _TRY_AGAIN:
                raise _Broken(f"HTTP {error.code} {error.reason}", _retry_after_s(error.headers)) from error
            raise BadInput(
                f"{wanted.url} cannot be downloaded: HTTP {error.code} {error.reason}", next="check the URL"
            ) from error
    with response:
        return _receive(call, offset, response)


def _receive(call: _Call, offset: int, response: Any) -> bool:
    wanted, partial = call.wanted, call.partial
    length = response.headers.get("Content-Length", "")
    total = int(length) if length.isascii() and length.isdigit() else None
    version = _validator(response.headers)
    if response.status == 206:
        begun = _version(partial)
        if version is not None and begun is not None and version != begun:
            raise _Other(f"its version is now {version}, it was {begun}", in_one_piece=False)
        told = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if told is None or int(told[1]) != offset:
            got = response.headers.get("Content-Range")
            raise _Other(f"asked for bytes from {offset}, got {got!r}", in_one_piece=False)
        if told[2] != "*":
            total = int(told[2])
        elif total is not None:
            total += offset
    else:
        # The server knows no ranges, or sends all of it: from the beginning.
        offset = 0
        partial.unlink(missing_ok=True)
        if version is None:
            validator_path(partial).unlink(missing_ok=True)
        else:
            validator_path(partial).write_text(version)
    if wanted.size_bytes is not None and total is not None and total != wanted.size_bytes:
        raise _Other(f"it has {total} bytes instead of {wanted.size_bytes}", in_one_piece=not offset)
    with partial.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.truncate()
        received = _copy(call, offset, response, file)
        file.flush()
        os.fsync(file.fileno())
    if total is None and response.headers.get("Transfer-Encoding") is None:
        total = wanted.size_bytes  # the connection's end is all that there is: it may have come early
    if total is not None and received < total:
        raise _Broken(f"the connection ended after {received} of {total} bytes")
    return not offset


def _copy(call: _Call, offset: int, response: Any, file: IO[bytes]) -> int:
    position, size_bytes = offset, call.wanted.size_bytes
    while chunk := response.read1(_CHUNK_BYTES):
        if call.left_s() <= 0:
            raise _Broken("the time is over")
        position += len(chunk)
        if size_bytes is not None and position > size_bytes:
            raise _Other(f"it has more than {size_bytes} bytes", in_one_piece=not offset)
        file.write(chunk)
        if call.progress is not None:
            call.progress(position)
    return position


def _validator(headers: Message) -> str | None:
    """What tells this version of the file from another; a weak ETag does not say that bytes are equal."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified")


def _version(partial: Path) -> str | None:
    try:
        return validator_path(partial).read_text()
    except FileNotFoundError:
        return None


def _retry_after_s(headers: Message) -> float:
    value = headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else 0.0


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        to_http = urlsplit(newurl).scheme == "http"
        if not _is_web(newurl) or (to_http and urlsplit(req.full_url).scheme == "https"):
            fp.close()
            raise BadInput(
                # Without the query, which may hold a signature.
                f"{req.full_url.partition('?')[0]} sends on to {newurl.partition('?')[0]}",
                why="which is not encrypted" if to_http else "which is no http or https address",
                next="check the address",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Without the handlers of file:, ftp: and data: that `build_opener` adds."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _is_web(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
