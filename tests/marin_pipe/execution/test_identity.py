"""The canonical form: one form per value, one value per form, the same everywhere."""

import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import uuid
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr

from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.identity import RuntimeUse, canonical, canonical_json, compute_key
from marin_pipe.execution.markers import OmitAt, Runtime


def ignore(_where, _obj):
    pass


def form(value, annotation=Any):
    return canonical(value, annotation, where="x", visit=ignore)


def text(value, annotation=Any):
    return canonical_json(form(value, annotation))


def visited(value, annotation=Any):
    seen: list[tuple[str, object]] = []
    canonical(value, annotation, where="x", visit=lambda where, obj: seen.append((where, obj)))
    return seen


# --- different values, different forms -------------------------------------------------------------------------------


def reference(value):
    """An independent naming of values: two are the same exactly if their references are equal."""
    kind = type(value).__name__
    if isinstance(value, float):
        return kind, "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, list | tuple):
        return kind, tuple(reference(v) for v in value)
    if isinstance(value, set | frozenset):
        return "set", frozenset(reference(v) for v in value)
    if isinstance(value, dict):
        return kind, frozenset((reference(k), reference(v)) for k, v in value.items())
    return kind, value


CONFUSABLE = [
    *[
        None,
        True,
        False,
        0,
        1,
        -1,
        2**53,
        2**53 + 1,
        2**1024,
        2**1025,
        0.0,
        -0.0,
        1.0,
        1e16,
        10**16,
        0.1,
        math.inf,
        math.nan,
    ],
    *["", "1", "1.0", "None", "null", "nan", "$tuple", "$dict", "$float", "é", "e\u0301", "\ud800", '"', "\\", "[]"],
    *[b"", b"1", b"null", 1j, complex(-0.0, 0.0), complex(0.0, 0.0), range(3), range(0, 3, 2)],
]
leaves = st.sampled_from(CONFUSABLE) | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
keys = st.sampled_from(["a", "$a", "$tuple", "$dict", "", "1", 1, 0, True, "fields", "$class"]) | st.text(max_size=2)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.sets(st.sampled_from([1, 2, "1", "2", None, (1,), (1, 2), 1.5]), max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(values, min_size=2, max_size=20))
def test_two_values_have_one_form_exactly_if_they_are_the_same(many):
    for left in many:
        for right in many:
            assert (text(left) == text(right)) == (reference(left) == reference(right)), (left, right)


@pytest.mark.parametrize("left", range(len(CONFUSABLE)))
def test_confusable_values_differ_also_inside_containers(left):
    a = CONFUSABLE[left]
    for b in CONFUSABLE[left + 1 :]:
        for wrap in (lambda v: v, lambda v: [v], lambda v: {"k": v}, lambda v: (v,)):
            assert text(wrap(a)) != text(wrap(b)), (a, b)


@pytest.mark.parametrize(
    "lookalike",
    [
        ((1,), {"$tuple": [1]}),
        ({1: 2}, {"$dict": [[1, 2]]}),
        ({1}, {"$set": [1]}),
        (math.nan, {"$float": "nan"}),
        (b"a", {"$bytes": "61"}),
        (Path("a"), {"$path": "a"}),
        (math.sqrt, {"$function": "sqrt", "package": "math"}),
    ],
    ids=lambda pair: type(pair[0]).__name__,
)
def test_a_dict_cannot_pose_as_a_tagged_value(lookalike):
    value, imitation = lookalike
    assert form(value) == imitation, "the imitation must be exact for this test to mean anything"
    assert text(value) != text(imitation)


def test_long_bytes_differ_by_content_and_length():
    assert len({text(b"a" * 300), text(b"a" * 301), text(b"a" * 299 + b"b"), text(bytearray(b"a" * 300))}) == 4


# --- the same value, the same form -----------------------------------------------------------------------------------


@given(st.dictionaries(keys, leaves, max_size=6), st.randoms(use_true_random=False))
def test_order_of_dicts_bears_no_identity(mapping, chance):
    items = list(mapping.items())
    chance.shuffle(items)
    assert text(dict(items)) == text(mapping)


@given(st.lists(st.integers() | st.text(max_size=3), max_size=8))
def test_order_of_sets_bears_no_identity(members):
    shuffled = members[:]
    random.Random(0).shuffle(shuffled)
    assert text(set(members)) == text(set(shuffled)) == text(frozenset(members))


PROBE = """
from marin_pipe.execution.identity import canonical, canonical_json, compute_key
value = {"set": {"b", "a", "c", 1, None}, "dict": {k: i for i, k in enumerate("zyx")}, "f": 0.1, "n": -0.0,
         "keys": {1: "a", True + 1: "b"}, "nested": {frozenset({"p", "q"}), frozenset({"r"})}, "t": (1, "\u00e9")}
print(canonical_json(canonical(value, object, where="x", visit=lambda where, obj: None)))
print(compute_key("f", "1", {"a": 1}))
"""


