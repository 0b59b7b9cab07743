"""What `plan` says: actions, reasons, and that it writes nothing."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from lab import Lab
from lab_steps import node
from marin_storage import open_store

from marin_pipe import InputFile, InputFiles
from marin_pipe.execution.lease import Held, LeaseTimes, acquire, release
from marin_pipe.execution.observe import NOTHING
from marin_pipe.execution.plan import plan
from marin_pipe.execution.selection import Selection

FOUR_LEVELS = """
from lab_steps import Text, ran, write
from marin_pipe import StepContext, step

@step
def fetch(url: str, *, limit: int = 10, ctx: StepContext) -> Text:
    ran("fetch")
    return write(ctx, url * limit)

@step
def clean(text: Text, *, lower: bool = True, ctx: StepContext) -> Text:
    ran("clean")
    return write(ctx, f"{text.read()} {lower}")

@step
def tokenize(text: Text, *, vocabulary: int = 256, ctx: StepContext) -> Text:
    ran("tokenize")
    return write(ctx, f"{text.read()} {vocabulary}")

@step
def train(tokens: Text, *, lr: float = 1e-3, ctx: StepContext) -> Text:
    ran("train")
    return write(ctx, f"{tokens.read()} {lr}")

def build(limit=10, lower=True, vocabulary=256, lr=1e-3):
    text = clean(fetch("x", limit=limit), lower=lower)
    return {"model": train(tokenize(text, vocabulary=vocabulary), lr=lr)}
"""


@pytest.mark.parametrize(
    ("change", "root", "reason", "downstream"),
    [
        ({"lr": 0.1}, "train", "lr: 0.001 -> 0.1", []),
        ({"vocabulary": 512}, "tokenize", "vocabulary: 256 -> 512", ["train"]),
        ({"lower": False}, "clean", "lower: True -> False", ["tokenize", "train"]),
        ({"limit": 3}, "fetch", "limit: 10 -> 3", ["clean", "tokenize", "train"]),
    ],
)
def test_one_changed_argument_is_named_once_at_its_step_and_pointed_to_downstream(
    lab: Lab, change: dict[str, object], root: str, reason: str, downstream: list[str]
) -> None:
    module = lab.module(FOUR_LEVELS)
    old = module.build()
    lab.run(old)
    lab.ran()
    new = module.build(**change)
    assert new["model"].directory != old["model"].directory
    rows = lab.plan(new)
    order = ["fetch", "clean", "tokenize", "train"]
    assert [row.name for row in rows.values()] == order
    assert rows[root].why.startswith(reason + " (against ")
    for name in order:
        row = rows[name]
        if name in downstream:
            assert (row.action, row.why) == ("run", f"because of {order[order.index(name) - 1]}")
        elif name != root:
            assert (row.action, row.why) == ("cached", "")
    lab.run(new)
    assert lab.ran() == [root, *downstream]


def test_the_reason_is_still_told_when_the_changed_upstream_was_built_already(lab: Lab) -> None:
    module = lab.module(FOUR_LEVELS)
    lab.run(module.build())
    new = module.build(limit=3)
    lab.run(new, selection={"upto": "fetch"})
    rows = lab.plan(new)
    assert rows["fetch"].action == "cached"
    assert rows["clean"].why == "because of fetch"


def test_two_changes_at_one_step_are_both_named(lab: Lab) -> None:
    lab.run(node("a", salt="").named("x"))
    module = lab.module(FOUR_LEVELS)
    lab.run(module.fetch("u", limit=1))
    assert lab.plan(module.fetch("v", limit=2))["fetch"].why.startswith('url: "u" -> "v"; limit: 1 -> 2 (against ')


def test_a_new_step_says_that_there_is_no_output_yet(lab: Lab) -> None:
    rows = lab.plan(node("b", (node("a").named("a"),)).named("b"))
    assert rows["a"].why == "no output yet"
    assert rows["b"].why == "no output yet; needs a"


def test_a_new_version_is_a_reason(lab: Lab) -> None:
    lab.run(node("a"))
    assert lab.plan(node("a").versioned("2"))["node"].why.startswith('version: "1" -> "2" (against ')


FILES = """
from lab_steps import ran
from marin_pipe import InputFile, InputFiles, step

@step
def size(file: InputFile) -> int:
    ran("size")
    return len(file.path.read_text())

@step
def sizes(files: InputFiles) -> dict[str, int]:
    ran("sizes")
    return {path.name: len(path.read_text()) for path in files.paths}
