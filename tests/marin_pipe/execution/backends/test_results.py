"""What a body returns, and the files it leaves: kept only if they can be read back as what they were."""

import math
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_storage import Store, open_store

from marin_pipe.execution.backends.body import OutputError, commit_files
from marin_pipe.execution.backends.loading import digest_like
from marin_pipe.execution.backends.results import encode_result
from marin_pipe.execution.errors import ResultError
from marin_pipe.execution.load import revive
from marin_pipe.execution.markers import Artifact


class Score(Artifact):
    value: float
    names: tuple[str, ...] = ()


class Other(Artifact):
    value: float


class Twin(Artifact):
    value: float


class Colour(Enum):
    RED = "red"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_json_values_come_back_equal(value: Any) -> None:
    encoded, kind = encode_result(value, Any, step="s")
    assert kind is None
    assert revive(encoded, Any, data_url="", where="s") == value


@given(st.floats(), st.lists(st.text()))
def test_artifacts_come_back_equal(value: float, names: list[str]) -> None:
    score = Score(value=value, names=tuple(names))
    encoded, kind = encode_result(score, Score, step="s")
    again = revive(encoded, Score, data_url="somewhere", where="s")
    assert kind == "Score"
    assert repr(again) == repr(score)
    assert not isinstance(encoded["value"], float) or math.isfinite(encoded["value"])


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ((1, 2), tuple[int, int]),
        ([1, 2], list[int]),
        ({"a": 1}, dict[str, int]),
        ("x", Literal["x", "y"]),
        (None, None),
        (1, int | None),
        (1.0, float),
    ],
)
def test_annotated_values_come_back_with_their_type(value: Any, annotation: Any) -> None:
    again = revive(encode_result(value, annotation, step="s")[0], annotation, data_url="", where="s")
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("value", [None, Score(value=1.5, names=("a",))])
def test_optional_artifacts_come_back(value: Score | None) -> None:
    encoded, _ = encode_result(value, Score | None, step="s")
    again = revive(encoded, Score | None, data_url="somewhere", where="s")
    assert repr(again) == repr(value)
    assert value is None or again.path.name == "somewhere"


@pytest.mark.parametrize(
    ("value", "annotation", "words"),
    [
        ("text", int, "annotation int"),
        (None, int, "annotation int"),
        ([1, "2"], list[int], "annotation list"),
        ((1, 2), Any, "read back as"),
        ({1: 2}, Any, "text keys"),
        (math.nan, Any, "no such number"),
        (math.nan, float | str, "no such number"),
        ({"a": [math.inf]}, Any, r"\['a'\]\[0\]"),
        ({"a": [math.inf]}, dict[str, list[Any]], r"\['a'\]\[0\]"),
        (object(), Any, "the result"),
        ({1, 2}, set[int], "no form for"),
        (Colour.RED, Colour, "no form for"),
        (b"bytes", bytes, "no form for"),
        (Path("x"), Path, "no form for"),
        ("\ud800", str, "not Unicode"),
        (Score(value=1), Any, "-> Score"),
        (Score(value=1), Other, "-> Score"),
        (Score(value=1), Artifact, "-> Score"),
        ({"value": 1.0}, Score, "Score"),
        (Twin(value=1), Other | Twin, "does not lead back"),
    ],
)
def test_what_cannot_be_read_back_is_refused(value: Any, annotation: Any, words: str) -> None:
    with pytest.raises(ResultError, match=words):
        encode_result(value, annotation, step="s")


class TestFiles:
    def test_a_file_that_changes_while_it_is_digested_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = open_store(str(tmp_path))
        store.write("output/a", b"alpha")
        store.write("output/b", b"beta")
        digest = store.digest

        def interfere(key: str) -> str:
            done = digest(key)
            if key == "output/b":
                store.write("output/a", b"alpha!")
            return done

        monkeypatch.setattr(store, "digest", interfere)
        with pytest.raises(OutputError, match="changed while they were digested"):
            commit_files(store, "output")

    def test_files_are_durable_before_they_are_digested(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = open_store(str(tmp_path))
        store.write("output/a", b"alpha")
        order: list[str] = []
        durable, digest = store.make_durable, store.digest

        def note_durable(prefix: str) -> None:
            order.append(f"durable {prefix}")
            durable(prefix)

        def note_digest(key: str) -> str:
            order.append(f"digest {key}")
            return digest(key)

        monkeypatch.setattr(store, "make_durable", note_durable)
        monkeypatch.setattr(store, "digest", note_digest)
        commit_files(store, "output")
        assert order == ["durable output", "digest output/a"]

    @pytest.mark.parametrize(("algorithm", "length"), [("sha256", 64), ("md5", 32)])
    def test_a_digest_of_another_kind_of_store_can_be_compared(
        self, tmp_path: Path, algorithm: str, length: int
    ) -> None:
        import hashlib

        data = b"z" * (9 << 20)
        store: Store = open_store(str(tmp_path))
        store.write("a", data)
        expected = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
        assert digest_like(store, "a", expected) == expected
        assert digest_like(store, "a", f"{algorithm}:{'0' * length}") == expected
