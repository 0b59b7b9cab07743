import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import fsspec
import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem
from marin_corpus.errors import CorruptData
from marin_corpus.store import ranges
from marin_corpus.store.read import TokenStore
from marin_storage import Unavailable, open_store
from slow_store import SlowStore, slow_store
from token_stores import write_store

NUM_TOKENS = 1 << 22


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    tokens = np.arange(NUM_TOKENS, dtype=np.uint32) % 60_000
    write_store(folder, [[tokens[: 1 << 21]], [tokens[1 << 21 :]]], vocab_size=60_000)
    return folder


@pytest.fixture
def slow(large):
    with slow_store(large) as slow:
        yield slow


def stretch(starts, length):
    return (np.asarray(starts)[:, None] + np.arange(length)) % 60_000


def test_requests_of_a_first_batch_are_in_flight_at_once(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train")
    # One window in each eighth of a megabyte: every request waits for all others.
    starts = np.arange(8) * (1 << 19) + 1000
    slow.requests.gate = threading.Barrier(8)
    windows = store.read_windows(starts, 1024)
    np.testing.assert_array_equal(windows, stretch(starts, 1024))
    assert slow.requests.most_at_once == 8


def test_a_first_random_read_costs_its_own_bytes(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train")
    store.read_windows(np.array([12345]), 1024)
    assert slow.requests.ranges[1:] == [("train/part-00000.tok", 24690, 24690 + 2048)]


def test_a_block_read_twice_is_fetched_whole_and_once(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train")
    starts = np.arange(0, (1 << 19) - 1024, 1024)
    np.testing.assert_array_equal(store.read_windows(starts, 1024), stretch(starts, 1024))
    np.testing.assert_array_equal(store.read_windows(starts + 7, 1024), stretch(starts + 7, 1024))
    assert slow.requests.ranges[1:] == [
        ("train/part-00000.tok", 0, 2048),
        ("train/part-00000.tok", 0, 1 << 20),
    ]


def test_prefetched_windows_are_not_fetched_again(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train")
    starts = np.arange(4) * (1 << 20) + 5
    store.prefetch(starts, 2048)
    np.testing.assert_array_equal(store.read_windows(starts, 2048), stretch(starts, 2048))
    assert len(slow.requests.ranges) == 1 + 4


def test_threads_that_want_one_block_fetch_it_once(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train")
    store.read_windows(np.array([0]), 10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: store.read_windows(np.array([100 * k]), 50), range(64)))
    assert slow.requests.ranges[1:] == [("train/part-00000.tok", 0, 20), ("train/part-00000.tok", 0, 1 << 20)]


def test_the_cache_keeps_the_last_used_blocks_and_no_more(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train", cache_bytes=3 << 20)
    for start in np.add.outer(np.arange(8) << 19, [0, 1024]).ravel():  # the second read of each fetches the block
        np.testing.assert_array_equal(store.read_windows([start], 1024), stretch([start], 1024))
    slow.requests.ranges.clear()
    store.read_windows(np.array([(7 << 19) + 5000, (6 << 19) + 5000]), 1024)
    assert slow.requests.ranges == []
    for start in (np.arange(5) << 19) + 5000:
        np.testing.assert_array_equal(store.read_windows([start], 1024), stretch([start], 1024))
    assert len(slow.requests.ranges) == 5


def test_prefetch_stops_before_it_pushes_out_what_nobody_has_read(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train", cache_bytes=1 << 20)
    slow.requests.gate = threading.Barrier(1 << 10)
    starts = np.arange(64) * (1 << 16)
    store.prefetch(starts, 1 << 13)  # 1 MiB in all, of which half of the cache may be under way
    slow.requests.gate.abort()
    assert len(slow.requests.ranges) - 1 <= 33


def test_a_failed_request_is_tried_again(slow: SlowStore, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(ranges, "_RETRY", replace(ranges._RETRY, sleep=waits.append))
    slow.requests.failures = [ConnectionResetError("reset")]
    store = TokenStore.open(f"{slow.url}/train")
    slow.requests.failures = [TimeoutError("too slow"), OSError("reset")]
    assert store.read_windows(np.array([7]), 2).tolist() == [[7, 8]]
    assert len(waits) == 3


def test_a_server_that_stays_down_is_an_error_and_the_next_read_asks_again(slow: SlowStore, monkeypatch):
    monkeypatch.setattr(ranges, "_RETRY", replace(ranges._RETRY, sleep=lambda _: None))
    store = TokenStore.open(f"{slow.url}/train")
    slow.requests.failures = [OSError(f"down {k}") for k in range(6)]
    with pytest.raises(Unavailable, match=r"part-00000\.tok: 6 tries failed(.|\n)*down 5"):
        store.read_windows(np.array([7]), 2)
    assert store.read_windows(np.array([7]), 2).tolist() == [[7, 8]]


def test_denied_is_not_tried_again(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train")
    slow.requests.failures = [PermissionError("no")]
    with pytest.raises(PermissionError):
        store.read_windows(np.array([7]), 2)


def test_a_forked_process_reads_too(slow: SlowStore):
    store = TokenStore.open(f"{slow.url}/train")
    store.read_windows(np.array([0]), 3)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=lambda: theirs.send(store.read_windows(np.array([3]), 4).tolist()))
    process.start()
    assert ours.poll(60)
    assert ours.recv() == [[3, 4, 5, 6]]
    process.join()


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_object_stores(scheme, request, tmp_path):
    request.getfixturevalue({"gs": "strict_gcs", "s3": "moto_s3"}[scheme])
    documents = [[[*range(1, 40), 0], [*range(40, 90), 0]], [], [[*range(200, 300), 0]]]
    flat = [token for part in documents for document in part for token in document]
    folder = write_store(tmp_path, documents)
    bucket = open_store(f"{scheme}://bucket/runs")
    bucket.upload_tree(folder, "tokens/train")
    store = TokenStore.open(f"{scheme}://bucket/runs/tokens/train", tokenizer="digest")
    assert store.is_remote
    starts = np.arange(0, len(flat) - 30, 7)
    store.prefetch(starts, 30)
    assert store.read_windows(starts, 30).tolist() == [flat[start : start + 30] for start in starts]
    assert store.document_of([0, 40, 95]).tolist() == [0, 1, 2]
    store.verify()
    bucket.write("tokens/train/part-00002.tok", b"short")
    bucket.delete("tokens/train/part-00000.tok")
    again = TokenStore.open(f"{scheme}://bucket/runs/tokens/train")
    with pytest.raises(CorruptData, match=r"part-00000\.tok is missing"):
        again.read_windows([3], 4)
    with pytest.raises(CorruptData, match=r"part-00002\.tok gave 5 bytes from byte 0 on, not 8"):
        again.read_windows([91], 4)


class SilentFileSystem(AsyncFileSystem):
    """Does not answer the first request."""

    protocol = "silent"
    requests = 0

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        type(self).requests += 1
        if self.requests == 1:
            await asyncio.Event().wait()
        return f"{path} {start} {end}".encode()


def test_a_request_without_an_answer_is_given_up_and_asked_again():
    fsspec.register_implementation("silent", SilentFileSystem, clobber=True)
    policy = replace(ranges._RETRY, try_s=0.01, sleep=lambda _: None)
    reader = ranges._FsspecRanges("silent://server/folder", policy)
    assert reader.read_range("file", 3, 4) == b"server/folder/file 3 7"
    assert SilentFileSystem.requests == 2
