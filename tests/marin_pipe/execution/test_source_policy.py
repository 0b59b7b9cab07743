"""What happens on a hit whose source differs: warn, rerun, ignore; and another function of the same name."""

import pytest
from lab import Lab

from marin_pipe.execution.errors import IdentityConflict

MODULE = """
from lab_steps import Text, ran, write
from marin_pipe import StepContext, step
import helpers

@step
def make(*, ctx: StepContext) -> Text:
    # a comment
    ran("make")
    return write(ctx, helpers.word())

@step
def use(text: Text) -> int:
    ran("use")
    return len(text.read())

def unrelated():
    return 1
"""
HELPERS = """
import deep

def word():
    return deep.spell("wo")

def idle():
    return 0
"""
DEEP = """
def spell(text):
    return text + "rd"
"""


def write_and_run(lab: Lab):
    lab.folder.joinpath("deep.py").write_text(DEEP)
    lab.folder.joinpath("helpers.py").write_text(HELPERS)
    module = lab.module(MODULE)
    lab.run(module.use(module.make()))
    assert lab.ran() == ["make", "use"]


@pytest.mark.parametrize(
    ("old", "new", "file"),
    [
        ("# a comment", "# another comment", "exp"),
        ("helpers.word())", "helpers.word( ) )", "exp"),
        ("return 1", "return 2", "exp"),
        ("return 0", "return 1", "helpers"),
        ("def spell(text):", "def spell(text: str) -> str:\n    '''Say it.'''", "deep"),
    ],
)
def test_what_does_not_matter_is_not_reported(lab: Lab, old: str, new: str, file: str) -> None:
    write_and_run(lab)
    module = lab.edit(old, new, file)
    for policy in ("warn", "rerun"):
        ends = lab.run(module.use(module.make()), source=policy)
        assert [(end.status, end.notes) for end in ends.values()] == [("cached", ())] * 2
    assert lab.ran() == []


def test_warn_serves_and_names_the_function_two_modules_away(lab: Lab) -> None:
    write_and_run(lab)
    module = lab.edit('"rd"', '"RD"', "deep")
    step = module.use(module.make())
    note = "source changed since it was built: changed deep.spell"
    assert lab.plan(step)["make"].notes == (note,)
    ends = lab.run(step)
    assert (ends["make"].status, ends["make"].notes) == ("cached", (note,))
    assert ends["use"].notes == (), "use does not reach it"
    assert lab.ran() == []


def test_rerun_runs_again_and_cuts_off_where_bytes_are_equal(lab: Lab) -> None:
    write_and_run(lab)
    module = lab.edit('text + "rd"', 'text + "r" + "d"', "deep")
    step = module.use(module.make())
    assert lab.plan(step, source="rerun")["make"].why == "source changed: changed deep.spell"
    ends = lab.run(step, source="rerun")
    assert {name: end.status for name, end in ends.items()} == {"make": "built", "use": "cached"}
    assert ends["make"].why == "source changed: changed deep.spell"
    assert lab.ran() == ["make"]
    assert lab.run(step, source="rerun")["make"].status == "cached"


def test_rerun_with_other_bytes_reruns_downstream(lab: Lab) -> None:
    write_and_run(lab)
    module = lab.edit('"rd"', '"rdy"', "deep")
    step = module.use(module.make())
    assert lab.statuses(step, source="rerun") == {"make": "built", "use": "built"}
    assert step.load(root=lab.root) == 5


def test_ignore_is_silent(lab: Lab) -> None:
    write_and_run(lab)
    module = lab.edit('"rd"', '"RD"', "deep")
    ends = lab.run(module.use(module.make()), source="ignore")
    assert [(end.status, end.notes) for end in ends.values()] == [("cached", ())] * 2


@pytest.mark.parametrize(("own", "launch", "status"), [("rerun", "warn", "built"), ("ignore", "rerun", "cached")])
def test_the_policy_of_a_step_beats_that_of_the_launch(lab: Lab, own: str, launch: str, status: str) -> None:
    write_and_run(lab)
    module = lab.edit('"rd"', '"RD"', "deep")
    assert lab.statuses(module.make().source_policy(own), source=launch) == {"make": status}