def test_processes_with_other_hash_seeds_agree():
    def run(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, check=True).stdout

    assert run("1") == run("2")


def test_the_key_is_the_documented_hash():
    body = '{"arguments":{"a":1,"b":1.0},"format":1,"function":"count","version":"1"}'
    assert compute_key("count", "1", {"b": 1.0, "a": 1}) == hashlib.sha256(body.encode()).hexdigest()


@given(values)
def test_stored_forms_read_back_as_they_were(value):
    assert canonical_json(json.loads(text(value))) == text(value)


# --- list and tuple --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("annotation", [tuple, tuple[int, ...], tuple[int, int], list[int], list[int] | None])
def test_a_declared_sequence_has_one_form(annotation):
    assert text((1, 2), annotation) == text([1, 2], annotation)


@pytest.mark.parametrize("annotation", [Any, object, Any | None])
def test_undeclared_list_and_tuple_differ(annotation):
    assert text((1, 2), annotation) != text([1, 2], annotation)


def test_what_is_declared_reaches_into_containers():
    assert text({"a": [(1, 2)]}, dict[str, list[tuple[int, int]]]) == text({"a": [[1, 2]]})
    assert text({"a": [(1, 2)]}, dict[str, list]) != text({"a": [[1, 2]]})
    assert text((("a",), ("b",)), tuple[tuple[str], Any]) == text([["a"], ("b",)])


# --- dataclasses, models, enums --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Optimizer:
    lr: float = 0.1
    betas: tuple[float, ...] = (0.9, 0.95)
    workers: Runtime[int] = 1


@dataclasses.dataclass(frozen=True)
class Scheduler:
    lr: float = 0.1
    betas: tuple[float, ...] = (0.9, 0.95)


@dataclasses.dataclass(frozen=True)
class Config:
    optimizer: Optimizer = Optimizer()
    warmup: Annotated[int | None, OmitAt(None)] = None
    scale: Annotated[float, OmitAt(1)] = 1.0


class Model(BaseModel):
    lr: float = 0.1
    workers: Runtime[int] = 1
    added: Annotated[int, OmitAt(3)] = 3
    _cache: int = PrivateAttr(default=0)


class Open(BaseModel, extra="allow"):
    lr: float = 0.1


class Point(NamedTuple):
    x: int
    y: int


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Other(enum.Enum):
    RED = 1


def test_classes_bear_their_name_and_fields():
    assert form(Scheduler()) == {"$class": "Scheduler", "fields": {"lr": 0.1, "betas": [0.9, 0.95]}}
    assert text(Scheduler()) != text(Optimizer())
    assert form(Point(1, 2)) == {"$class": "Point", "fields": {"x": 1, "y": 2}}


def test_runtime_fields_are_left_out_at_any_depth_and_reported():
    assert text(Config(Optimizer(workers=1))) == text(Config(Optimizer(workers=64)))
    assert text(Model(workers=1)) == text(Model(workers=2))
    assert ("x[0].optimizer.workers", RuntimeUse(64)) in visited([Config(Optimizer(workers=64))])


def test_omit_at_keeps_old_keys():
    assert form(Config()) == {"$class": "Config", "fields": {"optimizer": form(Optimizer())}}
    assert form(Config(warmup=0))["fields"]["warmup"] == 0
    assert form(Config(scale=2.0))["fields"]["scale"] == 2.0
    assert "added" not in form(Model())["fields"]


def test_extra_fields_of_a_model_are_fields():
    assert text(Open(lr=0.1, more=1)) != text(Open(lr=0.1)) != text(Open(lr=0.1, more=2))


def test_enums_bear_class_and_member():
    forms = {text(v) for v in (Color.RED, Color.BLUE, Other.RED, Access.READ, Access.READ | Access.WRITE, Access(0))}
    assert len(forms) == 6
    assert form(Color.RED) == {"$enum": "Color.RED"}
    assert text({Color.RED: 1}) != text({"Color.RED": 1})


@dataclasses.dataclass
class Mutable:
    size: int = 1

    @functools.cached_property
    def doubled(self):
        return 2 * self.size


class Slotted(Mutable):
    __slots__ = ("hidden",)


class Inherits(Mutable, dict):
    pass


def test_derived_values_are_no_state():
    value = Mutable()
    before = text(value)
    assert value.doubled == 2
    assert text(value) == before


