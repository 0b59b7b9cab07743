"""Runs as a user sees them: what reaches the body, what it may return, failures, retries, resources, order."""

import threading
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from lab_steps import Mixture, Settings, Text, nested, node, seed

from marin_pipe import CPU, GPU, TPU, InputFile, StepContext, run
from marin_pipe.execution.errors import ConfigurationError, GraphError, MissingOutput, RecordError
from marin_pipe.execution.report import StepEvent

RESULTS = """
from typing import Any
from marin_pipe import Artifact, step

class Count(Artifact):
    words: int
    by_name: dict[str, float] = {}

class More(Count):
    lines: int = 0

@step
def artifact() -> Count:
    return Count(words=3, by_name={"a": float("nan"), "b": float("inf")})

@step
def maybe(there: bool) -> Count | None:
    return Count(words=1) if there else None

@step
def number() -> int:
    return 3

@step
def mapping() -> dict[str, list[int | None]]:
    return {"a": [1, None]}

@step
def pair() -> tuple[int, str]:
    return 1, "x"

@step
def nothing() -> None:
    pass

@step
def unsaid():
    return {"a": [1, 2.5, "x", None, True]}

@step
def wrong() -> int:
    return "three"

@step
def subclass() -> Count:
    return More(words=1, lines=2)

@step
def forgot() -> Count:
    pass

@step
def opaque() -> Any:
    return object()

@step
def not_a_number() -> float:
    return float("nan")

@step
def keys() -> dict[int, str]:
    return {1: "x"}

@step
def use(count: Count, maybe: Count | None, number: int, pair: tuple[int, str], mapping: dict[str, list[int | None]],
        nothing: None, unsaid: Any) -> str:
    assert type(count) is Count
    return repr((count.words, maybe and maybe.words, number, pair, mapping, nothing, unsaid))
"""


def test_every_kind_of_result_comes_back_as_what_it_was(lab: Lab) -> None:
    module = lab.module(RESULTS)
    step = module.use(
        module.artifact(),
        module.maybe(True),
        module.number(),
        module.pair(),
        module.mapping(),
        module.nothing(),
        module.unsaid(),
    )
    lab.run(step)
    unsaid = {"a": [1, 2.5, "x", None, True]}
    assert step.load(root=lab.root) == repr((3, 1, 3, (1, "x"), {"a": [1, None]}, None, unsaid))
    count = module.artifact().load(root=lab.root)
    assert repr(count.by_name) == "{'a': nan, 'b': inf}"
    assert module.pair().load(root=lab.root) == (1, "x")
    lab.run(module.maybe(False))
    assert module.maybe(False).load(root=lab.root) is None


def test_an_optional_artifact_has_its_path_too(lab: Lab) -> None:
    module = lab.module(RESULTS)
    lab.run(module.maybe(True))
    maybe = module.maybe(True).load(root=lab.root)
    assert type(maybe) is module.Count
    assert "/maybe-" in str(maybe.path)


def test_an_annotation_that_changed_is_an_error_of_the_record_too(lab: Lab) -> None:
    step = lab.module(RESULTS).number()
    lab.run(step)
    module = lab.edit("def number() -> int:", "def number() -> str:")
    with pytest.raises(RecordError) as caught:
        module.number().load(root=lab.root)
    assert f"{step.directory}, commit 1" in caught.value.what
    assert "expected str, got 3 (int)" in caught.value.what
    assert "run --force number" in caught.value.next


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", ["int", "'three'"]),
        ("subclass", ["More", "Count"]),
        ("forgot", ["Count"]),
        ("opaque", ["object"]),
    ],
)
def test_a_result_that_does_not_match_fails_before_commit(lab: Lab, name: str, said: list[str]) -> None:
    step = getattr(lab.module(RESULTS), name)()
    ends = lab.run(step)
    failure = ends[name].failure
    assert failure is not None
    assert failure.error_type == "ResultError"
    assert all(part in failure.message for part in [f"step {name}", *said])
    assert lab.commit(step) is None
    assert lab.exit_code == 1


