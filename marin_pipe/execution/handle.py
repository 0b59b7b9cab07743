"""Handles: `Step`, a computation asked for; `StepPath`, a path inside its output. Immutable; they run nothing."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NoReturn, TypeAlias, TypeVar

from pydantic_core import core_schema

from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.identity import compute_key
from marin_pipe.execution.layout import name_problem, step_directory
from marin_pipe.execution.resources import CPU, GPU, TPU, Resource
from marin_pipe.execution.secret import refuse_secret_text

if TYPE_CHECKING:
    from marin_pipe.execution.binding import Bound
    from marin_pipe.execution.step import StepFunction

T = TypeVar("T")
SourcePolicy = Literal["warn", "rerun", "ignore"]


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Try again after a failure: at most `times` more tries, only for errors that are instances of `on`."""

    times: int = 0
    on: tuple[type[BaseException], ...] = (Exception,)


@dataclass(frozen=True, kw_only=True)
class Pin:
    """Serve a step from `url` instead of running it."""

    url: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a step runs. None of it bears identity."""

    resources: tuple[Resource, ...] = (CPU(),)
    """Alternatives in order of preference."""
    environment: Mapping[str, str] = field(default_factory=dict)
    retry: Retry = Retry()
    timeout_s: float | None = None
    source_policy: SourcePolicy | None = None
    """None: what the launch says (`--source`, default "warn")."""
    pin: Pin | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Step(Generic[T]):
    """One call of a `@step` function, not yet run. Two handles of one name and key are one step of a graph."""

    function: "StepFunction[T]"
    bound: "Bound"
    name: str
    version: str
    key: str
    options: Options = Options()

    @property
    def directory(self) -> str:
        """Where the output lies, relative to the root: `<name>-<first 16 hex of key>`."""
        return step_directory(self.name, self.key)

    def __truediv__(self, path: str) -> "StepPath":
        """`step / "train"`: a path inside this step's output, as an argument of another step."""
        return StepPath(step=self, path=normalise_sub_path(path, step=self.name))

    def named(self, name: str) -> "Step[T]":
        """The same computation under another display name (and directory)."""
        refuse_secret_text(name, where="a name of a step")
        problem = name_problem(name)
        if problem:
            raise GraphError(f"a step cannot be named {name!r}: {problem}", next="choose another name in .named(...)")
        return replace(self, name=name)

    def on(self, *resources: Resource) -> "Step[T]":
        """Ask for a machine; several asks are alternatives in order of preference."""
        if not resources or not all(isinstance(r, CPU | GPU | TPU) for r in resources):
            raise GraphError(f"step {self.name}: .on() takes CPU, GPU or TPU asks, got {resources!r}")
        return self._with(resources=resources)

    def environment(self, variables: Mapping[str, str]) -> "Step[T]":
        """Environment variables that act at process start; the step gets a process of its own."""
        pairs: list[tuple[object, object]] = list(variables.items())
        wrong = [name for name, value in pairs if not isinstance(name, str) or not isinstance(value, str)]
        if wrong:
            raise GraphError(f"step {self.name}: .environment() takes text values; {wrong[0]!r} is not text")
        refuse_secret_text("\n".join(variables), where=f"step {self.name}: a name of an environment variable")
        return self._with(environment={**self.options.environment, **variables})

    def retry(self, *, times: int, on: tuple[type[BaseException], ...] | type[BaseException] = Exception) -> "Step[T]":
        """Try at most `times` more times after an error of the classes `on`."""
        classes: tuple[Any, ...] = on if isinstance(on, tuple) else (on,)
        if times < 0 or not all(isinstance(c, type) and issubclass(c, BaseException) for c in classes):
            raise GraphError(
                f"step {self.name}: .retry(times={times!r}, on={on!r}) takes a count and exception classes"
            )
        return self._with(retry=Retry(times=times, on=classes))

    def timeout(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> "Step[T]":
        """Stop the step after this long; a timeout is a failure."""
        total = timedelta(hours=hours, minutes=minutes, seconds=seconds).total_seconds()
        if total <= 0:
            raise GraphError(f"step {self.name}: .timeout() must be longer than 0 s, got {total} s")
        return self._with(timeout_s=total)

    def source_policy(self, policy: SourcePolicy) -> "Step[T]":
        """What to do on a hit whose source differs: "warn" (serve and say so), "rerun" or "ignore"."""
        if policy not in ("warn", "rerun", "ignore"):
            raise GraphError(f"step {self.name}: source policy {policy!r} must be 'warn', 'rerun' or 'ignore'")
        return self._with(source_policy=policy)

    def pinned_to(self, url: str, *, reason: str) -> "Step[T]":
        """Serve this step from an existing output directory instead of running it."""
        if not reason.strip():
            raise GraphError(f"step {self.name}: .pinned_to() needs a reason: it is shown in plans and records")
        refuse_secret_text(f"{url}\n{reason}", where=f"step {self.name}: its pin")
        return self._with(pin=Pin(url=url, reason=reason))

    def versioned(self, version: str) -> "Step[T]":
        """A new identity on purpose: the version enters the key."""
        given: object = version
        if not isinstance(given, str) or not given:
            raise GraphError(f"step {self.name}: .versioned({version!r}) takes a non-empty text")
        refuse_secret_text(version, where=f"step {self.name}: its version")
        key = compute_key(self.function.name, version, self.bound.canonical)
        return replace(self, version=version, key=key)

    def load(self, *, root: str | None = None) -> T:
        """The committed result, with `.path` set. Raises `MissingOutput` if there is none."""
        from marin_pipe.execution.load import load_step

        loaded: T = load_step(self, root=root)
        return loaded

    def _with(self, **changes: Any) -> "Step[T]":
        return replace(self, options=replace(self.options, **changes))

    def __canonical__(self) -> Any:
        return {"$step": self.key}

    def __repr__(self) -> str:
        return f"Step({self.directory})"

    def __str__(self) -> str:
        _has_no_value(self, "be turned into text")

    def __format__(self, spec: str) -> str:
        _has_no_value(self, "be put into a text")

    def __bool__(self) -> bool:
        _has_no_value(self, "be true or false")

    def __iter__(self) -> Iterator[Any]:
        _has_no_value(self, "be iterated over")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"step {self.__dict__.get('name', '?')} has no {name!r}: it is a handle, whose result exists only once it "
            "has run; use the result in another step, or load it with .load()"
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(cls)


@dataclass(frozen=True, eq=False, kw_only=True)
class StepPath:
    """A path inside a step's output; the body receives it as a UPath."""

    step: Step[Any]
    path: str

    def __truediv__(self, path: str) -> "StepPath":
        return StepPath(step=self.step, path=normalise_sub_path(f"{self.path}/{path}", step=self.step.name))

    def __canonical__(self) -> Any:
        return {"$step": self.step.key, "path": self.path}

    def __repr__(self) -> str:
        return f"StepPath({self.step.directory} / {self.path})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(cls)


class _StepSchema:
    """Tells pydantic what `Step` says itself: for `Step[T]` it would look at the dataclass instead."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Any) -> core_schema.CoreSchema:
        return Step.__get_pydantic_core_schema__(source, handler)


Ref: TypeAlias = T | Annotated[Step[T], _StepSchema] | StepPath
"""`corpus: Ref[Documents]` on a field of a dataclass or model: a value, or the step (or path) that makes it."""


def _has_no_value(step: Step[Any], what: str) -> NoReturn:
    raise GraphError(
        f"step {step.name} cannot {what}",
        why="it is a handle: its result exists only once it has run",
        next="pass it as an argument to another step, or load the result with .load()",
    )


def normalise_sub_path(path: str, *, step: str) -> str:
    """A relative path without "." parts; ".." and absolute paths are errors. "." is the whole output."""
    if not isinstance(path, str):
        raise GraphError(f"step {step}: `step / {path!r}` takes text")
    if path.startswith("/") or ".." in path.split("/"):
        raise GraphError(
            f"step {step}: `step / {path!r}` must stay inside the step's output",
            why='absolute paths and ".." could read files no record names',
        )
    return posixpath.normpath(path)
