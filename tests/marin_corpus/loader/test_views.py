"""Ways to look at a run: its plan, a batch's documents, its fingerprint, and one sequence after the other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from marin_corpus.errors import BadConfig
from marin_corpus.loader.config import ComponentConfig, LoaderConfig, StageConfig
from marin_corpus.loader.loader import Loader
from marin_corpus.loader.torch_dataset import TorchMapDataset
from marin_corpus.order.epochs import BlockShuffle
from memory_tokens import MemoryTokens

STORES = {
    "a": MemoryTokens.counting(1_003, name="a"),
    "b": MemoryTokens.counting(40_001, document=30, name="b"),
}
CONFIG = LoaderConfig(
    sequence_length=10,
    global_batch_size=32,
    components=(ComponentConfig(name="b", weight=3), ComponentConfig(name="a", weight=1, max_epochs=2)),
    stages=(StageConfig(start_step=50, global_batch_size=64),),
)


class Spelling:
    """Decodes ids as their numbers."""

    def decode(self, ids: Any) -> str:
        return " ".join(map(str, ids))


def test_the_plan_counts_what_the_batches_then_read() -> None:
    loader = Loader(STORES, CONFIG)
    plan = loader.plan(70)
    draws = loader.order.locate(np.concatenate([loader.indices(step) for step in range(70)]))
    assert plan.num_sequences == 50 * 32 + 20 * 64
    for number, component in enumerate(plan.components):
        assert component.drawn_sequences == (draws.component == number).sum()
    a, b = plan.components
    assert (a.tokens, a.sequences, a.epochs, a.tail) == (1_003, 100, 2.0, 2)
    assert (b.tokens, b.sequences, b.tail) == (40_001, 4_000, 0)
    ended = int(np.flatnonzero(draws.component == 0)[-1]) + 1
    assert [(change.sequence, change.reason, change.counts) for change in plan.changes] == [
        (0, "start", {"a": 512, "b": 1_536}),
        (ended, "a ends", {"b": 2_048}),
    ]
    assert plan.changes[1].step == ended // 32


def test_the_plan_reads_as_a_table() -> None:
    lines = str(Loader(STORES, CONFIG).plan(70)).splitlines()
    assert lines[0] == "70 steps, 2,880 sequences of 10 positions, 28,800 positions in all"
    assert " ".join(lines[1].split()) == "component tokens sequences share drawn positions epochs last epoch left out"
    assert " ".join(lines[2].split()) == "a 1,003 100 6.94% 200 2,000 2.00 100% 2 tokens"
    assert " ".join(lines[3].split()) == "b 40,001 4,000 93.06% 2,680 26,800 0.67 67% -"
    assert lines[4:6] == ["step 0: 32 sequences a batch", "step 50: 64 sequences a batch"]
    assert lines[6] == "step 0 (start): of each 2,048 sequences a 512, b 1536"
    assert lines[7].endswith("(a ends): of each 2,048 sequences b 2048")
    assert len({len(line) for line in lines[1:4]}) == 1
    with pytest.raises(BadConfig, match="num_steps=0"):
        Loader(STORES, CONFIG).plan(0)


def test_padding_is_told() -> None:
    store = MemoryTokens([[1] * 7] * 10)
    config = replace(CONFIG, components=(ComponentConfig(name="x"),), packing="documents", stages=())
    assert "40.00% padding" in str(Loader({"x": store}, config).plan(1))


@pytest.mark.parametrize("packing", ["concatenate", "documents"])
def test_peeking_shows_the_documents_that_the_batch_holds(packing: Any) -> None:
    loader = Loader(STORES, replace(CONFIG, packing=packing))
    batch = loader.batch(60)
    rows = loader.peek(60, tokenizer=Spelling())
    assert [row.row for row in rows] == list(range(64))
    for row in rows:
        store = STORES[row.component]
        parts: list[int] = []
        for document in row.documents:
            number = int(document.id[1:])
            assert document.id[0] == row.component
            begin = 0 if number == 0 else int(store.ends[number - 1])
            ids = store.tokens[begin + document.start : begin + document.end].tolist()
            assert document.text == " ".join(map(str, ids))
            parts += ids if packing == "concatenate" else ids[:-1]
        real = batch["segment_ids"][row.row] > 0
        tokens = batch["tokens"][row.row][real].tolist()
        assert parts == ([*tokens, int(batch["targets"][row.row][-1])] if packing == "concatenate" else tokens)
    (one,) = loader.peek(60, row=5)
    assert (one.row, one.component, one.start) == (5, rows[5].component, rows[5].start)
    assert one.documents[0].text is None
    assert str(rows[5]).startswith(f"row 5: {one.component}, epoch {one.epoch}, sequence {one.sequence}, token ")
    with pytest.raises(BadConfig, match="row=64"):
        loader.peek(60, row=64)


CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "length": {"sequence_length": 11},
    "batch": {"global_batch_size": 64},
    "weights": {"components": (ComponentConfig(name="b", weight=2), ComponentConfig(name="a", weight=1))},
    "packing": {"packing": "documents"},
    "segments": {"segments": True},
    "shuffle": {"shuffle": BlockShuffle()},
    "stage": {"stages": (StageConfig(start_step=39, weights={"b": 1}),)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_past_has_another_fingerprint(change: str) -> None:
    ours, other = Loader(STORES, CONFIG), Loader(STORES, replace(CONFIG, **CHANGES[change]))
    assert ours.fingerprint(40) != other.fingerprint(40)


def test_other_data_or_skipped_batches_have_another_fingerprint_and_the_future_has_none() -> None:
    ours = Loader(STORES, CONFIG)
    grown = Loader({**STORES, "a": MemoryTokens.counting(1_004)}, CONFIG)
    assert ours.fingerprint(40) != grown.fingerprint(40)
    assert ours.fingerprint(40) != ours.fingerprint(40, skipped=[7])
    assert ours.fingerprint(40) == ours.fingerprint(40, skipped=[41])
    later = replace(
        CONFIG,
        components=(*CONFIG.components, ComponentConfig(name="new", weight=0)),
        stages=(*CONFIG.stages, StageConfig(start_step=60, weights={"new": 1, "b": 1})),
    )
    with_new = Loader({**STORES, "new": MemoryTokens.counting(500)}, later)
    assert ours.fingerprint(60) == with_new.fingerprint(60) != with_new.fingerprint(61)
    assert ours.fingerprint(0) == ours.fingerprint(0, skipped=[5])


def test_the_run_as_a_map_dataset_is_its_batches_row_by_row() -> None:
    loader = Loader(STORES, CONFIG)
    dataset = TorchMapDataset(loader, num_steps=52)
    assert len(dataset) == 50 * 32 + 2 * 64
    rows = [dataset[50 * 32 + 64 + row] for row in range(64)]
    expected = loader.batch(51)
    assert all((np.stack([row[name] for row in rows]) == expected[name]).all() for name in expected)
    assert all(array.flags.writeable and array.shape == (10,) for array in rows[0].values())
    assert (dataset[-1]["tokens"] == rows[-1]["tokens"]).all()
    together = dataset.__getitems__([3, len(dataset) - 1, 3])
    for found, index in zip(together, (3, -1, 3), strict=True):
        assert all((found[name] == dataset[index][name]).all() for name in expected)
        assert all(array.flags.writeable for array in found.values())
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    with pytest.raises(IndexError, match=f"sequence {len(dataset)} of"):
        dataset.__getitems__([0, len(dataset)])