def test_a_result_that_could_never_be_stored_is_refused_when_the_graph_is_built(lab: Lab) -> None:
    with pytest.raises(GraphError, match="step keys: its return annotation"):
        lab.module(RESULTS).keys()


def test_a_float_that_is_no_number_comes_back_as_one(lab: Lab) -> None:
    step = lab.module(RESULTS).not_a_number()
    lab.run(step)
    assert repr(step.load(root=lab.root)) == "nan"


def test_a_record_that_no_longer_validates_names_field_commit_and_fix(lab: Lab) -> None:
    step = lab.module(RESULTS).artifact()
    lab.run(step)
    module = lab.edit("    words: int\n", "    words: int\n    letters: int\n")
    with pytest.raises(RecordError) as caught:
        module.artifact().load(root=lab.root)
    text = str(caught.value)
    assert "letters" in text
    assert f"{step.directory}, commit 1" in text
    assert "run --force artifact" in text
    consumer = module.use(module.artifact(), None, 1, (1, "x"), {}, None, None)
    ends = lab.run(consumer)
    failure = ends["use"].failure
    assert failure is not None
    assert failure.error_type == "RecordError"
    assert "letters" in failure.message
    assert lab.exit_code == 5


def test_an_output_that_is_not_there_says_what_to_do(lab: Lab) -> None:
    with pytest.raises(MissingOutput, match="run it first"):
        node("a").load(root=lab.root)


@pytest.mark.parametrize("backend", ["inline", "local"])
def test_steps_nested_anywhere_reach_the_body_as_loaded_values(lab: Lab, backend: str) -> None:
    made = {name: node(name).named(name) for name in "abcdefg"}
    step = nested(
        Mixture(main=made["a"], others=(made["b"],)),
        Settings(corpus=made["c"], by_name={"d": made["d"]}),
        [made["e"]],
        (made["f"], 1),
        {"g": made["g"]},
    )
    lab.run(step, backend=backend)
    assert step.load(root=lab.root).read() == "a+b+c+d+e+f+g"
    commit = lab.commit(step)
    assert commit is not None
    assert {use.arguments: use.name for use in commit.record.inputs} == {
        ("mixture.main",): "a",
        ("mixture.others[0]",): "b",
        ("settings.corpus",): "c",
        ("settings.by_name['d']",): "d",
        ("listed[0]",): "e",
        ("pair[0]",): "f",
        ("named['g']",): "g",
    }


def test_one_input_used_twice_is_one_record(lab: Lab) -> None:
    a = node("a").named("a")
    b = node("b", (a, a)).named("b")
    lab.run(b)
    commit = lab.commit(b)
    assert commit is not None
    assert [use.arguments for use in commit.record.inputs] == [("parts[0]", "parts[1]")]
    assert b.load(root=lab.root).read() == "b(a,a)"


PATHS = """
from upath import UPath
from lab_steps import Text
from marin_pipe import StepContext, step

@step
def tree(*, ctx: StepContext) -> None:
    (ctx.output / "train" / "part").mkdir(parents=True)
    (ctx.output / "train" / "part" / "0.txt").write_text("zero")
    (ctx.output / "top.txt").write_text("top")

@step
def listing(of: UPath) -> list[str]:
    assert isinstance(of, UPath), type(of)
    if of.is_file():
        return [of.read_text()]
    return sorted(str(path.relative_to(of)) for path in of.rglob("*") if path.is_file())
"""


@pytest.mark.parametrize("backend", ["inline", "local"])
def test_a_path_inside_an_output_reaches_the_body_as_a_upath(lab: Lab, backend: str) -> None:
    module = lab.module(PATHS)
    tree = module.tree()
    steps = {
        "directory": module.listing(tree / "train").named("directory"),
        "file": module.listing(tree / "train/part" / "0.txt").named("file"),
        "all": module.listing(tree / ".").named("all"),
    }
    lab.run(steps, backend=backend)
    found = {name: step.load(root=lab.root) for name, step in steps.items()}
    assert found == {"directory": ["part/0.txt"], "file": ["zero"], "all": ["top.txt", "train/part/0.txt"]}