def test_state_outside_fields_is_an_error():
    value = Mutable()
    value.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(GraphError, match=r"argument x\[0\]: this Mutable has state outside its fields: extra"):
        form([value])
    slotted = Slotted()
    slotted.hidden = 1  # type: ignore[attr-defined]
    with pytest.raises(GraphError, match="hidden"):
        form(slotted)
    with pytest.raises(GraphError, match="it is a dict"):
        form(Inherits())
    model = Model()
    assert form(model)
    model._cache = 1
    with pytest.raises(GraphError, match="_cache"):
        form(model)


# --- functions and classes as values ---------------------------------------------------------------------------------


def helper():
    pass


def test_functions_and_classes_are_named_and_reported():
    assert form(helper) == {"$function": "helper"}
    assert form(Color) == {"$function": "Color"}
    assert visited([helper]) == [("x[0]", helper)]
    assert text(math.sqrt) != text(np.sqrt)


def test_functions_of_installed_packages_bear_their_package():
    assert form(json.dumps) == {"$function": "dumps", "package": "json"}
    assert form(np.linalg.norm) == {"$function": "norm", "package": "numpy"}


def test_classes_of_objects_are_reported_with_them():
    assert [obj for _, obj in visited(Config())] == [Config, Optimizer, RuntimeUse(1)]


def closure():
    return lambda: None


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (lambda: 1, "lambda"),
        (closure(), "lambda"),
        (Mutable().__repr__, "method"),
        (functools.partial(helper), "partial"),
        ((i for i in range(3)), "generator"),
        (iter([1]), "iterator"),
        (object(), "object"),
        (json, "module"),
        (sys.stdout, "InputFile"),
        ({1.5: 1}, "dict key 1.5 is a float"),
        ({None: 1}, "dict key None"),
        ({(1, 2): 1}, "dict key"),
        (memoryview(b"a"), "memoryview"),
        (np.array([None]), "dtype object"),
        (functools.wraps(helper)(closure()), "another object"),
    ],
)
def test_values_without_canonical_form_are_errors_that_name_the_argument(value, named):
    with pytest.raises(GraphError, match=re.escape("argument x.layers[2]")) as caught:
        canonical({"fn": value}, dict[str, Any], where="x.layers[2]", visit=ignore)
    assert named in str(caught.value)
    assert caught.value.next


# --- library values --------------------------------------------------------------------------------------------------

UTC = datetime.UTC
LIBRARY = [
    Path("a"),
    PurePosixPath("a/b"),
    datetime.date(2024, 1, 1),
    datetime.datetime(2024, 1, 1),
    datetime.datetime(2024, 1, 1, tzinfo=UTC),
    datetime.datetime(2024, 1, 1, fold=1),
    datetime.time(1),
    datetime.timedelta(1),
    datetime.timedelta(0, 1),
    UTC,
    decimal.Decimal("1.0"),
    decimal.Decimal("1.00"),
    Fraction(1, 2),
    uuid.UUID(int=1),
    re.compile("a"),
    re.compile("a", re.IGNORECASE),
    re.compile(b"a"),
    np.float32(1.5),
    np.float64(1.5),
    np.int8(1),
    np.bool_(True),
    np.dtype("f4"),
    np.dtype([("a", "f4")]),
    np.array([1, 2]),
    np.array([1, 2], dtype="i4"),
    np.array([[1, 2]]),
    np.array([1.0, -0.0]),
    np.array([1.0, 0.0]),
    np.array(["a", "b"]),
    np.datetime64("2024-01-01"),
]


def test_library_values_have_forms_of_their_own():
    assert len({text(value) for value in LIBRARY}) == len(LIBRARY)


def test_array_content_is_independent_of_layout():
    array = np.arange(6, dtype="<i4").reshape(2, 3)
    assert text(array) == text(np.asfortranarray(array)) == text(array.astype(">i4")) == text(array[::1].copy())
    padded = np.zeros(2, dtype=np.dtype({"names": ["a", "b"], "formats": ["i1", "i4"]}, align=True))
    dirty = padded.copy()
    dirty.view("u1")[1] = 7  # a byte of padding
    assert text(padded) == text(dirty)
    dirty["b"] = 1
    assert text(padded) != text(dirty)


def test_a_local_file_as_path_points_to_input_file(tmp_path):
    file = tmp_path / "data.txt"
    file.write_text("a")
    with pytest.raises(GraphError, match=r"argument x: .*data.txt.* is a local file") as caught:
        form(file)
    assert "InputFile" in caught.value.next
    assert form(str(file)) == str(file)
    assert form(tmp_path) == {"$path": str(tmp_path)}


def test_remote_paths_bear_their_text():
    upath = pytest.importorskip("upath")
    assert form(upath.UPath("memory://bucket/a")) == {"$path": "memory://bucket/a"}
