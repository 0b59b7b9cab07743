import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.documents.schema import document_id
from marin_corpus.errors import BadConfig
from marin_corpus.store.holdout import check_fraction, is_validation

IDS = [document_id(str(k)) for k in range(20_000)]


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.05, 0.5, 0.999])
def test_the_share_is_the_fraction(fraction):
    # Within five standard deviations of a fair draw.
    held_out = int(is_validation(IDS, fraction).sum())
    assert abs(held_out - fraction * len(IDS)) <= 5 * np.sqrt(len(IDS) * fraction * (1 - fraction))


def test_other_documents_change_nothing():
    alone = [bool(is_validation([id], 0.3)[0]) for id in IDS[:100]]
    assert is_validation(IDS, 0.3)[:100].tolist() == alone


@given(smaller=st.floats(0, 0.99), larger=st.floats(0, 0.99))
def test_a_larger_fraction_keeps_all_that_a_smaller_one_held_out(smaller, larger):
    smaller, larger = sorted((smaller, larger))
    assert not (is_validation(IDS[:200], smaller) & ~is_validation(IDS[:200], larger)).any()


def test_not_the_order_of_the_ids_themselves():
    # Samples by the beginning of the id must not be samples of one split.
    beginnings = np.array([int(id[:8], 16) for id in IDS])
    held_out = is_validation(IDS, 0.5)
    assert abs(np.corrcoef(beginnings, held_out)[0, 1]) < 0.04


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 2.0, float("nan")])
def test_fractions_that_are_none(fraction):
    with pytest.raises(BadConfig, match="validation_fraction"):
        check_fraction(fraction)