def test_a_path_that_the_output_does_not_hold_fails_with_what_it_holds(lab: Lab) -> None:
    module = lab.module(PATHS)
    ends = lab.run(module.listing(module.tree() / "test"))
    failure = ends["listing"].failure
    assert failure is not None
    assert "holds no 'test'" in failure.message
    assert "'top.txt', 'train/part/0.txt'" in failure.message


# --- damaged inputs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["deleted", "short", "long"])
def test_a_consumer_never_reads_a_damaged_file(lab: Lab, damage: str) -> None:
    a = node("letters").named("exp/a")
    lab.run(a)
    file = lab.output(a) / "text.txt"
    if damage == "deleted":
        file.unlink()
    else:
        file.write_text("letter" if damage == "short" else "letters!")
    lab.ran()
    ends = lab.run(node("b", (a,)).named("b"))
    assert lab.exit_code == 5
    assert lab.ran() == []
    failure = ends["b"].failure
    assert failure is not None
    assert failure.error_type == "CorruptOutput"
    assert "text.txt" in failure.message
    assert "run --force exp/a" in failure.message
    lab.run(node("b", (a,)).named("b"), selection={"force": "exp/a"})
    assert node("b", (a,)).named("b").load(root=lab.root).read() == "b(letters)"


def test_a_flipped_byte_is_found_by_digests_only(lab: Lab) -> None:
    a = node("letters").named("a")
    lab.run(a)
    (lab.output(a) / "text.txt").write_text("lettErs")
    b = node("b", (a,)).named("b")
    ends = lab.run(b, verify="digests")
    assert lab.exit_code == 5
    failure = ends["b"].failure
    assert failure is not None
    assert "text.txt" in failure.message
    assert lab.statuses(b, verify="sizes") == {"a": "cached", "b": "built"}
    assert b.load(root=lab.root).read() == "b(lettErs)"