def test_source_that_goes_back_adopts_the_old_output(lab: Lab) -> None:
    write_and_run(lab)
    module = lab.edit('"rd"', '"RD"', "deep")
    lab.run(module.make(), source="rerun")
    lab.ran()
    module = lab.edit('"RD"', '"rd"', "deep")
    assert lab.statuses(module.make(), source="rerun") == {"make": "adopted"}
    assert module.make().load(root=lab.root).read() == "word"
    assert lab.ran() == []


ONE = """
from lab_steps import Text, ran, write
from marin_pipe import StepContext, step

@step
def make(size: int, *, ctx: StepContext) -> Text:
    ran("one")
    return write(ctx, "1" * size)
"""


def test_another_function_of_the_same_name_and_arguments_never_gets_the_others_data(lab: Lab) -> None:
    one = lab.module(ONE, "one").make(3)
    lab.run(one)
    lab.ran()
    two = lab.module(ONE.replace('"1"', '"2"'), "two").make(3)
    assert two.directory == one.directory
    for act in (lab.run, lab.plan):
        with pytest.raises(IdentityConflict) as caught:
            act(two)
        assert caught.value.exit_code == 2
        assert "one.make" in caught.value.what
        assert "two.make" in caught.value.what
        assert caught.value.next.startswith('give this step an output of its own with .named("other/name")')
        assert "@step(name=" in caught.value.next
        assert ".versioned(" in caught.value.next
        assert "adopt" in caught.value.next
    assert lab.ran() == []
    assert lab.statuses(two.named("other/name")) == {"other/name": "built"}
    assert lab.statuses(two.versioned("two")) == {"make": "built"}
    assert two.versioned("two").load(root=lab.root).read() == "222"


def test_a_conflict_stops_a_launch_before_anything_runs(lab: Lab) -> None:
    lab.run(lab.module(ONE, "one").make(3))
    two = lab.module(ONE.replace('"1"', '"2"'), "two")
    before = lab.snapshot()
    lab.ran()
    with pytest.raises(IdentityConflict):
        lab.run([two.make(1), two.make(3)])
    assert lab.ran() == []
    assert lab.snapshot() == before


def test_a_function_that_moved_unchanged_is_served(lab: Lab) -> None:
    lab.run(lab.module(ONE, "one").make(3))
    lab.ran()
    ends = lab.run(lab.module(ONE, "package.two").make(3), source="rerun")
    assert (ends["make"].status, ends["make"].notes) == ("cached", ())
    assert lab.ran() == []


def test_a_function_edited_in_its_own_module_is_no_conflict(lab: Lab) -> None:
    lab.run(lab.module(ONE, "one").make(3))
    ends = lab.run(lab.module(ONE.replace('"1"', '"2"'), "one").make(3))
    assert ends["make"].notes == ("source changed since it was built: changed one.make",)


def test_two_functions_of_one_step_name_do_not_adopt_from_each_other(lab: Lab) -> None:
    """Equal build keys need equal source: a moved function is one function, another one is not."""
    lab.run(lab.module(ONE, "one").make(3).named("x"))
    two = lab.module(ONE.replace('"1"', '"2"'), "two").make(3).named("y")
    assert lab.statuses(two) == {"y": "built"}
    assert two.load(root=lab.root).read() == "222"


@pytest.mark.parametrize("file", ["exp", "helpers", "deep"])
def test_code_that_was_edited_after_it_was_imported_is_not_run_under_the_new_codes_name(lab: Lab, file: str) -> None:
    """A long session: the file says something else than what this process would run."""
    lab.folder.joinpath("deep.py").write_text(DEEP)
    lab.folder.joinpath("helpers.py").write_text(HELPERS)
    module = lab.module(MODULE)
    path = lab.folder / f"{file}.py"
    old, new = {"exp": ("helpers.word()", "helpers.word()[:1]"), "helpers": ('"wo"', '"WO"'), "deep": ("rd", "RD")}[
        file
    ]
    path.write_text(path.read_text().replace(old, new))
    ends = lab.run(module.make())
    failure = ends["make"].failure
    assert failure is not None
    assert failure.error_type == "SourceChanged"
    assert f"{file}.py" in failure.message
    assert lab.ran() == []
    assert lab.statuses(lab.imported("exp").make()) == {"make": "built"}
