"""Downloading one file over http or https: resumed where it broke off, taken for whole by its digest alone."""

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
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

    def __post_init__(self) -> None:
        _check_scheme(self.url)
        parts = urlsplit(self.url)
        if parts.username or parts.password:
            raise BadConfig("the URL holds a user name or password, which would be recorded", next="leave them out")
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise BadConfig(
                f"sha256={self.sha256!r} must be 64 lower-case hex digits", next="sha256sum FILE prints them"
            )
        if self.size_bytes is not None and self.size_bytes < 0:
            raise BadConfig(f"size_bytes={self.size_bytes} must not be negative")
        if self.max_tries < 1:
            raise BadConfig(f"max_tries={self.max_tries} must be at least 1")


class _Broken(Exception):
    """A try that may be repeated."""


class _Other(Exception):
    """The server's file is another one than was asked for, or than the one begun."""

    def __init__(self, what: str, *, in_one_piece: bool) -> None:
        super().__init__(what)
        self.in_one_piece = in_one_piece


def download(wanted: Download, partial: Path, *, pause: Callable[[float], object] = time.sleep) -> int:
    """Fetch a file to `partial`, going on behind what is there already; returns its size in bytes.

    Only when this returns is the file whole; move it to its place then. A file left by a killed try is taken up again.
    If the digest is wrong after that, the file is fetched once more from its beginning: the server's may have changed
    in between.

    Args:
        wanted: what to fetch.
        partial: a local file; its directory exists.
        pause: called with the seconds to wait before another try.

    Raises:
        BadInput: the server does not have it, has another file, or does not answer.
    """
    for again in (True, False):
        try:
            in_one_piece = _fetch(wanted, partial, pause)
            size = partial.stat().st_size
            digest = _sha256(partial)
            if digest == wanted.sha256:
                return size
            why = f"{size} bytes with sha256 {digest} instead of {wanted.sha256}"
        except _Other as error:
            in_one_piece = error.in_one_piece
            why = str(error)
        partial.unlink(missing_ok=True)
        if in_one_piece or not again:
            break
    raise BadInput(
        f"{wanted.url} is not the file that was asked for",
        why=why,
        next="correct the digest if the file was changed on purpose",
    )


def _fetch(wanted: Download, partial: Path, pause: Callable[[float], object]) -> bool:
    """Until the server says that the file is complete; returns whether it came in one piece."""
    failures = 0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        try:
            return _try(wanted, partial, before)
        except (_Broken, urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            after = partial.stat().st_size if partial.exists() else 0
            failures = 1 if after > before else failures + 1
            if failures >= wanted.max_tries:
                raise BadInput(
                    f"{wanted.url} cannot be downloaded",
                    why=f"{failures} tries in a row failed, the last one with: {error}",
                    next="check the connection; what was fetched is kept for the next run",
                ) from error
            pause(min(60.0, 2.0 ** (failures - 1)))


def _try(wanted: Download, partial: Path, offset: int) -> bool:
    headers = {"User-Agent": "marin_pipe", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    request = urllib.request.Request(wanted.url, headers=headers)  # noqa: S310  the scheme is checked
    try:
        response = _opener().open(request, timeout=wanted.read_timeout_s)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and offset:
                # Nothing lies behind what is there: it is complete, or another file; the digest tells.
                return False
            if error.code in _TRY_AGAIN:
                raise _Broken(f"HTTP {error.code} {error.reason}") from error
            raise BadInput(
                f"{wanted.url} cannot be downloaded: HTTP {error.code} {error.reason}", next="check the URL"
            ) from error
    with response:
        return _receive(wanted, partial, offset, response)


def _receive(wanted: Download, partial: Path, offset: int, response: Any) -> bool:
    length = response.headers.get("Content-Length")
    total = None if length is None else int(length)
    if response.status == 206:
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
    if wanted.size_bytes is not None and total is not None and total != wanted.size_bytes:
        raise _Other(f"it has {total} bytes instead of {wanted.size_bytes}", in_one_piece=not offset)
    with partial.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.truncate()
        received = _copy(response, file, wanted, offset)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and received < total:
        raise _Broken(f"the connection ended after {received} of {total} bytes")
    return not offset


def _copy(response: Any, file: IO[bytes], wanted: Download, offset: int) -> int:
    position = offset
    while chunk := response.read1(_CHUNK_BYTES):
        position += len(chunk)
        if wanted.size_bytes is not None and position > wanted.size_bytes:
            raise _Other(f"it has more than {wanted.size_bytes} bytes", in_one_piece=not offset)
        file.write(chunk)
    return position


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        _check_scheme(newurl)
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme != "https":
            raise BadInput(f"{req.full_url} sends on to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Redirects())


def _check_scheme(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadConfig(f"{url!r} is no http or https address")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
