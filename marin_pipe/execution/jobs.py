"""A step that must run, and what may come of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from marin_pipe.execution.backends.base import Failed, LoadedInput
from marin_pipe.execution.handle import SourcePolicy, Step
from marin_pipe.execution.lease import Taken
from marin_pipe.execution.observe import Observation
from marin_pipe.execution.records import InputUse
from marin_pipe.execution.resources import Resource
from marin_pipe.execution.source import Fingerprint


@dataclass(frozen=True, kw_only=True)
class Job:
    """A step that must run, with everything known about it."""

    step: Step[object]
    directory: str
    seen: Observation
    """The step when the driver last looked; a higher commit than this one's is served instead of running."""
    inputs: tuple[InputUse, ...]
    loaded: Mapping[str, LoadedInput]
    """Inputs by step directory."""
    build_key: str
    seed: int
    source: Fingerprint
    resource: Resource
    devices: tuple[int, ...] = ()
    policy: SourcePolicy = "warn"
    may_adopt: bool = True
    fresh: bool = False
    """Forced: goes on from nothing that earlier launches left."""
    verify: str = "sizes"
    expired_lease: str | None = None
    """Version of a lease whose owner is believed dead."""


@dataclass(frozen=True, kw_only=True)
class Committed:
    """The step has a commit of ours: built or adopted."""

    observation: Observation
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class Superseded:
    """Somebody else committed; theirs is looked at again."""

    observation: Observation


@dataclass(frozen=True, kw_only=True)
class Occupied:
    """Somebody else works on the step."""

    taken: Taken


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """The step ended without a commit."""

    failure: Failed
    attempt: str | None
    """None if the step did not come to an attempt."""
    attempts: int
    log_tail: tuple[str, ...]


Result = Committed | Superseded | Occupied | Unfinished