# --- machines and order -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask", [GPU("H100", count=99), TPU("v5p-64"), CPU(10_000), CPU(1, memory="900TiB"), GPU(count=64)]
)
def test_a_machine_that_is_not_there_is_refused_before_anything_starts(lab: Lab, ask: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        lab.run([node("a").named("a"), node("b").named("exp/b").on(ask)])
    assert "step exp/b asks for what this machine does not have" in caught.value.what
    assert lab.ran() == []
    assert not Path(lab.root).exists()


def test_the_first_alternative_that_exists_is_taken(lab: Lab) -> None:
    step = node("a").on(TPU("v5p-64"), CPU(1))
    lab.run(step)
    commit = lab.commit(step)
    assert commit is not None
    assert commit.record.resources == repr(CPU(1))


def test_what_was_built_on_another_machine_is_served_here(lab: Lab) -> None:
    """A laptop reads what a cluster trained."""
    lab.run(node("a").named("a"))
    trained = node("a").named("a").on(TPU("v5p-64"))
    b = node("b", (trained,)).named("b")
    assert lab.statuses(b) == {"a": "cached", "b": "built"}


def test_a_stale_step_that_cannot_run_here_fails_alone(lab: Lab) -> None:
    def graph(salt: str = "", **where: Any):
        a = node("a", salt=salt).named("a")
        b = node("b", (a,)).named("b")
        return {"b": b.on(TPU("v5p-64")) if where else b, "c": node("c", (a,)).named("c")}

    lab.run(graph())
    ends = lab.run(graph("!", on="tpu"), selection={"force": "a"})
    assert {name: end.status for name, end in ends.items()} == {"a": "built", "b": "failed", "c": "built"}
    assert ends["b"].failure is not None
    assert "does not have" in ends["b"].failure.message
    assert lab.exit_code == 2


def test_the_longest_path_starts_first(lab: Lab) -> None:
    short = [node(f"s{i}").named(f"s{i}") for i in range(3)]
    chain = node("l0").named("l0")
    for index in range(1, 4):
        chain = node(f"l{index}", (chain,)).named(f"l{index}")
    lab.run([*short, chain])
    assert lab.ran()[0] == "l0"
    assert lab.ran() == []


def test_no_more_run_at_once_than_asked_for(lab: Lab) -> None:
    module = lab.module(
        """
        import time
        from marin_pipe import step

        @step
        def span(n: int) -> tuple[float, float]:
            begun = time.time()
            time.sleep(0.05)
            return begun, time.time()
        """
    )
    steps = [module.span(n).on(CPU(0)) for n in range(8)]
    lab.run(steps, backend="local", max_concurrent=2)
    spans = [step.load(root=lab.root) for step in steps]
    most = max(sum(begun <= moment < ended for begun, ended in spans) for moment, _ in spans)
    assert most == 2


@pytest.mark.parametrize("options", [{"max_concurrent": 0}, {"max_concurency": 2}])
def test_impossible_options_are_refused(lab: Lab, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        lab.run(node("a"), **options)


@pytest.mark.parametrize("option", [{"backend": "slurm"}, {"source": "never"}, {"verify": "maybe"}])
def test_unknown_choices_are_refused_with_those_there_are(lab: Lab, option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        lab.run(node("a"), **option)
    assert repr(next(iter(option.values()))) in str(caught.value)
    assert lab.ran() == []


# --- roots ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("lab")
def test_the_root_is_given_or_in_the_environment_or_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    step = node("a")
    run(step, backend="inline")
    assert (tmp_path / "outputs" / step.directory / "commit.json").exists()
    monkeypatch.setenv("MARIN_PIPE_ROOT", str(tmp_path / "elsewhere"))
    run(step, backend="inline")
    assert (tmp_path / "elsewhere" / step.directory / "commit.json").exists()
    run(step, backend="inline", root=tmp_path / "given")
    assert (tmp_path / "given" / step.directory / "commit.json").exists()
    assert step.load().read() == "a"
    assert step.load(root=str(tmp_path / "given")).read() == "a"


def test_a_root_in_memory_works_inline(lab: Lab) -> None:
    root = f"memory://{lab.folder.name}"
    b = node("b", (node("a").named("a"),)).named("b")
    assert run(b, root=root, backend="inline").ok
    assert b.load(root=root).read() == "b(a)"
    report = run(b, root=root, backend="inline")
    assert [end.status for end in report.steps] == ["cached", "cached"]
    assert lab.ran() == ["a", "b"]


def test_a_root_in_memory_is_refused_where_steps_run_in_processes(lab: Lab) -> None:
    with pytest.raises(ConfigurationError, match="lives in this process only"):
        run(node("a"), root="memory://x", backend="local")
    assert lab.ran() == []


def test_inline_refuses_a_process_environment(lab: Lab) -> None:
    ends = lab.run([node("a").named("a").environment({"XLA_FLAGS": "x"}), node("b").named("b")])
    assert ends["a"].failure is not None
    assert "XLA_FLAGS" in ends["a"].failure.message
    assert (ends["b"].status, lab.exit_code) == ("built", 2)


# --- seeds and equal bytes --------------------------------------------------------------------------------------------


def test_a_seed_depends_on_arguments_and_input_bytes_alone(lab: Lab) -> None:
    def seeds(*steps: Any, **options: Any) -> list[int]:
        lab.run(steps, **options)
        return [step.load(root=lab.root)[0] for step in steps]

    (plain,) = seeds(seed("x"))
    assert seeds(seed("x").named("other").source_policy("rerun")) == [plain]
    assert seeds(seed("x"), selection={"force": "*"}) == [plain]
    other_root = Lab(folder=lab.folder / "elsewhere")
    other_root.run(seed("x").named("z"))
    assert seed("x").named("z").load(root=other_root.root)[0] == plain
    assert seeds(seed("y")) != [plain]
    (fed,) = seeds(seed("x", (node("a").named("a"),)))
    (renamed,) = seeds(seed("x", (node("a").named("b"),)).named("renamed"))
    assert renamed == fed != plain
    lab.run(node("a", salt="!").named("a"), selection={"force": "a"})
    assert seeds(seed("x", (node("a").named("a"),))) != [fed]


def test_events_tell_the_story_of_a_launch(lab: Lab) -> None:
    events: list[StepEvent] = []
    b = node("b", (node("a").named("a"),)).named("b")
    lab.run({"b": b, "c": node("c", fail=True).named("c")}, on_event=events.append)
    story = [(event.name, event.kind) for event in events]
    for name, kinds in {"a": ["started", "built"], "b": ["started", "built"], "c": ["started", "failed"]}.items():
        assert [kind for found, kind in story if found == name] == kinds
    assert all(event.duration_s is not None for event in events if event.kind == "built")


def test_a_run_outside_the_main_thread_works_with_processes(lab: Lab) -> None:
    found: list[dict[str, str]] = []
    thread = threading.Thread(target=lambda: found.append(lab.statuses(node("a"), backend="local")))
    thread.start()
    thread.join()
    assert found == [{"node": "built"}]


@pytest.mark.usefixtures("lab")
def test_a_step_is_a_plain_function_too(tmp_path: Path) -> None:
    text = node.fn("a", (), ctx=StepContext.for_test(tmp_path / "one"))
    assert text.length == 1
    assert isinstance(text, Text)


@pytest.mark.parametrize("backend", ["inline", "local"])
def test_a_body_cannot_reach_the_drivers_objects(lab: Lab, backend: str) -> None:
    module = lab.module(
        """
        from marin_pipe import step

        @step
        def greedy(values: list[int]) -> int:
            values.clear()
            return len(values)
        """
    )
    values = [1, 2]
    step = module.greedy(values)
    values.append(3)
    assert step.key == module.greedy([1, 2]).key, "arguments are taken when the step is built"
    lab.run(step, backend=backend)
    assert step.bound.arguments["values"] == [1, 2]


def test_fail_fast_lets_what_runs_come_to_its_end(lab: Lab) -> None:
    module = lab.module(
        """
        import time
        from pathlib import Path
        from lab_steps import ran
        from marin_pipe import Runtime, step

        @step
        def fails(*, begun: Runtime[str]) -> int:
            while not Path(begun).exists():
                time.sleep(0.01)
            raise ValueError("no")

        @step
        def lasts(*, begun: Runtime[str]) -> int:
            Path(begun).touch()
            time.sleep(0.3)
            return 1

        @step
        def waits(n: int) -> int:
            ran("waits")
            return n
        """
    )
    begun = str(lab.folder / "begun")
    fails, lasts = (step(begun=begun).on(CPU(0)) for step in (module.fails, module.lasts))
    after = module.waits(lasts).on(CPU(0)).named("after")
    ends = lab.run([fails, lasts, after], backend="local", keep_going=False)
    assert {name: end.status for name, end in ends.items()} == {"fails": "failed", "lasts": "built", "after": "not run"}
    assert lab.ran() == []
    assert lab.exit_code == 1


def test_a_chain_of_hundreds_runs_and_is_served_without_recursion(lab: Lab) -> None:
    module = lab.module("from marin_pipe import step\n@step\ndef link(n: int, before: int = 0) -> int:\n    return n\n")
    last = module.link(0)
    for number in range(1, 200):
        last = module.link(number, last)
    lab.run(last)
    assert [end.status for end in lab.reports[-1].steps] == ["built"] * 200
    assert last.load(root=lab.root) == 199
    lab.run(last)
    assert [end.status for end in lab.reports[-1].steps] == ["cached"] * 200


def test_an_input_file_that_was_edited_since_the_graph_was_built_stops_the_step(lab: Lab) -> None:
    module = lab.module(
        """
        from marin_pipe import InputFile, step

        @step
        def size(file: InputFile) -> int:
            return len(file.path.read_text())
        """
    )
    file = lab.folder / "words.txt"
    file.write_text("one")
    step = module.size(InputFile(str(file)))
    file.write_text("three")
    ends = lab.run(step.retry(times=2))
    failure = ends["size"].failure
    assert failure is not None
    assert (failure.error_type, failure.attempts) == ("InputChanged", 1)
    assert "words.txt" in failure.message
    assert lab.commit(step) is None
