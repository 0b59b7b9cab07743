"""Batches of real text from real stores: a mixture of old speeches, new speeches and scripture."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from marin_corpus.documents.schema import document_id
from marin_corpus.loader.config import ComponentConfig, LoaderConfig
from marin_corpus.loader.loader import Loader
from marin_corpus.loader.torch_dataset import TorchMapDataset
from marin_corpus.order.epochs import BlockShuffle
from marin_corpus.store.read import TokenStore
from slow_store import slow_store
from speeches import speeches
from token_stores import write_store
from translations import chapters

LENGTH = 256


class Bytes:
    """Token 0 ends a document; token b + 1 is byte b."""

    def encode(self, text: str) -> np.ndarray:
        return np.append(np.frombuffer(text.encode(), np.uint8).astype(np.int64) + 1, 0)

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i - 1 for i in ids if i).decode(errors="replace")


TEXTS = {
    "new": lambda: speeches(2015),
    "old": lambda: speeches(0, 1799),
    "scripture": lambda: list(chapters("kjv", last_book=2).values()),
}


def parts_of(texts: list[str]) -> list[list[np.ndarray]]:
    """Parts of unequal size: windows cross them."""
    documents = [Bytes().encode(text) for text in texts]
    return [documents[:3], documents[3:4], documents[4:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stores")
    for name, texts in TEXTS.items():
        write_store(root / name, parts_of(texts()), vocab_size=257)
    return root


def open_stores(root: "Path | str") -> dict[str, TokenStore]:
    return {name: TokenStore.open(f"{root}/{name}/train") for name in TEXTS}


def config_of(**changes: object) -> LoaderConfig:
    weights = {"new": 2.0, "old": 1.0, "scripture": 1.0}
    components = tuple(ComponentConfig(name=name, weight=weight) for name, weight in weights.items())
    return LoaderConfig(**{"sequence_length": LENGTH, "global_batch_size": 32, "components": components, **changes})  # type: ignore[arg-type]


def test_rows_are_passages_of_the_texts_in_the_proportions_asked_for(folder: Path) -> None:
    loader = Loader(open_stores(folder), config_of())
    whole = {name: np.concatenate([Bytes().encode(text) for text in texts()]) for name, texts in TEXTS.items()}
    drawn = dict.fromkeys(TEXTS, 0)
    for step in range(2_048 // 32):
        batch = loader.batch(step)
        for row, peeked in enumerate(loader.peek(step)):
            drawn[peeked.component] += 1
            passage = whole[peeked.component][peeked.start : peeked.start + LENGTH + 1]
            assert (batch["tokens"][row] == passage[:-1]).all()
            assert (batch["targets"][row] == passage[1:]).all()
    assert drawn == {"new": 1_024, "old": 512, "scripture": 512}


def test_peeking_names_documents_and_reads_as_text(folder: Path) -> None:
    loader = Loader(open_stores(folder), config_of())
    # The helper gives document k of part p the id of "p/k".
    tokens = {
        name: {document_id(f"{p}/{k}"): row for p, part in enumerate(parts_of(texts())) for k, row in enumerate(part)}
        for name, texts in TEXTS.items()
    }
    for row in loader.peek(3, tokenizer=Bytes()):
        assert sum(document.end - document.start for document in row.documents) == LENGTH + 1
        for document in row.documents:
            ids = tokens[row.component][document.id][document.start : document.end]
            assert document.text == Bytes().decode(ids.tolist())


@pytest.mark.parametrize("shuffle", [None, BlockShuffle(block_sequences=32, window_blocks=4)])
@pytest.mark.parametrize("packing", ["concatenate", "documents"])
def test_batches_are_the_same_from_an_object_store(folder: Path, packing: str, shuffle: BlockShuffle | None) -> None:
    config = config_of(packing=packing, shuffle=shuffle, sequence_length=1_000)
    here = Loader(open_stores(folder), config)
    with slow_store(folder) as slow:
        there = Loader(open_stores(slow.url), config)
        assert there.readers[0].store.is_remote  # type: ignore[attr-defined]
        assert there.fingerprint(9) == here.fingerprint(9)
        with there.iterate(4, stop_step=9) as batches:
            for step, batch in batches:
                expected = here.batch(step)
                assert all((batch[name] == expected[name]).all() for name in expected)


def test_a_loader_can_be_sent_to_another_process(folder: Path) -> None:
    loader = Loader(open_stores(folder), config_of())
    dataset = TorchMapDataset(loader, num_steps=10)
    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own bytes
    assert (copy[77]["tokens"] == dataset[77]["tokens"]).all()


def test_other_text_of_equal_size_has_another_fingerprint(folder: Path, tmp_path: Path) -> None:
    stores = open_stores(folder)
    write_store(tmp_path / "old", parts_of([text.swapcase() for text in TEXTS["old"]()]), vocab_size=257)
    changed = {**stores, "old": TokenStore.open(tmp_path / "old" / "train")}
    assert changed["old"].num_tokens == stores["old"].num_tokens
    assert Loader(changed, config_of()).fingerprint(5) != Loader(stores, config_of()).fingerprint(5)
