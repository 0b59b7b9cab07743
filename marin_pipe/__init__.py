"""marin_pipe: language-model research as declarative experiments.

A `@step` function called in an experiment file makes a handle; `run` brings handles to committed, content-hashed
outputs and says why each step ran or did not.
"""

import importlib
from typing import TYPE_CHECKING, Any

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.handle import Ref, Step
from marin_pipe.execution.inputs import InputFile, InputFiles
from marin_pipe.execution.markers import Artifact, OmitAt, Runtime
from marin_pipe.execution.resources import CPU, GPU, TPU
from marin_pipe.execution.secret import Secret
from marin_pipe.execution.step import step

if TYPE_CHECKING:
    from marin_pipe.cli.experiment import experiment
    from marin_pipe.execution.plan import plan
    from marin_pipe.execution.run import run

__all__ = [
    "CPU",
    "GPU",
    "TPU",
    "Artifact",
    "InputFile",
    "InputFiles",
    "OmitAt",
    "Ref",
    "Runtime",
    "Secret",
    "Step",
    "StepContext",
    "experiment",
    "plan",
    "run",
    "step",
]

# What a driver needs and a worker does not, loaded when asked for: each worker process would pay for it.
_DRIVER = {
    "experiment": "marin_pipe.cli.experiment",
    "plan": "marin_pipe.execution.plan",
    "run": "marin_pipe.execution.run",
}


def __getattr__(name: str) -> Any:
    if name not in _DRIVER:
        raise AttributeError(f"module 'marin_pipe' has no attribute {name!r}")
    return getattr(importlib.import_module(_DRIVER[name]), name)
