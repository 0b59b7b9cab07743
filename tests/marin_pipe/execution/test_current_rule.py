"""When a commit is served: every input it read must still be what its step's current commit holds."""

from lab import Lab
from lab_steps import Text, node

from marin_pipe import Step


def test_changed_inputs_are_told_together(lab: Lab) -> None:
    def steps(salt: str) -> Step[Text]:
        return node("c", tuple(node(name, salt=salt).named(name) for name in "ab")).named("c")

    lab.run(steps(""))
    ends = lab.run(steps("!"), selection={"force": ("a", "b")})
    assert ends["c"].why == "because of a, b: their outputs changed"


def test_a_forced_upstream_with_equal_bytes_leaves_its_consumers_cached(lab: Lab) -> None:
    a = node("a").named("a")
    b = node("b", (a,)).named("b")
    lab.run(b)
    lab.ran()
    assert lab.statuses(b, selection={"force": "a"}) == {"a": "built", "b": "cached"}
    assert lab.ran() == ["a"]
    commit = lab.commit(a)
    assert commit is not None
    assert commit.number == 2


def test_a_forced_upstream_with_other_bytes_reruns_its_consumers_as_the_next_commit(lab: Lab) -> None:
    a, again = node("a").named("a"), node("a", salt="!").named("a")
    lab.run(node("c", (node("b", (a,)).named("b"),)).named("c"))
    lab.ran()
    b = node("b", (again,)).named("b")
    c = node("c", (b,)).named("c")
    ends = lab.run(c, selection={"force": "a"})
    assert lab.ran() == ["a", "b", "c"]
    assert ends["b"].why == "because of a: its output changed"
    assert c.load(root=lab.root).read() == "c(b(a!))"
    commit = lab.commit(c)
    assert commit is not None
    assert commit.number == 2
    assert [use.commit for use in commit.record.inputs] == [2]


def test_a_change_stops_where_the_bytes_come_out_equal(lab: Lab) -> None:
    module = lab.module(
        """
        from lab_steps import Text, ran, write
        from marin_pipe import Runtime, StepContext, step

        @step
        def source(*, salt: Runtime[str] = "", ctx: StepContext) -> Text:
            ran("source")
            return write(ctx, "x" + salt)

        @step
        def length(of: Text, *, ctx: StepContext) -> int:
            ran("length")
            return len(of.read())

        @step
        def report(number: int) -> str:
            ran("report")
            return f"{number} characters"
        """
    )
    lab.run(module.report(module.length(module.source(salt="1"))))
    lab.ran()
    again = module.report(module.length(module.source(salt="2")))
    ends = lab.statuses(again, selection={"force": "source"})
    assert ends == {"source": "built", "length": "built", "report": "cached"}
    assert lab.ran() == ["source", "length"]


def test_a_missing_input_does_not_make_a_consumer_stale_and_is_not_rebuilt_for_it(lab: Lab) -> None:
    a = node("a").named("a")
    b = node("b", (a,)).named("b")
    lab.run(b)
    lab.ran()
    lab.delete(a)
    assert lab.actions(b) == {"b": "cached"}
    assert lab.statuses(b) == {"b": "cached"}
    assert lab.ran() == []
    assert lab.commit(a) is None


def test_a_stale_consumer_of_a_missing_input_rebuilds_it(lab: Lab) -> None:
    def graph(salt: str = ""):
        a, x = node("a").named("a"), node("x", salt=salt).named("x")
        return a, x, node("b", (a, x)).named("b")

    a, x, b = graph()
    lab.run(b)
    lab.ran()
    lab.delete(a)
    a, x, b = graph("!")
    lab.run(x, selection={"force": "x"})
    assert lab.actions(b) == {"a": "run", "x": "cached", "b": "run"}
    assert lab.plan(b)["b"].why == "because of x: its output changed"
    lab.ran()
    assert lab.statuses(b) == {"a": "built", "x": "cached", "b": "built"}
    assert lab.ran() == ["a", "b"]
    assert b.load(root=lab.root).read() == "b(a,x!)"


def test_a_missing_input_of_a_current_input_is_not_rebuilt_either(lab: Lab) -> None:
    """b must run again and needs c, which is missing; c's input d is there, and d's own input e is missing."""

    def graph(salt: str = ""):
        e = node("e").named("e")
        d = node("d", (e,)).named("d")
        c = node("c", (d,)).named("c")
        x = node("x", salt=salt).named("x")
        return e, c, x, node("b", (c, x)).named("b")

    e, c, x, b = graph()
    lab.run(b)
    lab.delete(e)
    lab.delete(c)
    e, c, x, b = graph("!")
    lab.run(x, selection={"force": "x"})
    lab.ran()
    assert lab.actions(b) == {"c": "run", "d": "cached", "x": "cached", "b": "run"}
    lab.run(b)
    assert lab.ran() == ["c", "b"]
    assert lab.commit(e) is None


