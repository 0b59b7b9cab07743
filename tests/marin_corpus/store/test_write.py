import hashlib
import json

import numpy as np
import pytest
import xxhash
from marin_corpus.documents.schema import document_id
from marin_corpus.errors import BadInput
from marin_corpus.store.write import TokenWriter, store_dtype
from token_stores import write_store


def test_files_are_as_the_format_says(tmp_path):
    folder = write_store(tmp_path, [[[1, 2, 0], [3, 0]], [[4, 0]]], masks=[[[0, 255, 255], [0, 0]], [[7, 8]]])
    assert (folder / "part-00000.tok").read_bytes() == bytes([1, 0, 2, 0, 0, 0, 3, 0, 0, 0])
    assert (folder / "part-00000.idx").read_bytes() == bytes([3] + 7 * [0] + [5] + 7 * [0])
    assert (folder / "part-00000.ids").read_bytes().hex() == document_id("0/0") + document_id("0/1")
    assert (folder / "part-00000.mask").read_bytes() == bytes([0, 255, 255, 0, 0])
    assert (folder / "part-00001.tok").read_bytes() == bytes([4, 0, 0, 0])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["kind"], manifest["format"], manifest["dtype"]) == ("tokens", 1, "uint16")
    for part in manifest["parts"]:
        for suffix, file in part["files"].items():
            data = (folder / (part["name"] + suffix)).read_bytes()
            assert file == {"size_bytes": len(data), "digest": xxhash.xxh3_128_hexdigest(data)}


def test_bytes_do_not_depend_on_how_documents_are_batched(tmp_path):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 2000, 300)
    tokens = rng.integers(0, 99_999, int(lengths.sum()))
    ids = [document_id(str(k)) for k in range(300)]
    sums = set()
    for size in (1, 7, 300):
        path = tmp_path / f"batches-of-{size}" / "part-00000"
        path.parent.mkdir()
        begin = 0
        with TokenWriter(path, vocab_size=100_000, has_mask=False) as writer:
            for first in range(0, 300, size):
                some = lengths[first : first + size]
                end = begin + int(some.sum())
                sources = [str(k % 3) for k in range(first, first + len(some))]
                writer.add(tokens[begin:end], some, ids[first : first + size], sources, text_bytes=len(some))
                begin = end
        digest = hashlib.sha256(json.dumps(writer.summary()).encode())
        for file in sorted(path.parent.iterdir()):
            digest.update(file.read_bytes())
        sums.add(digest.hexdigest())
    assert len(sums) == 1


def test_lengths_are_described(tmp_path):
    rng = np.random.default_rng(1)
    lengths = np.exp(rng.normal(6, 2, 3000)).astype(int) + 1
    documents = [np.zeros(length, np.uint32) for length in lengths]
    folder = write_store(tmp_path, [documents[:1000], [], documents[1000:]])
    found = json.loads((folder / "manifest.json").read_text())["document_tokens"]
    assert (found["min"], found["max"]) == (lengths.min(), lengths.max())
    assert found["mean"] == pytest.approx(lengths.mean(), abs=1e-3)
    for percent in (1, 10, 25, 50, 75, 90, 99):
        exact = np.quantile(lengths, percent / 100, method="inverted_cdf")
        assert exact / 1.0625 - 1 <= found[f"p{percent:02d}"] <= exact
    powers, counts = np.unique(np.floor(np.log2(lengths)).astype(int), return_counts=True)
    assert found["histogram"] == {str(2**power): count for power, count in zip(powers, counts, strict=True)}


def test_ids_beyond_the_vocabulary_are_refused(tmp_path):
    with (
        TokenWriter(tmp_path / "part-00000", vocab_size=10, has_mask=False) as writer,
        pytest.raises(BadInput, match=r"id 10(.|\n)*10 tokens"),
    ):
        writer.add(np.array([3, 10]), np.array([2]), [document_id("")], ["s"], text_bytes=0)


def test_width_follows_the_vocabulary():
    assert store_dtype(65_536).str == "<u2"
    assert store_dtype(65_537).str == "<u4"