"""


def test_an_edited_input_file_gives_a_new_key_and_is_named(lab: Lab) -> None:
    module = lab.module(FILES)
    file = lab.folder / "words.txt"
    file.write_text("one")
    old = module.size(InputFile(str(file)))
    lab.run(old)
    assert lab.actions(module.size(InputFile(str(file)))) == {"size": "cached"}
    file.write_text("three")
    new = module.size(InputFile(str(file)))
    assert new.key != old.key
    why = lab.plan(new)["size"].why
    assert why.startswith("file['words.txt']: 3 bytes, sha256:")
    assert " -> 5 bytes, sha256:" in why
    lab.run(new)
    assert new.load(root=lab.root) == 5
    file.write_text("one")
    assert lab.actions(module.size(InputFile(str(file)))) == {"size": "cached"}


def test_files_that_come_and_go_below_a_glob_are_named(lab: Lab) -> None:
    module = lab.module(FILES)
    data = lab.folder / "data"
    data.mkdir()
    (data / "a.txt").write_text("a")

    def ask():
        return module.sizes(InputFiles(str(data / "*.txt")))

    lab.run(ask())
    (data / "b.txt").write_text("bb")
    why = lab.plan(ask())["sizes"].why
    assert why.startswith("files['b.txt']: (absent) -> 2 bytes, ")
    lab.run(ask())
    (data / "a.txt").unlink()
    why = lab.plan(ask())["sizes"].why
    assert "files['a.txt']: 1 bytes, " in why
    assert "-> (absent)" in why
    (data / "notes.md").write_text("does not match")
    (data / "a.txt").write_text("a")
    assert lab.actions(ask()) == {"sizes": "cached"}


def test_the_same_name_with_another_argument_never_gets_the_others_data(lab: Lab) -> None:
    lab.run(node("a").named("exp/it"))
    other = node("b").named("exp/it")
    lab.run(other)
    assert node("a").named("exp/it").load(root=lab.root).read() == "a"
    assert other.load(root=lab.root).read() == "b"


@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="needs another user")
def test_a_plan_and_a_cached_run_work_on_a_root_that_cannot_be_written(lab: Lab) -> None:
    """As an unprivileged user, so that the kernel refuses every write."""
    if os.geteuid() != 0:
        pytest.skip("needs to become another user")
    module = lab.module(FOUR_LEVELS)
    lab.run(module.build())
    script = (
        "import os, sys; root, folder = sys.argv[1:3]; sys.path[:0] = sys.argv[3:]; sys.path.insert(0, folder); "
        "import exp, marin_pipe; from marin_pipe.execution.run import run; "
        "os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534); os.environ['HOME'] = '/nonexistent'; "
        "rows = marin_pipe.plan(exp.build(lr=0.5), root=root).steps; print([r.action for r in rows]); "
        "report = run(exp.build(), root=root, backend='inline'); "
        "print(report.ok, report.run, [s.status for s in report.steps])"
    )
    for path in [lab.folder, *lab.folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in lab.folder.parents:
        # The folders of pytest and of its worker, which are for their owner only.
        if path.stat().st_uid == 0 and Path(tempfile.gettempdir()) in path.parents:
            path.chmod(0o755)
    before = lab.snapshot()
    done = subprocess.run(
        [sys.executable, "-c", script, lab.root, str(lab.folder), *sys.path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['cached', 'cached', 'cached', 'run']",
        "True None ['cached', 'cached', 'cached', 'cached']",
    ]
    assert lab.snapshot() == before


def test_a_plan_of_a_root_that_does_not_exist_does_not_make_it(lab: Lab) -> None:
    assert lab.actions(node("a")) == {"node": "run"}
    assert not Path(lab.root).exists()


RESUMABLE = """
from lab_steps import ran
from marin_pipe import Runtime, StepContext, step

@step
def train(steps: int, *, fail: Runtime[bool] = False, ctx: StepContext) -> int:
    ran("train")
    done = int((ctx.earlier_work[0] / "done").read_text()) if ctx.earlier_work else 0
    (ctx.work / "done").write_text(str(done + 1))
    if fail:
        raise RuntimeError("power cut\\nsecond line")
    return done
