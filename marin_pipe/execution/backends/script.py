"""Finding a step's function in a process that is not the driver, also when the driver's script defines it."""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from marin_pipe.execution.backends.transport import Invocation
from marin_pipe.execution.errors import PipelineError
from marin_pipe.execution.step import Location, StepFunction

SCRIPT_MODULE = "__mp_main__"
"""Not "__main__", so that the script's main guard does not fire. The name is the one multiprocessing uses, so that a
pool a body starts finds the script's functions too."""

if TYPE_CHECKING:
    from importlib.machinery import SourceFileLoader


class FunctionMissing(PipelineError):
    """The module holds no such step any more."""


def find_function(invocation: Invocation) -> "StepFunction[Any]":
    """The step function of an invocation; imports its module, and the driver's script where it is referred to."""
    if invocation.main is not None:
        main = load_main(invocation.main)
    location = invocation.location
    if location.module is None:
        module = load_main(location)
    elif invocation.main is not None and location.module == invocation.main.module:
        module = main
    else:
        module = importlib.import_module(location.module)
    found: Any = module
    for part in location.qualname.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, StepFunction):
        raise FunctionMissing(
            f"{location.module or location.file} holds no step {location.qualname}",
            why=f"the name leads to {found!r} in the worker: the file was edited, or defines it only under a condition",
            next="define the step unconditionally at the top level of its file and run again",
        )
    return found


def load_main(location: Location) -> ModuleType:
    """The driver's main module under another name, loaded once; also what pickles mean by `__main__`."""
    loaded = sys.modules.get(SCRIPT_MODULE)
    if loaded is not None:
        return loaded
    module = importlib.import_module(location.module) if location.module else _load_file(location.file)
    sys.modules[SCRIPT_MODULE] = sys.modules["__main__"] = module
    return module


def _load_file(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(SCRIPT_MODULE, file)
    if spec is None or spec.loader is None:
        raise FunctionMissing(f"{file} cannot be imported", next="give the script a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    # Like a script that runs: multiprocessing then finds it by its file.
    module.__spec__ = None
    before = sys.modules["__main__"]
    sys.modules[SCRIPT_MODULE] = sys.modules["__main__"] = module
    loader: SourceFileLoader = spec.loader  # type: ignore[assignment]
    try:
        # Compiled from its source: a byte-code file beside a script, made within the second of an edit, would be stale.
        exec(loader.source_to_code(loader.get_data(file), file), module.__dict__)  # noqa: S102  # nosec B102
    except BaseException:
        del sys.modules[SCRIPT_MODULE]
        sys.modules["__main__"] = before
        raise
    return module