def test_an_upstream_back_at_its_old_bytes_brings_the_old_output_back(lab: Lab) -> None:
    def graph(salt: str):
        a = node("a", salt=salt).named("a")
        return node("b", (a,)).named("b")

    lab.run(graph("1"))
    lab.run(graph("2"), selection={"force": "a"})
    lab.ran()
    b = graph("1")
    ends = lab.run(b, selection={"force": "a"})
    assert lab.ran() == ["a"]
    assert ends["b"].status == "adopted"
    commit = lab.commit(b)
    assert commit is not None
    assert commit.kind == "adopted"
    assert (commit.number, commit.source_commit, commit.source_directory) == (3, 1, b.directory)
    assert b.load(root=lab.root).read() == "b(a1)"


def test_consumers_of_a_sub_path_follow_the_bytes_too(lab: Lab) -> None:
    module = lab.module(
        """
        from pathlib import Path
        from lab_steps import Text, ran
        from marin_pipe import StepContext, step
        from upath import UPath

        @step
        def first_line(path: UPath) -> str:
            ran("first_line")
            return path.read_text()
        """
    )
    for salt in ("1", "2"):
        lab.run(module.first_line(node("a", salt=salt).named("a") / "text.txt"), selection={"force": "a"})
        assert lab.ran() == ["a", "first_line"]
    assert module.first_line(node("a").named("a") / "text.txt").load(root=lab.root) == "a2"


def test_one_computation_under_two_names_with_different_bytes_does_not_rerun_its_consumer_for_ever(lab: Lab) -> None:
    """Two names of one computation have one key; a step that depends on chance may leave different bytes there."""
    lab.run(node("a", salt="1").named("x"))
    lab.run(node("a", salt="2").named("y"), selection={"force": "y"})
    both = node("b", (node("a").named("x"), node("a").named("y"))).named("b")
    lab.run(both)
    lab.ran()
    assert lab.statuses(both) == {"x": "cached", "y": "cached", "b": "cached"}
    assert lab.ran() == []
    assert both.load(root=lab.root).read() == "b(a1,a2)"


def test_each_name_of_one_computation_counts_for_itself(lab: Lab) -> None:
    """The consumer read "1" twice; since then one of the two names holds other bytes."""
    lab.run(node("a", salt="1").named("x"))
    both = node("b", (node("a").named("x"), node("a").named("y"))).named("b")
    lab.run(both)
    assert both.load(root=lab.root).read() == "b(a1,a1)"
    lab.run(node("a", salt="2").named("y"), selection={"force": "y"})
    assert lab.plan(both)["b"].why == "because of y: its output changed"
    assert lab.statuses(both) == {"x": "cached", "y": "cached", "b": "built"}
    assert both.load(root=lab.root).read() == "b(a1,a2)"
    lab.run(node("a", salt="2").named("x"), selection={"force": "x"})
    lab.run(node("a", salt="1").named("y"), selection={"force": "y"})
    lab.run(both)
    assert both.load(root=lab.root).read() == "b(a2,a1)"


def test_an_input_that_is_rebuilt_for_another_consumer_counts_in_the_same_launch(lab: Lab) -> None:
    """m and n read i, which is gone. n must run again, so i comes back, with other bytes: m must notice."""

    def graph(salt: str = "", chance: str = ""):
        i, x = node("i", salt=chance).named("i"), node("x", salt=salt).named("x")
        return {"m": node("m", (i,)).named("m"), "n": node("n", (i, x)).named("n"), "x": x, "i": i}

    lab.run(graph())
    lab.delete(graph()["i"])
    lab.run(graph("!")["x"], selection={"force": "x"})
    asked = {name: step for name, step in graph("!", "?").items() if name in "mn"}
    lab.ran()
    assert lab.statuses(asked) == {"i": "built", "x": "cached", "m": "built", "n": "built"}
    assert asked["m"].load(root=lab.root).read() == "m(i?)"
    assert asked["n"].load(root=lab.root).read() == "n(i?,x!)"
    assert set(lab.statuses(asked).values()) == {"cached"}
