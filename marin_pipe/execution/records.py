"""Everything the engine stores, as pydantic models. Written once per format; read with `parse`.

Times are seconds since the epoch by the writer's clock and are for display only: no decision reads them.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from marin_pipe.execution.errors import RecordError

FORMAT: Literal[1] = 1


class Model(BaseModel):
    # Built on first use: a worker needs few of them, and building all costs 15 ms of CPU.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True)


class Lease(Model):
    """`lease.json`: who works on a step. `epoch` only grows; `owner` is the holder's nonce, None when released."""

    epoch: int
    commit: int
    """Number of the commit this holder will create."""
    owner: str | None
    beat: int = 0
    """Counts up with each heartbeat, so that no two bodies are equal."""
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    pid_start: str
    """Start time of the process in the kernel's ticks: tells a reused pid from the owner."""
    ttl_s: float
    cancel: str | None = None
    """Who asked the owner to stop, and why; None if nobody did."""

    @property
    def holder(self) -> str:
        """The owner in words."""
        return f"{self.host}, pid {self.pid}" if self.host else "an unknown owner (lease.json is damaged)"


class FileEntry(Model):
    """One data file of a manifest: path relative to the data directory."""

    path: str
    size: int
    digest: str


class InputUse(Model):
    """One upstream output as it was read."""

    arguments: tuple[str, ...]
    """Where in the arguments it stood: `("corpus", "config.sources[1]")`."""
    name: str
    key: str
    directory: str
    """The step directory relative to the root, or the URL a pinned step points to."""
    commit: int
    """0 for a pinned directory that has no commit."""
    output_digest: str


class FileUse(Model):
    """One file from outside (`InputFile`, `InputFiles`) as it was when the graph was built."""

    argument: str
    path: str
    """As written by the user."""
    files: tuple[FileEntry, ...]


class SourceRecord(Model):
    """Fingerprint of the first-party code a step reaches."""

    digest: str = ""
    parts: dict[str, str] = {}
    """`"package.module.function"` -> digest of its normalised syntax tree."""
    untraced: tuple[str, ...] = ()
    """Calls and references that could not be followed, as `"module.function: getattr(x, name)"`."""


class Provenance(Model):
    """Where and by whom a step ran. None of it bears identity."""

    run: str
    """Id of the launch."""
    experiment: str | None
    host: str
    user: str
    argv: tuple[str, ...]
    python: str
    git_commit: str | None
    git_dirty_digest: str | None
    """sha256 of `git diff HEAD` and the untracked files' names and contents; None for a clean tree."""
    packages: str
    """sha256 of the installed packages' names and versions: `packages/<digest>.json` holds them, once for all records
    that share them (thousands of steps of one launch do)."""


class Usage(Model):
    started: float
    ended: float
    duration_s: float
    cpu_s: float
    peak_memory_bytes: int


class Record(Model):
    """What a committed output is: its identity with all values, what it was made from, and how."""

    name: str
    function: str
    """The function's identity name."""
    module: str
    version: str
    key: str
    arguments: dict[str, Any]
    """Canonical form of the identity-bearing arguments."""
    runtime: dict[str, str] = {}
    """`Runtime` arguments as text; no identity."""
    modules: dict[str, str] = {}
    """Module of each first-party function and class that the arguments name; no identity."""
    secrets: tuple[str, ...] = ()
    inputs: tuple[InputUse, ...] = ()
    files: tuple[FileUse, ...] = ()
    source: SourceRecord = SourceRecord()
    build_key: str
    result: Any = None
    result_type: str | None = None
    resources: str
    environment: dict[str, str] = {}
    attempt_count: int = 1
    resumed_sources: tuple[str, ...] = ()
    """Digests of other sources that made the state the step went on from: its bytes are not this source's alone."""
    usage: Usage | None = None
    """None on an adopted output: nothing ran."""
    provenance: Provenance


