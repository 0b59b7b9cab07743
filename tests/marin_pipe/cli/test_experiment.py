"""Experiment scripts as users start them: real processes, real workers."""

import signal
import time
from pathlib import Path

import pytest

from marin_pipe.execution.errors import ExitCode

SCRIPT = '''"""Adds numbers.

More.
"""
from dataclasses import dataclass
from marin_pipe import Step, experiment, step

@dataclass(frozen=True)
class Config:
    n: int = 3
    """What to double."""
    fail: bool = False

@step
def double(n: int) -> int:
    return 2 * n

@step
def check(n: int, fail: bool) -> int:
    print("about to check")
    if fail:
        raise ValueError(f"cannot check {n}")
    return n

@step
def total(parts: list[int]) -> int:
    return sum(parts)

def build(config: Config) -> dict[str, Step[int]]:
    checked = check(double(config.n).named("e/double"), config.fail).named("e/check")
    return {"total": total([checked]).named("e/total")}

if __name__ == "__main__":
    experiment(build)
'''


def test_run_plan_rerun_and_override(scripts) -> None:
    scripts.write("add.py", SCRIPT)

    first = scripts.run("add.py")
    assert (first.returncode, first.stderr) == (0, "")
    lines = first.stdout.splitlines()
    assert lines[0] == f"root    {scripts.directory / 'outputs'} is new"
    assert lines[1] == "run     e/double  no output yet"
    assert lines[2].startswith("built   e/double  ")
    assert lines[-2].startswith("3 built in ")
    assert lines[-1] == "  total  (no files) 6"

    again = scripts.run("add.py", "run")
    assert again.stdout.splitlines()[0].startswith("3 cached in ")

    plan = scripts.run("add.py", "--n", "-5", "plan", "--check")
    assert plan.returncode == ExitCode.OUT_OF_DATE
    double = next(line for line in plan.stdout.splitlines() if line.startswith("e/double"))
    assert "run" in double.split()
    assert "n: 3 -> -5" in double

    labels = scripts.directory / "outputs/.marin_pipe/labels/add/latest/total.json"
    assert '"directory":"e/total-' in labels.read_text()


def test_a_failure_ends_with_what_happened_and_what_to_do(scripts) -> None:
    scripts.write("add.py", SCRIPT)
    result = scripts.run("add.py", "--fail", "--n", "4")
    assert result.returncode == ExitCode.FAILED
    ending = result.stdout[result.stdout.index("\nfailed: e/check") :]
    assert ending.count("Traceback") == result.stdout.count("ValueError: cannot check 8\n  last") == 1
    line = SCRIPT[: SCRIPT.index("raise ValueError")].count("\n") + 1
    assert f"line {line}, in check" in ending
    assert "  last log lines:\n    | about to check\n" in ending
    assert "  logs:  python add.py logs e/check --fail=true --n=4\n" in ending
    assert "  debug: python add.py run --only e/check --backend inline --fail=true --n=4\n" in ending
    assert "\nresume: python add.py run --fail=true --n=4\n" in ending
    assert "\nblocked: 1 step because of e/check (e/total)\n" in ending
    assert ending.splitlines()[-1].startswith("1 built, 1 failed, 1 blocked in ")


def test_help_lists_commands_and_config_fields(scripts) -> None:
    scripts.write("add.py", SCRIPT)
    overview = scripts.run("add.py", "--help")
    assert overview.returncode == 0
    assert "Adds numbers." in overview.stdout
    assert "  run      Run what is missing. (default)" in overview.stdout
    field = "  --n     int = 3       What to double."
    assert field in overview.stdout
    command = scripts.run("add.py", "plan", "--help")
    assert "Usage: python add.py plan" in command.stdout
    assert "--check" in command.stdout
    assert field in command.stdout


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("experiment(build)", 1),
        ('if __name__ != "__main__":\n    pass\nelse:\n    experiment(build)', 4),
        ("def main():\n    experiment(build)\nmain()", 3),
        ("import marin_pipe\nmarin_pipe.run(build(Config()))", 2),
    ],
)
def test_a_script_without_the_main_guard_is_refused(scripts, text: str, line: int) -> None:
    above = SCRIPT[: SCRIPT.index("if __name__")]
    scripts.write("bare.py", f"{above}{text}\n")
    result = scripts.run("bare.py")
    assert result.returncode != 0
    assert f"bare.py, line {above.count(chr(10)) + line}: " in result.stderr
    assert 'move the call under `if __name__ == "__main__":`' in result.stderr
    assert not (scripts.directory / "outputs").exists()


