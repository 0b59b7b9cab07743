"""What the object-store backends share: bounded calls on fsspec's event loop, and reading in pieces."""

import asyncio
import base64
import hashlib
from collections.abc import Callable, Coroutine
from io import BufferedIOBase
from typing import Any, TypeVar

Result = TypeVar("Result")

PARALLELISM = 64
"""Requests in flight. An object store answers one in some 30 ms, so that a thousand take half a second."""

SLOWEST_BYTES_PER_S = 1 << 20
"""A transfer slower than this is taken for dead."""

SINGLE_REQUEST_BYTES = 32 << 20
"""Larger files are uploaded in parts, a few files at a time, so that memory and repeated work stay bounded."""

LARGE_UPLOADS = 4

PART_BYTES = 16 << 20
"""A multiple of 256 KiB, as resumable uploads ask."""


def run(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run on the event loop of another thread; interrupting the caller cancels it."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def transfer_s(try_s: float, size_bytes: int) -> float:
    """Seconds allowed for a request that moves `size_bytes`."""
    return try_s + size_bytes / SLOWEST_BYTES_PER_S


def sha256_in_pieces(size_bytes: int, read_range: Callable[[int, int], bytes]) -> str:
    """`"sha256:<hex>"` of an object, read range by range."""
    digest = hashlib.sha256()
    for start in range(0, size_bytes, PART_BYTES):
        digest.update(read_range(start, min(PART_BYTES, size_bytes - start)))
    return f"sha256:{digest.hexdigest()}"


def base64_md5(data: bytes | BufferedIOBase) -> str:
    """The form in which object stores tell and take the MD5 of a body."""
    if isinstance(data, bytes):
        digest = hashlib.md5(data, usedforsecurity=False).digest()
    else:
        digest = hashlib.file_digest(data, lambda: hashlib.md5(usedforsecurity=False)).digest()
    return base64.b64encode(digest).decode()


async def gather_bounded(coroutines: list[Coroutine[Any, Any, Any]]) -> None:
    """Run all, `PARALLELISM` at a time; the first error is raised after the rest was cancelled."""
    limit = asyncio.Semaphore(PARALLELISM)

    async def one(coroutine: Coroutine[Any, Any, Any]) -> None:
        async with limit:
            await coroutine

    tasks = [asyncio.ensure_future(one(coroutine)) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
