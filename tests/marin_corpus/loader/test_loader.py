"""Batches: the same however one comes to a step, with targets one token on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marin_corpus.errors import BadConfig, BadInput, CorpusError, Mismatch
from marin_corpus.loader.config import ComponentConfig, LoaderConfig, SimulatedEpochs, StageConfig
from marin_corpus.loader.loader import Loader
from marin_corpus.order.epochs import BlockShuffle
from memory_tokens import MemoryTokens

LENGTH = 8
STORES = {
    "a": MemoryTokens.counting(1_000),
    "b": MemoryTokens.counting(10_000, document=30),
    "c": MemoryTokens.counting(333),
}


def config_of(**changes: Any) -> LoaderConfig:
    components = tuple(ComponentConfig(name=name, weight=w) for name, w in (("a", 2.0), ("b", 5.0), ("c", 1.0)))
    return replace(LoaderConfig(sequence_length=LENGTH, global_batch_size=24, components=components), **changes)


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all((a[name] == b[name]).all() and a[name].dtype == b[name].dtype for name in a)


CONFIGS = {
    "windows": config_of(),
    "segments": config_of(segments=True),
    "documents": config_of(packing="documents"),
    "blocks": config_of(shuffle=BlockShuffle(block_sequences=4, window_blocks=4)),
    "staged": config_of(
        stages=(
            StageConfig(start_step=5, weights={"a": 1, "c": 3}),
            StageConfig(start_tokens=24 * LENGTH * 9 + 1, global_batch_size=12),
        )
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=10)
@given(step=st.integers(0, 300), processes=st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_rows_of_all_processes_are_the_global_batch(name: str, step: int, processes: int) -> None:
    loader = Loader(STORES, CONFIGS[name])
    parts = [loader.batch(step, process_index=p, process_count=processes) for p in range(processes)]
    whole = Loader(STORES, CONFIGS[name]).batch(step)
    assert equal({key: np.concatenate([part[key] for part in parts]) for key in whole}, whole)
    assert len(whole["tokens"]) == loader.global_batch_size(step)


@pytest.mark.parametrize("name", CONFIGS)
def test_resumed_with_other_processes_and_a_new_stage_ahead_equals_never_having_stopped(name: str) -> None:
    config = CONFIGS[name]
    with Loader(STORES, config).iterate(0, stop_step=20) as batches:
        unbroken = [batch for _, batch in batches]
    changed = replace(config, stages=(*config.stages, StageConfig(start_step=20, weights={"b": 1})))
    resumed = Loader(STORES, changed)
    for step in range(12, 20):
        parts = [resumed.batch(step, process_index=p, process_count=3) for p in range(3)]
        assert equal({key: np.concatenate([part[key] for part in parts]) for key in parts[0]}, unbroken[step])
    assert resumed.fingerprint(12) == Loader(STORES, config).fingerprint(12)


def test_windows_hold_the_stores_tokens_and_the_ones_that_follow() -> None:
    """In a store that counts, a window is its start and what follows; starts are multiples of the length."""
    batch = Loader({"b": STORES["b"]}, config_of(components=(ComponentConfig(name="b"),))).batch(7)
    assert batch["tokens"].shape == (24, LENGTH)
    assert (batch["targets"] == batch["tokens"] + 1).all()
    assert (batch["tokens"] - batch["tokens"][:, :1] == np.arange(LENGTH)).all()
    assert (batch["tokens"][:, 0] % LENGTH == 0).all()
    assert (batch["positions"] == np.arange(LENGTH)).all()
    assert (batch["segment_ids"] == 1).all()
    assert (batch["loss_weights"] == 1).all()
    assert {name: str(array.dtype) for name, array in batch.items()} == {
        "tokens": "int32",
        "targets": "int32",
        "loss_weights": "float32",
        "segment_ids": "int32",
        "positions": "int32",
    }


def test_an_epoch_of_batches_reads_every_window_once_and_the_next_in_another_order() -> None:
    store = MemoryTokens.counting(LENGTH * 240 + 3)
    loader = Loader({"x": store}, config_of(components=(ComponentConfig(name="x"),)))
    rows = np.concatenate([loader.batch(step)["tokens"][:, 0] for step in range(30)])
    orders = rows.reshape(3, 240).tolist()
    assert all(sorted(order) == list(range(0, LENGTH * 240, LENGTH)) for order in orders)
    assert orders[0] != orders[1] != orders[2]


@settings(max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=3, max_size=40), st.integers(1, 12))
def test_segments_restart_at_documents_and_give_no_weight_across_them(lengths: list[int], length: int) -> None:
    documents = [[100 * d + i for i in range(n)] for d, n in enumerate(lengths)]
    store = MemoryTokens(documents, mask=[0.5] * sum(lengths))
    if store.num_tokens <= length:
        return
    components = (ComponentConfig(name="x"),)
    config = config_of(components=components, segments=True, sequence_length=length, global_batch_size=5)
    batch = Loader({"x": store}, config).batch(0)
    for row in range(5):
        segment, position = 1, 0
        for i in range(length):
            token, target = int(batch["tokens"][row, i]), int(batch["targets"][row, i])
            assert batch["segment_ids"][row, i] == segment
            assert batch["positions"][row, i] == position
            same = token // 100 == target // 100
            assert batch["loss_weights"][row, i] == (0.5 if same else 0.0)
            segment, position = (segment, position + 1) if same else (segment + 1, 0)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=60), st.integers(1, 100), st.booleans())
def test_packed_rows_hold_whole_documents_then_padding(lengths: list[int], length: int, masked: bool) -> None:
    documents = [[100 * d + i + 1 for i in range(n)] for d, n in enumerate(lengths)]
    mask = [(i % 7) / 8 for i in range(sum(lengths))] if masked else None
    store = MemoryTokens(documents, mask=mask)
    config = config_of(
        components=(ComponentConfig(name="x"),), packing="documents", sequence_length=length, global_batch_size=1
    )
    if max(lengths) < 2:
        return
    loader = Loader({"x": store}, config)
    weight_of = {int(t): 1.0 if mask is None else mask[i] for i, t in enumerate(store.tokens)}
    seen: list[int] = []
    for step in range(loader.order.components[0].available):
        batch = {name: array[0] for name, array in loader.batch(step).items()}
        real = int((batch["segment_ids"] > 0).sum())
        assert all(not array[real:].any() for array in batch.values())
        tokens, targets = batch["tokens"][:real].tolist(), batch["targets"][:real].tolist()
        assert targets == [token + 1 for token in tokens]
        seen += targets
        assert batch["loss_weights"][:real].tolist() == [weight_of[target] for target in targets]
        for segment in range(1, int(batch["segment_ids"].max()) + 1):
            inside = np.flatnonzero(batch["segment_ids"] == segment)
            assert (np.diff(inside) == 1).all()
            assert batch["positions"][inside].tolist() == list(range(len(inside)))
            assert len({tokens[i] // 100 for i in inside}) == 1
    assert sorted(seen) == sorted(token for document in documents for token in document[1:])


@given(st.sets(st.integers(0, 40), max_size=10))
def test_skipped_batches_are_left_out_and_nothing_else_moves(skipped: set[int]) -> None:
    loader = Loader(STORES, CONFIGS["staged"])
    kept = [number for number in range(60) if number not in skipped]
    for step in (0, 1, 7, 20):
        assert equal(loader.batch(step, skipped=sorted(skipped)), loader.batch(kept[step]))


def test_a_stage_by_tokens_begins_with_the_first_batch_before_which_so_many_were_read() -> None:
    for tokens, first in ((24 * LENGTH * 9, 9), (24 * LENGTH * 9 + 1, 10), (1, 1)):
        stage = StageConfig(start_tokens=tokens, global_batch_size=12, weights={"a": 1})
        loader = Loader(STORES, config_of(stages=(stage,)))
        assert [loader.global_batch_size(step) for step in (first - 1, first)] == [24, 12]
        assert loader.plan(20).changes[1].sequence == first * 24
        assert (loader.order.locate(loader.indices(first)).component == 0).all()


def test_a_change_of_the_batch_size_alone_changes_no_sequence() -> None:
    before = Loader(STORES, config_of())
    after = Loader(STORES, config_of(stages=(StageConfig(start_step=4, global_batch_size=48),)))
    assert equal(after.batch(4), before.sequences(np.arange(4 * 24, 6 * 24)))
    assert equal(after.batch(5), before.sequences(np.arange(6 * 24, 8 * 24)))


def test_shared_arrays_cannot_be_written_to() -> None:
    batch = Loader(STORES, config_of()).batch(0)
    with pytest.raises(ValueError, match="read-only"):
        batch["loss_weights"][0, 0] = 3


def test_a_mask_of_one_component_leaves_the_others_weights_at_one() -> None:
    stores = {**STORES, "c": MemoryTokens.counting(333, mask=[0.25] * 333)}
    loader = Loader(stores, config_of())
    draws = loader.order.locate(loader.indices(3))
    weights = loader.batch(3)["loss_weights"]
    assert (weights == np.where(draws.component == 2, 0.25, 1.0)[:, None]).all()


def test_weights_by_tokens_and_by_their_roots() -> None:
    components = (ComponentConfig(name="s"), ComponentConfig(name="l"))
    stores = {"s": MemoryTokens.counting(1_000), "l": MemoryTokens.counting(9_000)}
    for weights, expected in (("tokens", {"l": 1_843, "s": 205}), ("sqrt", {"l": 1_536, "s": 512})):
        loader = Loader(stores, config_of(components=components, weights=weights))
        assert loader.plan(1).changes[0].counts == expected


def test_simulated_epochs_read_a_fixed_part_as_often_as_the_long_run_reads_all() -> None:
    loader = Loader(STORES, config_of(simulated=SimulatedEpochs(experiment_tokens=1_000, target_tokens=10_000)))
    plan = loader.plan(400)
    for component, store in zip(plan.components, ("a", "b", "c"), strict=True):
        windows = (STORES[store].num_tokens - 1) // LENGTH
        assert component.used_sequences == windows // 10
    draws = loader.order.locate(np.arange(plan.num_sequences))
    assert len(set(draws.sequence[draws.component == 0].tolist())) == 12


# What is refused.


@pytest.mark.parametrize(
    ("stores", "changes", "error", "message"),
    [
        ({"a": STORES["a"], "b": STORES["b"]}, {}, Mismatch, "component 'c' has no store"),
        ({**STORES, "d": STORES["a"]}, {}, Mismatch, "store 'd' is given and no component names it"),
        (
            {**STORES, "b": MemoryTokens.counting(99, tokenizer="other")},
            {},
            Mismatch,
            "'a' and 'b' were made by different tokenizers",
        ),
        ({**STORES, "b": MemoryTokens.counting(8)}, {}, BadInput, r"'b' holds no sequence: 8 tokens.*needs 9"),
        ({**STORES, "b": MemoryTokens([])}, {}, BadInput, "'b' holds no sequence: 0 tokens"),
        ({**STORES, "b": MemoryTokens([[1]])}, {"packing": "documents"}, BadInput, "a document of at least 2"),
        (
            STORES,
            {"simulated": SimulatedEpochs(experiment_tokens=1, target_tokens=1_000)},
            BadConfig,
            "use no sequence of component 'a', which has 124",
        ),
        (
            STORES,
            {"stages": (StageConfig(start_step=5, global_batch_size=2), StageConfig(start_tokens=9, weights={"a": 1}))},
            BadConfig,
            "a stage begins at step 1, which must be behind step 5",
        ),
        (STORES, {"stages": (StageConfig(start_step=5, weights={"a": 0}),)}, BadConfig, "step 5 gives no component"),
    ],
)
def test_stores_that_do_not_fit_are_refused_at_once(
    stores: dict[str, MemoryTokens], changes: dict[str, Any], error: type[CorpusError], message: str
) -> None:
    with pytest.raises(error, match=message):
        Loader(stores, config_of(**changes))


def test_processes_must_divide_every_batch_size_of_the_run() -> None:
    with pytest.raises(BadConfig, match=r"global_batch_size=12 cannot be divided among process_count=24"):
        Loader(STORES, CONFIGS["staged"]).batch(0, process_count=24)
    with pytest.raises(BadConfig, match=r"process_index=2 must be at least 0 and below 2"):
        Loader(STORES, config_of()).batch(0, process_index=2, process_count=2)


@pytest.mark.parametrize("skipped", [[3, 3], [4, 2], [-1]])
def test_skipped_batches_must_rise(skipped: list[int]) -> None:
    with pytest.raises(BadConfig, match="must be rising"):
        Loader(STORES, config_of()).batch(0, skipped=skipped)


def test_a_run_that_outlasts_its_data_is_refused_before_it_starts() -> None:
    components = tuple(ComponentConfig(name=n, weight=1.0, max_epochs=1.5) for n in "abc")
    loader = Loader(STORES, config_of(components=components))
    # 124, 1,249 and 41 windows: 186 + 1,873 + 61 = 2,120 sequences, 88 whole batches of 24.
    assert loader.plan(88).num_sequences == 88 * 24
    with pytest.raises(BadConfig, match="before step 88 is filled, after 2,120 sequences") as caught:
        loader.plan(1_000)
    assert "at most 88 steps" in caught.value.next
    with pytest.raises(BadConfig, match="step 88 has no data"):
        loader.batch(88)
    with pytest.raises(BadConfig, match="before step 86 is filled"):
        loader.plan(87, skipped=[3, 50])
