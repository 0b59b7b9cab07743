"""Several drivers bring one step to a commit: the engine's own lease and attempt code over a store in memory, with
crashes, lost replies and refusals at any mutation, in an order of storage calls drawn from a seed.

The clock is an adversary: whoever finds the lease taken may believe at once that its owner is dead.
"""

import hashlib
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from faults import Fault, FaultyBackend, Killed
from interleaving import Interleaving
from marin_storage import Backend, RetryPolicy, Store
from marin_storage.memory import MemoryBackend

from marin_pipe import CPU, Step, step
from marin_pipe.execution.attempt import Attempts, AttemptSettings
from marin_pipe.execution.backends.base import Completed, Control, Failed, LogSink, Task
from marin_pipe.execution.jobs import Committed, Job, Occupied, Superseded
from marin_pipe.execution.keeper import Callbacks, Holding, Keeper
from marin_pipe.execution.layout import attempt_directory, attempt_name, commit_number
from marin_pipe.execution.lease import Held, LeaseTimes
from marin_pipe.execution.observe import NOTHING, Observation, data_directory, observe
from marin_pipe.execution.records import Commit, FileEntry, Lease, Provenance, Served, Usage, Withdrawn, parse
from marin_pipe.execution.secret import Redactor
from marin_pipe.execution.source import Fingerprint

_numbers = itertools.count()
USAGE = Usage(started=0.0, ended=0.0, duration_s=0.0, cpu_s=0.0, peak_memory_bytes=0)
PROVENANCE = Provenance(
    run="run",
    experiment=None,
    host="host",
    user="user",
    argv=(),
    python="3",
    git_commit=None,
    git_dirty_digest=None,
    packages="",
)


@step
def modelled() -> None:
    """Never called: the model's own bodies take its place."""


STEP: Step[Any] = modelled().retry(times=1)
DIRECTORY = STEP.directory


class History(MemoryBackend):
    """A store in memory that remembers what became of the lease and of the commits."""

    def __init__(self) -> None:
        super().__init__(f"protocol-model-{next(_numbers)}")
        self.leases: list[Lease] = []
        self.commits: list[Commit] = []

    def create(self, key: str, data: bytes, *, durable: bool) -> str:
        version = super().create(key, data, durable=durable)
        self._note(key, data)
        return version

    def replace(self, key: str, data: bytes, *, version: str, durable: bool) -> str:
        replaced = super().replace(key, data, version=version, durable=durable)
        self._note(key, data)
        return replaced

    def write(self, key: str, data: bytes) -> str:
        version = super().write(key, data)
        self._note(key, data)
        return version

    def _note(self, key: str, data: bytes) -> None:
        name = key.rpartition("/")[2]
        if name == "lease.json":
            self.leases.append(parse(Lease, data, key=key))
        elif commit_number(name) is not None:
            self.commits.append(parse(Commit, data, key=key))


class _Pausing:
    """Lets the others go on before each call."""

    def __init__(self, inner: Backend, pause: Callable[[], None]):
        self._inner, self._pause = inner, pause

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def paused(*args: Any, **kwargs: Any) -> Any:
            self._pause()
            return value(*args, **kwargs)

        return paused


class _ByHand(Keeper):
    """A keeper whose beats are the body's to make."""

    holding: Holding

    def hold(self, held: Held, callbacks: Callbacks) -> Holding:
        self.holding = Holding(self, held, callbacks)
        return self.holding


