import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from demo_corpus import EOS, train_bpe
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.documents.read import DocumentSet
from marin_corpus.documents.schema import document_id
from marin_corpus.documents.write import DocumentWriter, write_documents_manifest
from marin_corpus.errors import BadConfig, BadInput, CorruptData, Mismatch
from marin_corpus.output import LocalOutput
from marin_corpus.store import tokenize
from marin_corpus.store.read import TokenStore
from marin_corpus.store.tokenize import TokenizeConfig, tokenize_documents
from tokenizers import Tokenizer

TEXTS = [
    "The quick brown fox jumps over the lazy dog.\n" * 20,
    "",
    "Emoji 👩‍👩‍👧 and combining e\u0301, CRLF\r\n, NUL \0, tabs\t\t.",
    f"A text that spells {EOS} out.",
    "naïve café " * 100,
    *(f"Document {k}: " + "word " * k for k in range(60)),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_bpe(TEXTS, 600, folder)
    return folder


def write_documents(folder: Path, parts: list[list[str]]) -> DocumentSet:
    folder.mkdir(parents=True)
    summaries = []
    for number, texts in enumerate(parts):
        with DocumentWriter(folder / f"{number:03d}") as writer:
            for k, text in enumerate(texts):
                writer.add(text, source=f"corpus {k % 3}")
        summaries += writer.summary()
    write_documents_manifest(LocalOutput(folder), summaries)
    return DocumentSet.open(folder)


def documents_of(store: TokenStore) -> dict[str, list[list[int]]]:
    """Tokens of each document by its id."""
    ends = store.document_ends()
    ids = store.document_ids(np.arange(store.num_documents))
    found: dict[str, list[list[int]]] = {}
    for id, begin, end in zip(ids, np.concatenate([[0], ends[:-1]]), ends, strict=True):
        found.setdefault(id, []).append(store.read_windows([begin], end - begin)[0].tolist())
    return found


def tree(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_tokens_are_those_of_hugging_face_each_document_closed(tokenizer, tmp_path):
    documents = write_documents(tmp_path / "documents", [TEXTS[:9], [], TEXTS[9:]])
    manifests = tokenize_documents(documents, tokenizer, TokenizeConfig(), LocalOutput(tmp_path / "out"))
    store = TokenStore.open(tmp_path / "out" / "train")
    reference = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    reference.encode_special_tokens = True
    eos = reference.token_to_id(EOS)
    expected = [[*reference.encode(text, add_special_tokens=False).ids, eos] for text in TEXTS]
    assert store.read_windows([0], store.num_tokens)[0].tolist() == [token for ids in expected for token in ids]
    assert store.document_ends().tolist() == np.cumsum([len(ids) for ids in expected]).tolist()
    assert store.document_ids(np.arange(len(TEXTS))) == [document_id(text) for text in TEXTS]
    assert store.eos_id == eos
    assert store.text_bytes == sum(len(text.encode()) for text in TEXTS)
    assert set(manifests) == {"train"}
    assert manifests["train"] == store.manifest
    assert sum(store.sources.values()) == store.num_tokens
    store.verify()


def test_splits_hold_each_document_once_and_do_not_move_with_other_documents(tokenizer, tmp_path):
    config = TokenizeConfig(validation_fraction=0.2)
    splits = []
    for name, parts in (("few", [TEXTS[:40]]), ("more", [TEXTS[50:], TEXTS[:30], TEXTS[30:50]])):
        documents = write_documents(tmp_path / name, parts)
        tokenize_documents(documents, tokenizer, config, LocalOutput(tmp_path / f"{name}-tokens"))
        stores = {split: TokenStore.open(tmp_path / f"{name}-tokens" / split) for split in config.splits}
        splits.append({split: documents_of(store) for split, store in stores.items()})
        assert sum(store.num_documents for store in stores.values()) == documents.num_documents
        assert sum(store.text_bytes for store in stores.values()) == documents.text_bytes
    few, more = splits
    assert few["validation"]
    for split in config.splits:
        assert set(few[split]) == set(more[split]) & {document_id(text) for text in TEXTS[:40]}
        assert all(more[split][id] == tokens for id, tokens in few[split].items())


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers(tokenizer, tmp_path):
    documents = write_documents(tmp_path / "documents", [TEXTS[k::7] for k in range(7)])
    trees = []
    for workers in (1, 2, 5):
        output = LocalOutput(tmp_path / f"out-{workers}", workers=workers)
        tokenize_documents(documents, tokenizer, TokenizeConfig(validation_fraction=0.2), output)
        trees.append(tree(output.folder))
    assert trees[0] == trees[1] == trees[2]
    assert len(trees[0]) == 2 * (7 * 3 + 1)


def test_bytes_do_not_depend_on_how_texts_are_batched(tokenizer, tmp_path, monkeypatch):
    documents = write_documents(tmp_path / "documents", [TEXTS])
    trees = []
    for size, count in ((1, 1), (1000, 512), (1 << 30, 7), (1 << 30, 1 << 30)):
        monkeypatch.setattr(tokenize, "_BATCH_BYTES", size)
        monkeypatch.setattr(tokenize, "_BATCH_DOCUMENTS", count)
        output = LocalOutput(tmp_path / f"out-{size}-{count}")
        tokenize_documents(documents, tokenizer, TokenizeConfig(validation_fraction=0.1), output)
        trees.append(tree(output.folder))
    assert trees[0] == trees[1] == trees[2] == trees[3]


@given(sizes=st.lists(st.integers(0, 3 << 20), max_size=40))
def test_batches_are_bounded(sizes):
    cuts = list(tokenize._cuts(np.array(sizes, np.int64)))
    assert [k for begin, end in cuts for k in range(begin, end)] == list(range(len(sizes)))
    for begin, end in cuts:
        assert end - begin == 1 or (sum(sizes[begin:end]) <= 2 << 20 and end - begin <= 512)


def test_begin_of_sequence_tokens(tokenizer, tmp_path):
    documents = write_documents(tmp_path / "documents", [["one", "two"]])
    with pytest.raises(BadConfig, match="no beginning-of-sequence"):
        tokenize_documents(documents, tokenizer, TokenizeConfig(add_bos=True), LocalOutput(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((tokenizer / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": EOS, "bos_token": EOS}))
    tokenize_documents(documents, folder, TokenizeConfig(add_bos=True), LocalOutput(tmp_path / "out"))
    store = TokenStore.open(tmp_path / "out" / "train")
    for (tokens,) in documents_of(store).values():
        assert tokens[0] == tokens[-1] == store.eos_id
        assert store.eos_id not in tokens[1:-1]


def test_a_tokenizer_without_an_end_is_refused(tokenizer, tmp_path):
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_bytes((tokenizer / "tokenizer.json").read_bytes())
    documents = write_documents(tmp_path / "documents", [["one"]])
    with pytest.raises(BadConfig, match=r"no end-of-sequence token(.|\n)*eos_token"):
        tokenize_documents(documents, tmp_path / "tokenizer", TokenizeConfig(), LocalOutput(tmp_path / "out"))


def test_no_documents(tokenizer, tmp_path):
    documents = write_documents(tmp_path / "documents", [[], []])
    with pytest.raises(BadInput, match="holds no documents"):
        tokenize_documents(documents, tokenizer, TokenizeConfig(), LocalOutput(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("fraction", "split"), [(1e-9, "validation"), (1 - 1e-9, "train")])
def test_a_split_without_documents_is_an_error_and_nothing_is_published(fraction, split, tokenizer, tmp_path):
    documents = write_documents(tmp_path / "documents", [TEXTS])
    with pytest.raises(BadInput, match=f"'{split}'"):
        tokenize_documents(
            documents, tokenizer, TokenizeConfig(validation_fraction=fraction), LocalOutput(tmp_path / "out")
        )
    assert not list((tmp_path / "out").rglob("manifest.json"))


def test_other_documents_than_the_manifest_names(tokenizer, tmp_path):
    documents = write_documents(tmp_path / "documents", [TEXTS[:5]])
    write_documents(tmp_path / "others", [TEXTS[5:10]])
    (tmp_path / "others" / documents.parts[0].name).replace(documents.parts[0].url)
    with pytest.raises(CorruptData, match=documents.parts[0].name):
        tokenize_documents(documents, tokenizer, TokenizeConfig(), LocalOutput(tmp_path / "out"))


def test_a_store_is_refused_to_another_tokenizer(tokenizer, tmp_path):
    other = tmp_path / "other"
    train_bpe(TEXTS[:3], 300, other)
    documents = write_documents(tmp_path / "documents", [TEXTS])
    digests = [
        tokenize_documents(documents, folder, TokenizeConfig(), LocalOutput(tmp_path / folder.name))["train"].tokenizer
        for folder in (tokenizer, other)
    ]
    store = tmp_path / tokenizer.name / "train"
    assert TokenStore.open(store, tokenizer=digests[0]).num_documents == len(TEXTS)
    with pytest.raises(Mismatch, match="another tokenizer"):
        TokenStore.open(store, tokenizer=digests[1])


def test_a_document_of_several_megabytes(tokenizer, tmp_path):
    rng = np.random.default_rng(0)
    text = "".join(rng.choice(["word ", "fox\n", "naïve ", "1", "👩"], 1_000_000))
    documents = write_documents(tmp_path / "documents", [["short", text, "short too"]])
    tokenize_documents(documents, tokenizer, TokenizeConfig(), LocalOutput(tmp_path / "out"))
    store = TokenStore.open(tmp_path / "out" / "train")
    (tokens,) = documents_of(store)[document_id(text)]
    reference = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    assert reference.decode(tokens[:-1]) == text


def test_many_short_documents(tokenizer, tmp_path):
    texts = [f"{k} " * (k % 5) for k in range(10_000)]
    documents = write_documents(tmp_path / "documents", [texts])
    tokenize_documents(documents, tokenizer, TokenizeConfig(validation_fraction=0.5), LocalOutput(tmp_path / "out"))
    stores = [TokenStore.open(tmp_path / "out" / split) for split in ("train", "validation")]
    assert sum(store.text_bytes for store in stores) == sum(map(len, texts))
    found = [store.document_ids(np.arange(store.num_documents)) for store in stores]
    by_id = {document_id(text): k for k, text in enumerate(texts)}
    assert sorted(id for ids in found for id in ids) == sorted(document_id(text) for text in texts)
    for ids in found:
        places = [by_id[id] for id in ids if by_id[id] % 5]
        assert places == sorted(places)
