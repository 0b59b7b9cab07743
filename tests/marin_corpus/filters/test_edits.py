"""Spans merged and applied, against marking each character of the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.errors import BadInput
from marin_corpus.filters.edits import apply_spans, checked_spans, merge_spans

SIZE = 12
SPAN = st.tuples(st.integers(0, SIZE - 1), st.integers(1, 5), st.sampled_from(["", "X", "YY"])).map(
    lambda drawn: (drawn[0], min(SIZE, drawn[0] + drawn[1]), drawn[2])
)


def clusters(spans: list[tuple[int, int, str]]) -> list[set[int]]:
    """Spans that overlap, directly or through others, by index: found by joining any two that share a character."""
    found = [{index} for index in range(len(spans))]
    for i, (start, end, _) in enumerate(spans):
        for j, (other_start, other_end, _) in enumerate(spans):
            if set(range(start, end)) & set(range(other_start, other_end)):
                ours = next(group for group in found if i in group)
                theirs = next(group for group in found if j in group)
                if ours is not theirs:
                    found.remove(theirs)
                    ours |= theirs
    return found


@given(st.lists(st.lists(SPAN, max_size=4), max_size=3))
def test_overlapping_spans_become_one_with_the_replacement_of_the_longest(columns) -> None:
    ranked = [(rank, span) for rank, column in enumerate(columns) for span in column]
    expected = []
    for group in clusters([span for _, span in ranked]):
        members = [ranked[index] for index in group]
        best = min(members, key=lambda m: (m[1][0] - m[1][1], m[0], m[1][0], m[1][2]))
        expected.append((min(s for _, (s, _, _) in members), max(e for _, (_, e, _) in members), best[1][2]))
    merged = merge_spans(columns)
    assert merged == sorted(expected)

    text = "abcdefghijkl"
    kept = [char for index, char in enumerate(text) if not any(s <= index < e for _, (s, e, _) in ranked)]
    edited = apply_spans(text, merged)
    assert [char for char in edited if char.islower()] == kept
    assert len(edited) == len(kept) + sum(len(replacement) for _, _, replacement in merged)


def test_a_removed_paragraph_takes_the_address_in_it_along() -> None:
    text = "Keep. Mail a@b.co now. Keep."
    addresses, paragraphs = [(11, 17, "<EMAIL>")], [(6, 22, "")]
    for columns in ([addresses, paragraphs], [paragraphs, addresses]):
        assert apply_spans(text, merge_spans(columns)) == "Keep.  Keep."


def test_of_equally_long_spans_the_first_column_counts_and_touching_ones_stay_apart() -> None:
    assert merge_spans([[(0, 3, "a")], [(0, 3, "b")]]) == [(0, 3, "a")]
    assert merge_spans([[(2, 5, "a")], [(0, 3, "b")]]) == [(0, 5, "a")]
    assert merge_spans([[(0, 3, "a"), (3, 6, "b")]]) == [(0, 3, "a"), (3, 6, "b")]
    assert apply_spans("🙂🙂é", [(0, 1, "x"), (2, 3, "y")]) == "x🙂y"


@pytest.mark.parametrize("span", [(-1, 2), (2, 2), (3, 2), (0, 6), (5, 6), (None, 1), (0, None)])
def test_a_span_outside_the_text_is_refused(span) -> None:
    value = [{"start": span[0], "end": span[1], "replacement": ""}]
    with pytest.raises(BadInput, match=r"'spans'(.|\n)*document 00ff(.|\n)*<= 5 in this text"):
        checked_spans(value, "hello", column="spans", document="00ff")


def test_nothing_where_a_list_or_replacement_should_be_is_refused() -> None:
    with pytest.raises(BadInput, match="an empty list"):
        checked_spans(None, "hello", column="spans", document="00ff")
    with pytest.raises(BadInput, match="a replacement"):
        checked_spans([{"start": 0, "end": 1, "replacement": None}], "hello", column="spans", document="00ff")