@dataclass(kw_only=True)
class _Body:
    """Beats, writes two files that name the attempt, and sometimes fails for a reason that may pass."""

    store: Store
    keeper: _ByHand
    rng: random.Random
    started: list[str]
    failing: float
    concurrency: int = 1
    in_caller_thread: bool = True

    def execute(self, task: Task, *, log: LogSink, control: Control) -> Completed | Failed:
        del log
        self.started.append(task.attempt)
        output = f"{attempt_directory(task.directory, task.attempt)}/output"
        files = {}
        for name in ("data", "more/data"):
            if self.rng.random() < 0.5:
                self.keeper.holding.beat()
            if control.stopped is not None:
                return _failed("lost", retryable=False)
            data = f"{task.attempt} {name} {self.rng.random()}".encode()
            self.store.write(f"{output}/{name}", data)
            files[name] = data
        if self.rng.random() < self.failing:
            return _failed("failed", retryable=True)
        manifest = tuple(FileEntry(path=name, size=len(data), digest=_digest(data)) for name, data in files.items())
        return Completed(result=None, result_type=None, manifest=manifest, usage=USAGE)

    def close(self) -> None:
        """Nothing was started."""


def _failed(outcome: Any, *, retryable: bool) -> Failed:
    return Failed(
        outcome=outcome,
        error_type="Failure",
        message="injected",
        traceback="",
        retryable=retryable,
        exit_code=1,
        usage=USAGE,
    )


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Dangers:
    """What may happen in a schedule. All numbers but `drivers` are probabilities."""

    drivers: int = 3
    disbelief: float = 0.5
    """Of believing that the owner of a lease is dead, whenever one is met."""
    faults: float = 0.6
    """Of one to three faults in a driver's life."""
    failing: float = 0.1
    """Of a body's failure."""
    forced: float = 0.2
    """Of a driver that wants a new commit whatever is there."""
    adopting: bool = True
    """Whether a driver that has the lease looks for equal work, which its predecessor may have committed."""


CALM = Dangers(disbelief=0.0, faults=0.0, failing=0.0, forced=0.0)
"""Nothing goes wrong: then the work is done once."""

DEADLY = Dangers()
FAULTS = tuple(Fault)


@dataclass(kw_only=True)
class Outcome:
    """What a schedule came to."""

    backend: History
    started: list[str]
    """Attempts whose bodies started."""
    served: list[Served]
    """What each driver that came to an end took for the output."""
    built: int
    crashes: int
    forced: int
    """Launches that wanted a new commit."""


@dataclass(kw_only=True)
class _World:
    rng: random.Random
    dangers: Dangers
    turns: Interleaving
    backend: History = field(default_factory=History)
    started: list[str] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    built: int = 0
    crashes: int = 0
    forced: int = 0

    def driver(self) -> None:
        """A user at a prompt: what crashes or fails is started again."""
        lives = 4
        while lives:
            lives -= 1
            faults: dict[int, Fault] = {}
            if lives and self.rng.random() < self.dangers.faults:
                faults = {self.rng.randint(1, 12): self.rng.choice(FAULTS) for _ in range(self.rng.randint(1, 3))}
            try:
                if self.launch(
                    faults, forced=self.rng.random() < self.dangers.forced, disbelief=self.dangers.disbelief
                ):
                    return
            except Killed:
                self.crashes += 1

    def launch(self, faults: dict[int, Fault], *, forced: bool, disbelief: float) -> bool:
        """What a driver does about the step. Returns whether it came to an end without an error."""
        self.forced += forced
        inner = cast(Backend, _Pausing(self.backend, self.turns.pause))
        store = Store(FaultyBackend(inner, faults), retry=_no_wait())
        keeper = _ByHand(store, LeaseTimes())
        attempts = Attempts(
            store=store,
            backend=_Body(store=store, keeper=keeper, rng=self.rng, started=self.started, failing=self.dangers.failing),
            keeper=keeper,
            provenance=PROVENANCE,
            redactor=Redactor({}),
            settings=AttemptSettings(backoff_s=0.0),
        )
        seen = first = observe(store, DIRECTORY)
        expired: str | None = None
        while True:
            if seen.commit is not None and (not forced or seen.highest > first.highest):
                self.served.append(seen.commit)
                return True
            result = attempts.run(
                _job(seen, may_adopt=not forced and self.dangers.adopting, expired=expired), Control(), lambda *_: None
            )
            if isinstance(result, Committed):
                self.built += 1
                seen = result.observation
            elif isinstance(result, Superseded):
                seen = result.observation
            elif isinstance(result, Occupied):
                self.turns.pause()
                if self.rng.random() < disbelief:
                    expired = result.taken.version
            else:
                return False