def test_an_import_of_a_script_without_the_guard_fails_and_ends_nothing(scripts) -> None:
    scripts.write("bare.py", SCRIPT[: SCRIPT.index("if __name__")] + "experiment(build)\n")
    result = scripts.run("-c", "try:\n    import bare\nexcept Exception as error:\n    print(type(error).__name__)")
    assert result.stdout == "ConfigurationError\n"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            "return len(open('missing').read())",
            "build() failed: FileNotFoundError: [Errno 2] No such file or directory",
        ),
        ("return {'a': double(1).retry(2)}", "build() failed: TypeError: Step.retry() takes 1 positional argument"),
        ("return helper(config)", "build() failed: ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_in_build_shows_the_frames_of_the_experiment_alone(scripts, body: str, error: str) -> None:
    helper = "def helper(config):\n    return 1 / 0\n\n"
    scripts.write(
        "broken.py",
        SCRIPT.replace("    checked = ", f"    {body}\n    checked = ").replace("def build", f"{helper}def build"),
    )
    for argv in ((), ("plan",), ("status", "--root", ".")):
        result = scripts.run("broken.py", *argv)
        assert result.returncode == ExitCode.USAGE
        assert result.stderr.startswith("Traceback (most recent call last):\n")
        files = [line.split('"')[1] for line in result.stderr.splitlines() if line.startswith('  File "')]
        assert {Path(file).name for file in files} == {"broken.py"}
        assert f"\nerror: {error}" in result.stderr
    assert "marin_pipe/cli" in scripts.run("broken.py", "--debug").stderr


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("pass", "error: build() returned nothing\n"),
        ("return 5", "error: build() returned int 5, which is no step\n"),
        ("return 'text'", "error: build() returned str 'text', which is no step\n"),
        ("return {'a': double}", "error: target 'a' is StepFunction, not a step\n"),
        ("return {}", "error: there is nothing to run: no steps were given\n"),
    ],
)
def test_what_build_returns_instead_of_steps_is_named(scripts, body: str, error: str) -> None:
    above, below = SCRIPT.split("    checked = ")
    scripts.write("broken.py", f"{above}    {body}\n\n{below[below.index('if __name__') :]}")
    result = scripts.run("broken.py", "plan")
    assert (result.returncode, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr.startswith(error)
    assert "Traceback" not in result.stderr


def test_defaults_that_break_the_rules_of_the_config_are_named(scripts) -> None:
    rule = '    fail: bool = False\n    def __post_init__(self):\n        assert self.n > 5, "n is too small"\n'
    scripts.write("rule.py", SCRIPT.replace("    fail: bool = False\n", rule))
    result = scripts.run("rule.py", "plan")
    assert result.returncode == ExitCode.USAGE
    assert "error: Config() failed: AssertionError: n is too small\n" in result.stderr
    assert "marin_pipe" not in result.stderr


def test_an_interrupt_while_the_script_is_imported_is_a_word(scripts) -> None:
    slow = "print('importing', flush=True)\nimport time\ntime.sleep(60)\n"
    scripts.write("slow.py", SCRIPT.replace("@dataclass", f"{slow}@dataclass", 1))
    process = scripts.start("slow.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert err == "interrupted\n"
    assert process.returncode in (-signal.SIGINT, ExitCode.INTERRUPTED)  # a shell calls both 130


def test_a_wrong_argument_names_step_and_argument(scripts) -> None:
    scripts.write("wrong.py", SCRIPT.replace("double(config.n)", "double('x')"))
    result = scripts.run("wrong.py", "plan")
    assert result.returncode == ExitCode.USAGE
    assert result.stderr.startswith("error: ")
    assert "double" in result.stderr
    assert "n" in result.stderr.split("double", 1)[1]
    assert "Traceback" not in result.stderr


def test_a_field_named_like_a_flag_is_refused_at_start(scripts) -> None:
    scripts.write("clash.py", SCRIPT.replace("fail: bool = False", "fail: bool = False\n    keep_going: bool = True"))
    result = scripts.run("clash.py", "plan")
    assert result.returncode == ExitCode.USAGE
    assert "'keep_going' of Config has the name of a flag" in result.stderr


SLOW = """import time
from marin_pipe import StepContext, experiment, step

@step
def wait(seconds: float, ctx: StepContext) -> int:
    (ctx.work / "state").write_text("half")
    print("waiting", flush=True)
    while seconds > 0 and not ctx.should_stop():
        if ctx.earlier_work:
            return 1
        time.sleep(0.02)
    raise SystemExit(3)

def build():
    return {"wait": wait(60.0)}

if __name__ == "__main__":
    experiment(build)
"""


def test_interrupt_ends_soon_and_the_next_run_resumes(scripts) -> None:
    scripts.write("slow.py", SLOW)
    process = scripts.start("slow.py")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("root    ")
    assert process.stdout.readline() == "run     wait  no output yet\n"
    wait_for(lambda: list(scripts.directory.glob("outputs/wait-*/work/*/state")))
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == ExitCode.INTERRUPTED
    assert time.monotonic() - asked < 5
    assert "stop    Ctrl-C: running steps have 3 s to save their state; again kills them now\n" in out
    assert "\ninterrupted: wait\n\nresume: python slow.py run\n" in out
    assert err == ""

    plan = scripts.run("slow.py", "plan")
    assert "resume" in plan.stdout.splitlines()[1].split()
    assert "interrupted" in plan.stdout.splitlines()[1]

    resumed = scripts.run("slow.py")
    assert resumed.returncode == 0, resumed.stdout
    assert "1 built in" in resumed.stdout


def test_a_reader_that_leaves_does_not_stop_the_steps(scripts) -> None:
    scripts.write("add.py", SCRIPT)
    process = scripts.start("add.py")
    assert process.stdout is not None
    process.stdout.close()
    with process:
        assert process.wait(timeout=30) == 141
    assert scripts.run("add.py", "plan", "--check").returncode == 0


def wait_for(condition) -> None:
    """Until the condition holds; pytest's own time limit ends a wait in vain."""
    while not condition():
        time.sleep(0.01)


def test_the_root_comes_from_the_flag_or_the_environment(scripts, tmp_path: Path, monkeypatch) -> None:
    scripts.write("add.py", SCRIPT)
    monkeypatch.setenv("MARIN_PIPE_ROOT", str(tmp_path / "by variable"))
    assert scripts.run("add.py", "--backend", "inline").returncode == 0
    assert scripts.run("add.py", "--root", "by flag", "--backend", "inline").returncode == 0
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} >= {"by variable", "by flag"}
