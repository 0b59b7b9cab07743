import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.documents.schema import document_id
from marin_corpus.errors import CorruptData, Mismatch
from marin_corpus.store.read import TokenStore
from slow_store import slow_store
from token_stores import write_store

DOCUMENTS = [[[1, 2, 3, 0], [4, 0], [0]], [], [[5, 6, 7, 8, 9, 0]], [[10, 0], [11, 12, 0]]]
FLAT = [token for part in DOCUMENTS for document in part for token in document]
MASKS = [[[255 if token % 2 else 51 for token in document] for document in part] for part in DOCUMENTS]
ENDS = [4, 6, 7, 13, 15, 18]


@pytest.fixture(params=["local", "remote", "memory"])
def opened(request, tmp_path):
    """Opens a local folder as it is, or over an object store."""
    if request.param == "local":
        yield lambda folder, **options: TokenStore.open(folder, **options)
    elif request.param == "remote":
        with slow_store(tmp_path) as store:
            yield lambda folder, **options: TokenStore.open(f"{store.url}/{folder.relative_to(tmp_path)}", **options)
    else:
        from marin_storage import open_store

        yield lambda folder, **options: (
            open_store(f"memory://{tmp_path.name}").upload_tree(folder, str(folder.relative_to(tmp_path))),
            TokenStore.open(f"memory://{tmp_path.name}/{folder.relative_to(tmp_path)}", **options),
        )[1]


def test_every_window_of_every_length_equals_the_slice(tmp_path, opened):
    store = opened(write_store(tmp_path, DOCUMENTS, masks=MASKS))
    for length in range(1, len(FLAT) + 1):
        starts = np.random.default_rng(length).permutation(len(FLAT) - length + 1)
        expected = np.array([FLAT[start : start + length] for start in starts])
        windows = store.read_windows(starts, length)
        assert windows.dtype == np.uint16
        np.testing.assert_array_equal(windows, expected)
        np.testing.assert_array_equal(store.read_weights(starts, length), np.where(expected % 2, 1, np.float32(0.2)))


@given(data=st.data())
def test_random_parts_local_and_remote_agree_with_lists(data, tmp_path_factory):
    parts = data.draw(
        st.lists(st.lists(st.lists(st.integers(0, 999), min_size=1, max_size=9), max_size=5), min_size=1, max_size=5)
    )
    flat = [token for part in parts for document in part for token in document]
    if not flat:
        parts, flat = [*parts, [[7]]], [7]
    length = data.draw(st.integers(1, min(12, len(flat))))
    starts = np.array(data.draw(st.lists(st.integers(0, len(flat) - length), max_size=12)), np.int64)
    folder = tmp_path_factory.mktemp("stores")
    write_store(folder, parts)
    expected = np.array([flat[start : start + length] for start in starts]).reshape(len(starts), length)
    with slow_store(folder) as slow:
        for url in (folder / "train", f"{slow.url}/train"):
            store = TokenStore.open(url)
            np.testing.assert_array_equal(store.read_windows(starts, length), expected)
            ends = np.cumsum([len(document) for part in parts for document in part])
            owners = [int((ends <= start).sum()) for start in starts]
            assert store.document_of(starts).tolist() == owners


def test_what_the_manifest_says(tmp_path, opened):
    store = opened(write_store(tmp_path, DOCUMENTS))
    assert (store.num_tokens, store.num_documents) == (18, 6)
    assert (store.vocab_size, store.eos_id, store.has_mask, store.tokenizer) == (1000, 0, False, "digest")
    assert store.sources == {"source 0": 4 + 1 + 6 + 2, "source 1": 2 + 3}
    assert store.text_bytes == 54
    assert store.manifest.document_tokens == {
        "min": 1,
        "max": 6,
        "mean": 3.0,
        "p01": 1,
        "p10": 1,
        "p25": 2,
        "p50": 2,
        "p75": 4,
        "p90": 6,
        "p99": 6,
        "histogram": {"1": 1, "2": 3, "4": 2},
    }
    store.verify()


def test_weights_without_a_mask_are_one(tmp_path, opened):
    weights = opened(write_store(tmp_path, DOCUMENTS)).read_weights(np.array([0, 5]), 4)
    assert weights.dtype == np.float32
    assert weights.tolist() == [[1.0] * 4] * 2


def test_documents(tmp_path, opened):
    store = opened(write_store(tmp_path, DOCUMENTS))
    offsets = np.random.default_rng(0).permutation(18)
    expected = [sum(end <= offset for end in ENDS) for offset in offsets]
    assert store.document_of(offsets).tolist() == expected
    assert store.document_ends().tolist() == ENDS
    assert store.document_of(offsets).tolist() == expected
    names = ["0/0", "0/1", "0/2", "2/0", "3/0", "3/1"]
    assert store.document_ids(np.array([5, 0, 3, 3])) == [document_id(names[k]) for k in (5, 0, 3, 3)]


def test_wide_vocabularies_take_32_bits(tmp_path, opened):
    store = opened(write_store(tmp_path, [[[70_000, 65_536, 0]]], vocab_size=70_001))
    assert store.read_windows(np.array([0]), 3).tolist() == [[70_000, 65_536, 0]]
    assert store.dtype == np.uint32
    assert opened(write_store(tmp_path, [[[65_535, 0]]], vocab_size=65_536, split="v")).dtype == np.uint16


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (17, 2), (18, 1), (0, 19), (0, 0)])
def test_windows_beyond_the_store_are_refused(start, length, tmp_path, opened):
    with pytest.raises(IndexError, match="18 that the store has"):
        opened(write_store(tmp_path, DOCUMENTS)).read_windows(np.array([0, start]), length)