"""


def test_a_step_that_left_resumable_state_is_resumed(lab: Lab) -> None:
    module = lab.module(RESUMABLE)
    for count in (1, 2):
        lab.run(module.train(5, fail=True))
        row = lab.plan(module.train(5))["train"]
        assert row.action == "resume"
        assert row.why.startswith(f"attempt {count:06d}-")
        assert row.why.endswith("failed: RuntimeError: power cut")
    step = module.train(5)
    assert lab.statuses(step) == {"train": "built"}
    assert step.load(root=lab.root) == 2


def test_a_step_that_failed_without_state_runs_again_and_says_how_it_failed(lab: Lab) -> None:
    lab.run(node("a", fail=True))
    row = lab.plan(node("a"))["node"]
    assert row.action == "run"
    assert row.why.endswith("failed: RuntimeError: a was told to fail")


def test_a_step_of_a_live_owner_is_waited_for(lab: Lab) -> None:
    step = node("a").named("a")
    held = acquire(open_store(lab.root), step.directory, seen=NOTHING, times=LeaseTimes())
    assert isinstance(held, Held)
    rows = lab.plan(node("b", (step,)).named("b"))
    assert rows["a"].action == "wait"
    assert f"pid {os.getpid()} works on it" in rows["a"].why
    assert rows["b"].action == "run"
    release(open_store(lab.root), held)
    assert lab.actions(step) == {"a": "run"}


def test_an_owner_that_died_on_this_machine_is_not_waited_for(lab: Lab) -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[3:]; from marin_storage import open_store; "
        "from marin_pipe.execution.lease import *; from marin_pipe.execution.observe import NOTHING; "
        "print(type(acquire(open_store(sys.argv[1]), sys.argv[2], seen=NOTHING, times=LeaseTimes())).__name__)"
    )
    step = node("a").named("a")
    done = subprocess.run(
        [sys.executable, "-c", script, lab.root, step.directory, *sys.path], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "Held"
    assert lab.actions(step) == {"a": "run"}
    assert lab.statuses(step) == {"a": "built"}


def test_what_was_built_elsewhere_is_adopted(lab: Lab) -> None:
    lab.run(node("a").named("a"))
    row = lab.plan(node("a").named("b"))["b"]
    assert row.action == "adopt"
    assert row.why.endswith(f"the same was built as {node('a').named('a').directory}")


def test_the_second_name_of_one_computation_is_adopted_from_the_first(lab: Lab) -> None:
    rows = lab.plan([node("a").named("x"), node("a").named("y")])
    assert (rows["x"].action, rows["y"].action) == ("run", "adopt")
    assert rows["y"].why.endswith("the same computation as x")


def test_a_step_that_is_not_selected_blocks_what_needs_it(lab: Lab) -> None:
    a = node("a").named("a")
    b = node("b", (a,)).named("b")
    c = node("c", (b,)).named("c")
    rows = lab.plan(c, selection={"only": "c"})
    assert (rows["b"].action, rows["b"].why) == ("blocked", "not selected to run (no output yet)")
    assert (rows["c"].action, rows["c"].why) == ("blocked", "because of b")
    assert "a" not in rows


def test_a_forced_step_whose_input_is_blocked_is_blocked(lab: Lab) -> None:
    a = node("a").named("a")
    b = node("b", (a,)).named("b")
    lab.run(b)
    lab.delete(a)
    selection = {"only": "b", "force": "b"}
    assert lab.actions(b, selection=selection) == {"a": "blocked", "b": "blocked"}
    assert lab.statuses(b, selection=selection) == {"a": "blocked", "b": "blocked"}


def test_what_depends_on_bytes_says_so(lab: Lab) -> None:
    b = node("b", (node("a").named("a"),)).named("b")
    lab.run(b)
    row = lab.plan(b, selection={"force": "a"})["b"]
    assert (row.action, row.why) == ("run", "because of a (served if its output comes out equal)")


def test_a_missing_input_that_is_needed_only_perhaps_says_for_whom(lab: Lab) -> None:
    a, x = node("a").named("a"), node("x").named("x")
    b = node("b", (a, x)).named("b")
    lab.run(b)
    lab.delete(x)
    row = lab.plan(b, selection={"force": "a"})["x"]
    assert (row.action, row.why) == ("run", "only if b runs: no output yet")
    lab.ran()
    lab.run(b, selection={"force": "a"})
    assert lab.ran() == ["a"], "a came out equal"


def test_a_plan_tells_the_time_of_the_last_build(lab: Lab) -> None:
    module = lab.module(FOUR_LEVELS)
    lab.run(module.build())
    lab_commit = lab.commit(module.fetch("x"))
    assert lab_commit is not None
    assert lab_commit.record.usage is not None
    assert lab.plan(module.build(limit=2))["fetch"].expected_s == lab_commit.record.usage.duration_s


def test_up_to_date_and_exit_codes(lab: Lab) -> None:
    assert plan(node("a"), root=lab.root).exit_code == 3
    lab.run(node("a"))
    after = plan(node("a"), root=lab.root)
    assert after.up_to_date
    assert after.exit_code == 0
    assert plan(node("a"), root=lab.root, selection=Selection(force=("node",))).exit_code == 3


def test_a_chain_of_thousands_of_steps_is_built_and_planned_without_recursion(lab: Lab) -> None:
    module = lab.module(
        """
        from marin_pipe import step

        @step
        def link(number: int, before: int = 0) -> int:
            return number
        """
    )
    step = module.link(0)
    for number in range(1, 10_000):
        step = module.link(number, step)
    begun = time.process_time()
    rows = plan(step, root=lab.root).steps
    assert len(rows) == 10_000
    assert [row.directory for row in rows][-1] == step.directory
    assert time.process_time() - begun < 10
