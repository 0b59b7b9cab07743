"""`@step`: turns a plain function into one whose calls build `Step` handles."""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_type_hints, overload

from marin_pipe.execution.binding import bind
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.handle import Step
from marin_pipe.execution.identity import compute_key
from marin_pipe.execution.layout import name_problem
from marin_pipe.execution.returns import check_returns
from marin_pipe.execution.secret import refuse_secret_text
from marin_pipe.execution.source_loaded import note_imports

T = TypeVar("T")


@dataclass(frozen=True)
class Location:
    """Where a worker finds a function: an importable module, or the script `file` it was started from."""

    module: str | None
    file: str
    qualname: str


class StepFunction(Generic[T]):
    """A `@step` function. Calling it builds a `Step`; `.fn` is the plain function."""

    def __init__(self, fn: Callable[..., T], *, name: str | None, version: str):
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = name or fn.__name__
        self.version = version
        refuse_secret_text(f"{self.name}\n{version}", where=f"the name or version of {fn.__qualname__}")
        self.signature = inspect.signature(fn)
        note_imports(fn.__module__)

    @property
    def module(self) -> str:
        return self.fn.__module__

    @property
    def module_name(self) -> str:
        """The module's name for records: a script's file name without ".py" instead of `__main__`."""
        if self.module != "__main__":
            return self.module
        location = self.location
        return location.module or os.path.splitext(os.path.basename(location.file))[0]

    @property
    def qualname(self) -> str:
        return self.fn.__qualname__

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """Resolved annotations, with their markers."""
        try:
            return get_type_hints(self.fn, include_extras=True)
        except NameError as error:
            raise GraphError(
                f"step {self.name}: an annotation of {self.qualname} cannot be resolved: {error}",
                next="import the name at module level, not only under TYPE_CHECKING",
            ) from error

    @functools.cached_property
    def returns(self) -> Any:
        """The return annotation, `Any` if there is none; refuses one that no result could satisfy."""
        annotation = self.hints.get("return", Any)
        check_returns(self.fn, annotation, step=self.name)
        return annotation

    @functools.cached_property
    def location(self) -> Location:
        """How workers import the function; refuses what cannot travel."""
        return locate(self.fn, what=f"step {self.name}")

    def __call__(self, /, *args: Any, **kwargs: Any) -> Step[T]:
        self.location  # noqa: B018  refuses lambdas and closures when the graph is built
        self.returns  # noqa: B018  refuses results that cannot be stored
        problem = name_problem(self.name)
        if problem:
            raise GraphError(
                f"{self.qualname}: {self.name!r} cannot name a step: {problem}", next="use @step(name=...)"
            )
        bound = bind(self, args, kwargs)
        key = compute_key(self.name, self.version, bound.canonical)
        return Step(function=self, bound=bound, name=self.name, version=self.version, key=key)

    def __repr__(self) -> str:
        return f"<step {self.module}.{self.qualname}>"

    def __reduce__(self) -> str:
        # Pickled by name, like any function: the module's attribute is this object.
        return self.qualname


def locate(fn: Any, *, what: str) -> Location:
    """The module or script that holds `fn` at its top level; GraphError for what another process cannot find."""
    qualname = fn.__qualname__
    if "<lambda>" in qualname or "<locals>" in qualname:
        kind = "a lambda" if "<lambda>" in qualname else "defined inside another function"
        raise GraphError(
            f"{what}: {qualname} is {kind}",
            why="workers import functions by name, so it must stand at the top level of a module or script",
            next="move it to the top level of its file and pass what it captured as arguments",
        )
    module = sys.modules.get(fn.__module__)
    if fn.__module__ == "__main__":
        spec = getattr(module, "__spec__", None)
        file = getattr(module, "__file__", None)
        if file is None:
            raise GraphError(
                f"{what}: {qualname} was defined in a notebook cell or an interactive session",
                why="workers import functions from files",
                next="move it to a .py file and import it",
            )
        return Location(module=spec.name if spec else None, file=os.path.abspath(file), qualname=qualname)
    return Location(module=fn.__module__, file=getattr(module, "__file__", "") or "", qualname=qualname)


@overload
def step(fn: Callable[..., T]) -> StepFunction[T]: ...
@overload
def step(*, name: str | None = None, version: str = "1") -> Callable[[Callable[..., T]], StepFunction[T]]: ...


def step(fn: Callable[..., T] | None = None, *, name: str | None = None, version: str = "1") -> Any:
    """Make a function a step.

    Args:
        fn: a function at the top level of a module or script.
        name: identity name; by default the function's own. Two functions of one graph may not share it.
        version: enters the key; raise it to give a changed function a new identity.
    """
    if fn is not None:
        return StepFunction(fn, name=None, version="1")
    return lambda function: StepFunction(function, name=name, version=version)