def test_no_windows(tmp_path, opened):
    store = opened(write_store(tmp_path, DOCUMENTS))
    assert store.read_windows(np.array([], np.int64), 5).shape == (0, 5)
    assert store.document_of(np.array([], np.int64)).shape == (0,)
    assert store.document_ids(np.array([], np.int64)) == []


def test_another_tokenizers_store_is_refused(tmp_path, opened):
    folder = write_store(tmp_path, DOCUMENTS)
    assert opened(folder, tokenizer="digest").num_tokens == 18
    with pytest.raises(Mismatch, match=r"another tokenizer(.|\n)*digest(.|\n)*wanted are those of other"):
        opened(folder, tokenizer="other")


def test_no_store(tmp_path, opened):
    write_store(tmp_path, DOCUMENTS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Mismatch, match=r"holds no token store(.|\n)*train"):
        opened(tmp_path / "empty")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"kind": "tokens", "format": 1, "parts": [{}]}', b'{"kind": "x"}'])
def test_manifest_that_is_none(content, tmp_path, opened):
    folder = write_store(tmp_path, DOCUMENTS)
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises((CorruptData, Mismatch), match=r"manifest\.json"):
        opened(folder)


def test_manifest_whose_counts_contradict_its_sizes(tmp_path, opened):
    folder = write_store(tmp_path, DOCUMENTS)
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"num_tokens": 7', '"num_tokens": 8'))
    with pytest.raises(CorruptData, match="part-00000 has sizes"):
        opened(folder)


@pytest.mark.parametrize("suffix", [".tok", ".idx", ".ids", ".mask"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_missing_or_truncated_file_is_named(suffix, damage, tmp_path, opened):
    folder = write_store(tmp_path, DOCUMENTS, masks=MASKS)
    path = folder / f"part-00002{suffix}"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    store = opened(folder)
    reads = {
        ".tok": lambda: store.read_windows(np.array([7]), 6),
        ".idx": lambda: store.document_of(np.array([7])),
        ".ids": lambda: store.document_ids(np.array([3])),
        ".mask": lambda: store.read_weights(np.array([7]), 6),
    }
    with pytest.raises(CorruptData, match=rf"part-00002{suffix}(.|\n)*manifest"):
        reads[suffix]()
    with pytest.raises(CorruptData, match=rf"1 files (.|\n)*part-00002{suffix}"):
        store.verify()


def test_verify_names_a_changed_file(tmp_path, opened):
    folder = write_store(tmp_path, DOCUMENTS)
    (folder / "part-00003.tok").write_bytes(bytes(10))
    with pytest.raises(CorruptData, match=r"part-00003\.tok has other bytes"):
        opened(folder).verify()


def test_a_changed_index_is_refused(tmp_path, opened):
    folder = write_store(tmp_path, DOCUMENTS)
    path = folder / "part-00003.idx"
    data = bytearray(path.read_bytes())
    data[4] ^= 0xFF  # A document of terabytes, if it were believed.
    path.write_bytes(data)
    with pytest.raises(CorruptData, match=r"part-00003\.idx was changed"):
        opened(folder).document_ends()
    with pytest.raises(CorruptData, match=r"part-00003\.idx was changed"):
        opened(folder).document_of(np.arange(opened(folder).num_tokens))


def test_a_thousand_parts_open_with_one_read(tmp_path):
    write_store(tmp_path, [[[k % 1000, 0]] for k in range(1000)])
    with slow_store(tmp_path) as slow:
        store = TokenStore.open(f"{slow.url}/train")
        assert store.num_tokens == 2000
        assert slow.requests.ranges == [("train/manifest.json", None, None)]
        assert store.read_windows(np.array([1998]), 2).tolist() == [[999, 0]]
        assert len(slow.requests.ranges) == 2


def test_a_thousand_local_parts_keep_few_files_open(tmp_path):
    store = TokenStore.open(write_store(tmp_path, [[[k % 1000, 0]] for k in range(1000)]))
    before = _open_files()
    assert store.read_windows(np.arange(0, 2000, 2), 2)[:, 0].tolist() == list(range(1000))
    assert store.read_windows(np.array([0]), 2000)[0, ::2].tolist() == list(range(1000))
    assert _open_files() - before <= 256


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_store_travels_to_other_processes(tmp_path, opened):
    store = opened(write_store(tmp_path, DOCUMENTS))
    store.read_windows(np.array([0]), 3)
    again = pickle.loads(pickle.dumps(store))  # noqa: S301
    assert again.read_windows(np.array([3]), 4).tolist() == [FLAT[3:7]]


def test_threads_read_at_once(tmp_path, opened):
    store = opened(write_store(tmp_path, DOCUMENTS), cache_bytes=1)

    def read(seed: int) -> bool:
        rng = random.Random(seed)
        starts = np.array([rng.randrange(12) for _ in range(8)])
        return store.read_windows(starts, 6).tolist() == [FLAT[start : start + 6] for start in starts]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(50)))