class Built(Model):
    """A commit made by running the step."""

    kind: Literal["built"] = "built"
    format: Literal[1] = FORMAT
    number: int
    attempt: str
    owner: str
    """Full nonce of the lease it was made under: how a writer knows its own commit after a lost reply."""
    output_digest: str
    record: Record
    manifest: tuple[FileEntry, ...]

    @property
    def data(self) -> str:
        """Data directory relative to the step directory."""
        return f"attempts/{self.attempt}/output"


class Adopted(Model):
    """A commit that names another step's output instead of running."""

    kind: Literal["adopted"] = "adopted"
    format: Literal[1] = FORMAT
    number: int
    owner: str
    output_digest: str
    record: Record
    manifest: tuple[FileEntry, ...]
    source_directory: str
    """Step directory the data belongs to, relative to the root."""
    source_commit: int
    source_data: str
    """Data directory relative to the root."""
    source_inputs: tuple[InputUse, ...]
    reason: str


class Withdrawn(Model):
    """A tombstone: from this commit on nothing is current (undo of an adoption, or before deletion by gc)."""

    kind: Literal["withdrawn"] = "withdrawn"
    format: Literal[1] = FORMAT
    number: int
    owner: str
    reason: str


Commit = Annotated[Built | Adopted | Withdrawn, Field(discriminator="kind")]
Served = Built | Adopted

Outcome = Literal["failed", "interrupted", "preempted", "lost"]


class Ended(Model):
    """`ended.json`: how a try without a commit ended."""

    outcome: Outcome
    attempt: str
    attempt_count: int
    error_type: str
    message: str
    traceback: str
    """User frames first."""
    log_tail: tuple[str, ...]
    host: str
    pid: int
    started: float
    ended: float
    peak_memory_bytes: int
    run: str


class WorkMark(Model):
    """`work.json` of an attempt that used `ctx.work`: which computation its state belongs to."""

    seed: int
    sources: tuple[str, ...]
    """Digests of the sources that made the state: the attempt's own, and those of the state it went on from."""


class Progress(Model):
    """`progress.json`, overwritten as the step goes."""

    done: float
    total: float | None
    unit: str
    updated: float
    message: str = ""


class LaunchStep(Model):
    name: str
    key: str
    directory: str
    function: str
    inputs: tuple[str, ...]
    """Directories of the upstream steps."""
    pin: str | None = None
    """The URL it was pinned to: kept like an output that the launch made."""


class Launch(Model):
    """`experiments/<name>/<run>.json`: what a launch asked for."""

    format: Literal[1] = FORMAT
    run: str
    experiment: str
    created: float
    description: str = ""
    config: Any = None
    targets: dict[str, str]
    """Dict key of the experiment -> step directory."""
    steps: tuple[LaunchStep, ...]
    provenance: Provenance


class BuildPointer(Model):
    """`builds/<build key>.json`: the commit that this build key made."""

    directory: str
    commit: int
    output_digest: str


class Label(Model):
    """`labels/<label>.json`: a human name for an output."""

    label: str
    directory: str
    commit: int | None = None
    nonce: str
    """Makes no two bodies equal."""
    created: float
    user: str


M = TypeVar("M")
_adapters: dict[Any, TypeAdapter[Any]] = {}


def encode(model: BaseModel) -> bytes:
    """UTF-8 JSON of a record."""
    return model.model_dump_json().encode()


def is_torn(data: bytes) -> bool:
    """Whether a power failure left an object's name without its bytes. Only objects that are not synced may be."""
    return not data.strip(b"\0")


def parse(kind: Any, data: bytes, *, key: str, fix: str = "restore it, or move it out of the root") -> Any:
    """Validate stored bytes as `kind`; `RecordError` names the object and the field, and says how to go on."""
    adapter = _adapters.get(kind)
    if adapter is None:
        adapter = _adapters[kind] = TypeAdapter(kind)
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "(whole record)"
        raise RecordError(
            f"{key}: the stored record does not validate: {field}: {first['msg']}",
            why="it was written by another version of marin_pipe, or changed after it was written",
            next=fix,
        ) from error
