"""The command line within the test's process, over the outputs of a laboratory."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from lab import Lab

from marin_pipe import Step
from marin_pipe.cli.app import dispatch
from marin_pipe.cli.failures import guarded
from marin_pipe.cli.script import Script
from marin_pipe.execution.graph import build_graph


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """`shell("ls")` is `marin-pipe ls`; `shell("ls", steps={...})` is that of an experiment with these targets."""

    lab: Lab
    capture: pytest.CaptureFixture[str]

    def __call__(self, *argv: str, steps: Mapping[str, Step[Any]] | None = None) -> Result:
        script = None
        if steps is not None:
            script = Script(name="exp", description="", build=lambda _: build_graph(steps))
        words = [*argv, "--root", self.lab.root]
        self.capture.readouterr()
        code = guarded(lambda: dispatch(words, program="marin-pipe", script=script), debug=False)
        printed = self.capture.readouterr()
        return Result(code, printed.out, printed.err)
