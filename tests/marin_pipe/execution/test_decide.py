"""Build keys, seeds and output digests: what changes them and what does not."""

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_steps import Mixture, Settings, Text, nested, node
from upath import UPath

from marin_pipe import Step, step
from marin_pipe.execution import decide
from marin_pipe.execution.records import FileEntry

DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)


def handles(step: Step[Any]) -> list[Step[Any]]:
    return [found if isinstance(found, Step) else found.step for _, found in step.bound.inputs]


def build_key(step: Step[Any], digests: dict[str, str], source: str = "s") -> str:
    return decide.build_key(step, decide.own_arguments(step, digests), source_digest=source)


def everywhere(*parts: Step[Text]) -> Step[Text]:
    a, b, c = parts
    return nested(Mixture(main=a, others=(b,)), Settings(corpus=c, by_name={"a": a}), [b], (c, 1), {"x": a})


@given(digests=st.lists(DIGESTS, min_size=3, max_size=3, unique=True), which=st.integers(0, 2), other=DIGESTS)
def test_the_build_key_holds_the_digest_of_every_input_wherever_it_stands(
    digests: list[str], which: int, other: str
) -> None:
    step = everywhere(node("a"), node("b"), node("c"))
    by_key = {node(label).key: digest for label, digest in zip("abc", digests, strict=True)}
    changed = {**by_key, node("abc"[which]).key: other}
    assert (build_key(step, by_key) == build_key(step, changed)) == (other == digests[which])
    own = str(decide.own_arguments(step, by_key))
    assert all(digest in own for digest in digests)
    assert not any(upstream.key in own for upstream in handles(step))


def test_inputs_with_other_keys_but_equal_bytes_have_one_build_key() -> None:
    one, two = node("x", (node("a"),)), node("x", (node("b"),))
    assert one.key != two.key
    assert build_key(one, {node("a").key: "d"}) == build_key(two, {node("b").key: "d"})


@step
def read(of: UPath) -> str:
    return str(of)


def test_a_path_inside_an_input_counts() -> None:
    digests = {node("a").key: "d"}
    keys = [build_key(read(node("a") / path), digests) for path in (".", "x", "x/y", "./x")]
    assert len(set(keys)) == 3
    assert keys[1] == keys[3]


@pytest.mark.parametrize(
    "other",
    [node("b"), node("a").versioned("2"), node("a", (node("a"),))],
)
def test_the_build_key_holds_arguments_and_version(other: Step[Text]) -> None:
    digests = {node("a").key: "d"}
    assert build_key(node("a"), digests) != build_key(other, digests)


def test_the_build_key_does_not_hold_the_name_or_options() -> None:
    plain = node("a")
    assert build_key(plain, {}) == build_key(plain.named("b").retry(times=3).timeout(hours=1), {})
    assert build_key(plain, {}) == build_key(node("a", salt="x"), {})


def test_source_changes_the_build_key_and_not_the_seed() -> None:
    own = decide.own_arguments(node("a"), {})
    assert decide.build_key(node("a"), own, source_digest="1") != decide.build_key(node("a"), own, source_digest="2")
    assert decide.seed(node("a"), own) == decide.seed(node("a").named("b"), own)


@given(labels=st.lists(st.text(max_size=5), min_size=2, max_size=20, unique=True))
def test_seeds_fit_any_generator_and_differ(labels: list[str]) -> None:
    seeds = [decide.seed(node(label), decide.own_arguments(node(label), {})) for label in labels]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == len(seeds)


@given(pairs=st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from("xyz"))), order=st.randoms())
def test_digests_by_key_do_not_depend_on_order(pairs: list[tuple[str, str]], order: random.Random) -> None:
    shuffled = copy.copy(pairs)
    order.shuffle(shuffled)
    found = decide.digests_by_key(pairs)
    assert found == decide.digests_by_key(shuffled)
    assert {key: set(digests.split("+")) for key, digests in found.items()} == {
        key: {digest for other, digest in pairs if other == key} for key, _ in pairs
    }
    assert decide.is_ambiguous(found) == (len(set(pairs)) > len(found))


FILES = (FileEntry(path="a", size=1, digest="sha256:1"), FileEntry(path="b", size=2, digest="sha256:2"))


@pytest.mark.parametrize(
    ("files", "result"),
    [
        (FILES[:1], {"n": 1}),
        ((FILES[0], FileEntry(path="c", size=2, digest="sha256:2")), {"n": 1}),
        ((FILES[0], FileEntry(path="b", size=3, digest="sha256:2")), {"n": 1}),
        ((FILES[0], FileEntry(path="b", size=2, digest="sha256:3")), {"n": 1}),
        (FILES, {"n": 2}),
        (FILES, {"n": 1.0}),
        (FILES, None),
    ],
)
def test_the_output_digest_covers_every_file_and_the_result(files: tuple[FileEntry, ...], result: Any) -> None:
    assert decide.output_digest(FILES, {"n": 1}) != decide.output_digest(files, result)
    assert decide.output_digest(FILES, {"n": 1}) == decide.output_digest(FILES, {"n": 1})