def play(seed: int, dangers: Dangers = DEADLY) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    turns = Interleaving(rng)
    world = _World(rng=rng, dangers=dangers, turns=turns)
    weights = [rng.choice((1.0, 1.0, 0.02)) for _ in range(dangers.drivers)]
    turns.run([world.driver] * dangers.drivers, weights=weights)
    # Whatever the others left behind: one more driver comes to an end, with nobody's help.
    assert world.launch({}, forced=False, disbelief=1.0)
    return _outcome(world)


def play_lost_reply(n: int) -> Outcome:
    """One driver, alone, which believes nobody dead and loses the reply to its n-th mutation."""
    rng = random.Random(n)
    turns = Interleaving(rng)
    world = _World(rng=rng, dangers=CALM, turns=turns)
    turns.run([lambda: _check_true(world.launch({n: Fault.REPLY_LOST}, forced=False, disbelief=0.0))], weights=[1.0])
    return _outcome(world)


def _outcome(world: _World) -> Outcome:
    return Outcome(
        backend=world.backend,
        started=world.started,
        served=world.served,
        built=world.built,
        crashes=world.crashes,
        forced=world.forced,
    )


def _check_true(value: bool) -> None:
    assert value


def check(outcome: Outcome) -> None:
    """What must hold after every schedule."""
    check_commits(outcome)
    check_leases(outcome.backend.leases)


def check_commits(outcome: Outcome) -> None:
    """One record for each number, no more than were asked for, each whole; and whoever was served, by one of them."""
    backend = outcome.backend
    numbers = [commit.number for commit in backend.commits]
    assert numbers == list(range(1, len(numbers) + 1)), "a number was committed twice, or left out"
    assert len(numbers) <= 1 + outcome.forced, "more commits than anybody asked for"
    for commit in backend.commits:
        check_whole(backend, commit)
    records = [commit.model_dump_json() for commit in backend.commits]
    for served in outcome.served:
        assert served.model_dump_json() in records, "a driver was served what is not on record"


def check_whole(backend: History, commit: Commit) -> None:
    """Every file is as its manifest says, and nothing else is there."""
    assert not isinstance(commit, Withdrawn)
    prefix = data_directory(DIRECTORY, commit)
    present = {e.key[len(prefix) + 1 :]: _digest(backend.read(e.key).data) for e in backend.list_files(prefix)}
    assert present == {file.path: file.digest for file in commit.manifest}, "a commit is torn"


def check_leases(leases: list[Lease]) -> None:
    """The epoch grows with every new owner and never falls; no two owners share an attempt."""
    owners: dict[int, str] = {}
    for before, after in itertools.pairwise(leases):
        assert after.epoch >= before.epoch, "the epoch fell"
    for lease in leases:
        if lease.owner is not None:
            assert owners.setdefault(lease.epoch, lease.owner) == lease.owner, "two owners in one epoch"
    attempts = {attempt_name(epoch, owner) for epoch, owner in owners.items()}
    assert len(attempts) == len(owners)


def forget(backend: History) -> None:
    """Free the memory of a schedule."""
    for entry in backend.list_files(""):
        backend.delete(entry.key)


def _no_wait() -> RetryPolicy:
    now = itertools.count()
    return RetryPolicy(clock=lambda: next(now) * 1e-3, sleep=lambda _: None, random=lambda: 0.5)


def _job(seen: Observation, *, may_adopt: bool, expired: str | None) -> Job:
    return Job(
        step=STEP,
        directory=DIRECTORY,
        seen=seen or NOTHING,
        inputs=(),
        loaded={},
        build_key="b" * 64,
        seed=0,
        source=Fingerprint(digest="0" * 64, parts={}, untraced=(), files={}),
        resource=CPU(),
        may_adopt=may_adopt,
        expired_lease=expired,
    )
