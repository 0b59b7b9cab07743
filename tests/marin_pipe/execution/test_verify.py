import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe.execution.inventory import Inventory
from marin_pipe.execution.verify import Mismatch, Verified, verify_outputs


def verified(lab: Lab, *, digests: bool = True) -> dict[str, Verified]:
    store = open_store(lab.root)
    stored = Inventory(store=store).everything().values()
    return {result.name: result for result in verify_outputs(store, stored, digests=digests)}


def mismatches(lab: Lab, name: str, *, digests: bool = True) -> list[tuple[str, str]]:
    found = verified(lab, digests=digests)[name].mismatches
    assert all(isinstance(one, Mismatch) and one.detail for one in found)
    return [(one.key.partition("/output/")[2], one.problem) for one in found]


@pytest.fixture
def output(lab: Lab) -> Path:
    lab.run(node("abc").named("a"))
    return lab.output(node("abc").named("a"))


def test_what_is_as_recorded_has_no_mismatch(lab: Lab, output: Path) -> None:
    assert output.exists()
    result = verified(lab)["a"]
    assert (result.num_files, result.size_bytes, result.mismatches) == (1, 3, ())


def test_missing_short_long_changed_and_extra_files_are_told_apart(lab: Lab, output: Path) -> None:
    file = output / "text.txt"
    for content, problem in ((b"ab", "short"), (b"abcd", "long"), (b"abx", "changed")):
        file.write_bytes(content)
        assert mismatches(lab, "a") == [("text.txt", problem)]
    assert mismatches(lab, "a", digests=False) == []
    (output / "more é#?.txt").write_text("x")
    file.unlink()
    assert mismatches(lab, "a") == [("more é#?.txt", "extra"), ("text.txt", "missing")]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_any_flipped_bit_is_found(lab: Lab, output: Path, seed: int) -> None:
    file = output / "text.txt"
    draw = random.Random(seed)
    content = bytearray(b"abc")
    content[draw.randrange(3)] ^= 1 << draw.randrange(8)
    file.write_bytes(content)
    assert mismatches(lab, "a") == [("text.txt", "changed")]
    file.write_bytes(b"abc")


def test_an_adopted_output_is_verified_where_its_data_lies(lab: Lab, output: Path) -> None:
    assert lab.statuses(node("abc").named("b")) == {"b": "adopted"}
    (output / "text.txt").write_text("abx")
    assert mismatches(lab, "b") == [("text.txt", "changed")]


def test_a_step_without_an_output_is_not_verified(lab: Lab) -> None:
    lab.run(node("a", fail=True))
    assert verified(lab) == {}
