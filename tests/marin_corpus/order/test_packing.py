"""Packing: windows lose less than a sequence, packed documents lose no target."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.order.packing import Windows, pack_documents

LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=300)


@given(st.integers(0, 500), st.integers(1, 50))
def test_windows_predict_every_token_but_the_first_and_the_tail(num_tokens: int, length: int) -> None:
    windows = Windows(num_tokens=num_tokens, sequence_length=length)
    targets = [
        token
        for start in windows.starts(np.arange(windows.num_sequences)).tolist()
        for token in range(start + 1, start + length + 1)
    ]
    tail = windows.report()["tail"]
    assert targets == list(range(1, max(num_tokens, 1) - tail))
    assert tail < length
    assert windows.num_targets == len(targets)


@given(LENGTHS, st.integers(1, 64))
def test_packed_documents_predict_every_token_but_each_documents_first(lengths: list[int], capacity: int) -> None:
    ends = np.cumsum(lengths)
    packed = pack_documents(ends, capacity)
    pieces = list(zip(packed.piece_starts.tolist(), packed.piece_lengths.tolist(), strict=True))
    targets = Counter(target for start, length in pieces for target in range(start + 1, start + length + 1))
    firsts = {0, *ends[:-1].tolist()}
    assert targets == Counter(token for token in range(sum(lengths)) if token not in firsts)
    for low, high in zip(packed.first_pieces[:-1].tolist(), packed.first_pieces[1:].tolist(), strict=True):
        assert 0 < sum(length for _, length in pieces[low:high]) <= capacity
    positions = packed.num_sequences * capacity
    assert packed.report() == {"tail": 0, "padding": positions - packed.num_targets}
    assert packed.num_targets == len(targets)


@given(LENGTHS, st.integers(2, 64))
def test_packing_is_best_fit_decreasing(lengths: list[int], capacity: int) -> None:
    """The number of sequences is that of the textbook algorithm, which looks at every bin for every piece."""
    pieces = sorted(
        (min(capacity, n - 1 - cut) for n in lengths for cut in range(0, n - 1, capacity)),
        reverse=True,
    )
    rooms: list[int] = []
    for piece in pieces:
        fitting = [room for room in rooms if room >= piece]
        if fitting:
            rooms.remove(min(fitting))
            rooms.append(min(fitting) - piece)
        else:
            rooms.append(capacity - piece)
    assert pack_documents(np.cumsum(lengths), capacity).num_sequences == len(rooms)


def test_text_like_lengths_leave_little_padding() -> None:
    lengths = np.maximum(2, np.random.default_rng(0).lognormal(5.5, 1.2, 20_000).astype(int))
    packed = pack_documents(np.cumsum(lengths), 1_024)
    assert packed.report()["padding"] / (packed.num_sequences * 1_024) < 0.002


@pytest.mark.parametrize("lengths", [[1], [1, 1, 1]])
def test_documents_of_one_token_predict_nothing(lengths: list[int]) -> None:
    assert pack_documents(np.cumsum(lengths), 8).num_sequences == 0
