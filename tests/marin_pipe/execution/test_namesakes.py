"""Functions and classes of one name in different modules, as arguments: never taken for one another."""

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from lab import Lab

from marin_pipe import Step, step
from marin_pipe.execution.errors import GraphError, IdentityConflict
from marin_pipe.execution.graph import build_graph

THINGS = """
from dataclasses import dataclass
from enum import Enum
from pydantic import BaseModel

def clean(text):
    return {what!r} + text

class Tool:
    what = {what!r}

@dataclass(frozen=True)
class Options:
    size: int = 1
    def apply(self):
        return {what!r}

class Model(BaseModel):
    size: int = 1
    def apply(self):
        return {what!r}

class Mode(Enum):
    FAST = {what!r}
"""

EXPERIMENT = """
from typing import Any
from marin_pipe import step

@step
def use(thing: Any, of: Any = None) -> str:
    if hasattr(thing, "apply"):
        return thing.apply()
    if hasattr(thing, "what"):
        return thing.what
    return thing("x") if callable(thing) else str(thing.value)
"""

EVERY_KIND = ["clean", "Tool", "Options()", "Model()", "Mode.FAST"]


def two_modules(lab: Lab, *, same: bool = False) -> tuple[ModuleType, ModuleType, ModuleType]:
    for name in ("ma", "mb"):
        (lab.folder / f"{name}.py").write_text(THINGS.format(what="same" if same else name))
    (lab.folder / "exp.py").write_text(EXPERIMENT + "import ma, mb\n")
    exp = lab.imported("exp")
    return exp, exp.ma, exp.mb


def thing(module: ModuleType, kind: str) -> Any:
    return eval(kind, vars(module))  # noqa: S307  a literal of this file


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_two_things_of_one_name_are_refused_in_one_graph(lab: Lab, kind: str) -> None:
    exp, ma, mb = two_modules(lab)
    one, other = exp.use(thing(ma, kind)), exp.use(thing(mb, kind))
    for steps in ([one, other], [exp.use([1], of=other).named("consumer"), one]):
        with pytest.raises(GraphError, match=r"m[ab]\.(\w+), another step of this graph m[ab]\.\1") as caught:
            build_graph(steps)
        assert "rename one" in caught.value.next


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_one_thing_may_be_named_by_many_steps(lab: Lab, kind: str) -> None:
    exp, ma, _ = two_modules(lab)
    steps = [exp.use(thing(ma, kind), of=index).named(f"s{index}") for index in range(3)]
    assert len(build_graph(steps).nodes) == 3


def test_a_module_imported_again_holds_the_same_things(lab: Lab) -> None:
    exp, ma, _ = two_modules(lab)
    old = exp.use(ma.clean)
    again = lab.imported("exp")
    assert len(build_graph([old, again.use(again.ma.clean)]).nodes) == 1


@step
def apply(function: Any) -> str:
    return repr(function)


def test_installed_things_of_one_name_differ_by_their_package() -> None:
    steps: list[Step[str]] = [apply(math.sqrt), apply(np.emath.sqrt)]
    assert len(build_graph(steps).nodes) == 2


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_an_output_made_with_another_thing_of_that_name_is_not_served(lab: Lab, kind: str) -> None:
    exp, ma, mb = two_modules(lab)
    lab.run(exp.use(thing(ma, kind)))
    assert exp.use(thing(mb, kind)).key == exp.use(thing(ma, kind)).key
    with pytest.raises(IdentityConflict, match=r"made with ma\.(\w+) in its arguments, not with mb\.\1") as caught:
        lab.run(exp.use(thing(mb, kind)))
    assert caught.value.exit_code == 2
    with pytest.raises(IdentityConflict):
        exp.use(thing(mb, kind)).load(root=lab.root)
    assert exp.use(thing(ma, kind)).load(root=lab.root)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_thing_that_moved_unchanged_is_served(lab: Lab, kind: str) -> None:
    exp, ma, mb = two_modules(lab, same=True)
    lab.run(exp.use(thing(ma, kind)))
    assert lab.statuses(exp.use(thing(mb, kind))) == {"use": "cached"}
    assert exp.use(thing(mb, kind)).load(root=lab.root)


def test_an_edited_thing_in_its_place_is_no_other(lab: Lab) -> None:
    exp, ma, _ = two_modules(lab)
    lab.run(exp.use(ma.clean))
    exp = lab.edit("'ma' + text", "'new' + text", "ma")
    assert lab.statuses(exp.use(exp.ma.clean), source="rerun") == {"use": "built"}


def test_the_record_keeps_where_things_lay(lab: Lab) -> None:
    exp, ma, _ = two_modules(lab)
    made = exp.use(ma.clean, of=[ma.Options(), math.sqrt])
    lab.run(made)
    commit = lab.commit(made)
    assert commit is not None
    assert commit.record.modules == {"clean": "ma", "Options": "ma"}
