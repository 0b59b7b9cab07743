"""One try at a step: take the lease, run the body, commit. Safety rests on the create-if-absent of the commit, which is
written last and names the attempt; everything before it can be interrupted anywhere and leaves nothing that is served.
"""

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from marin_storage import AlreadyExists, Conflict, NotFound, StorageError, Store

from marin_pipe.execution import decide
from marin_pipe.execution.backends.base import Backend, Completed, Control, Failed, LoadedInput, Task
from marin_pipe.execution.backends.outcome import failure, no_usage
from marin_pipe.execution.errors import PipelineError
from marin_pipe.execution.handle import Step
from marin_pipe.execution.keeper import Callbacks, Holding, Keeper
from marin_pipe.execution.layout import (
    attempt_directory,
    attempt_epoch,
    build_key_file,
    commit_key,
    work_directory,
)
from marin_pipe.execution.lease import LeaseTimes, Newer, Taken, acquire, still_held
from marin_pipe.execution.logs import LogWriter
from marin_pipe.execution.observe import Observation, data_directory, list_work, observe, read_commit
from marin_pipe.execution.records import (
    Adopted,
    BuildPointer,
    Built,
    Ended,
    FileUse,
    InputUse,
    Provenance,
    Record,
    Served,
    SourceRecord,
    Usage,
    Withdrawn,
    encode,
    is_torn,
    parse,
)
from marin_pipe.execution.resources import Resource
from marin_pipe.execution.secret import Redactor
from marin_pipe.execution.source import Fingerprint

logger = logging.getLogger(__name__)


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
    digests: Mapping[str, str]
    """Output digests by the inputs' keys."""
    source: Fingerprint
    resource: Resource
    devices: tuple[int, ...] = ()
    may_adopt: bool = True
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


@dataclass(frozen=True, kw_only=True)
class AttemptSettings:
    """What every attempt of a launch shares."""

    times: LeaseTimes = LeaseTimes()
    backoff_s: float = 1.0
    """First wait before a retry; doubles, with full jitter, up to a minute."""


@dataclass(kw_only=True)
class Attempts:
    """Runs jobs. Thread-safe: one thread calls `run` for each job."""

    store: Store
    backend: Backend
    keeper: Keeper
    provenance: Provenance
    redactor: Redactor
    settings: AttemptSettings = field(default_factory=AttemptSettings)

    def run(self, job: Job, control: Control) -> Result:
        """Bring one step to a commit, or say why there is none. A store that fails, fails the step."""
        try:
            return self._run(job, control)
        except (StorageError, PipelineError) as error:
            failed = failure(error, usage=no_usage(), retryable=False)
            return Unfinished(failure=failed, attempt=None, attempts=0, log_tail=())

    def _run(self, job: Job, control: Control) -> Result:
        got = acquire(self.store, job.directory, seen=job.seen, times=self.settings.times, expired=job.expired_lease)
        if isinstance(got, Taken):
            return Occupied(taken=got)
        if isinstance(got, Newer):
            return Superseded(observation=got.observation)
        callbacks = Callbacks(
            lost=lambda _why: control.stop("lost", grace_s=0.0),
            cancelled=lambda _by: control.stop("cancelled", grace_s=self.settings.times.beat_s),
        )
        holding = self.keeper.hold(got, callbacks)
        try:
            build_key = decide.build_key(job.step, digests=job.digests, source_digest=job.source.digest)
            if job.may_adopt:
                adopted = self._adopt(job, holding, build_key)
                if adopted is not None:
                    return adopted
            return self._try_until_done(job, holding, control, build_key)
        finally:
            holding.release()

    def _try_until_done(self, job: Job, holding: Holding, control: Control, build_key: str) -> Result:
        count = 0
        while True:
            count += 1
            result = self._try_once(job, holding, control, build_key, count)
            if not isinstance(result, Unfinished) or not self._try_again(job, result, control, count):
                return result
            try:
                holding.renew()
            except Conflict:
                return Superseded(observation=observe(self.store, job.directory))
            except StorageError as error:
                logger.warning("%s is not tried again, its lease could not be renewed: %s", job.directory, error)
                return result

    def _try_again(self, job: Job, result: Unfinished, control: Control, count: int) -> bool:
        """Whether to retry; waits the backoff. Preemption and stops by hand are no failures to retry here."""
        died = result.failure.outcome == "lost" and control.stopped is None
        if count > job.step.options.retry.times or not (result.failure.retryable or died):
            return False
        if control.stopped is not None and control.stopped[0] != "timeout":
            return False
        stop = threading.Event()
        control.on_stop(lambda *_: stop.set())
        pause_s = random.uniform(0, min(60.0, self.settings.backoff_s * 2 ** (count - 1)))  # noqa: S311
        return not stop.wait(pause_s)

    def _try_once(self, job: Job, holding: Holding, control: Control, build_key: str, count: int) -> Result:
        step, directory, attempt = job.step, job.directory, holding.held.attempt
        log = LogWriter(self.store, attempt_directory(directory, attempt), self.redactor)
        body_control = Control()
        control.on_stop(lambda reason, grace_s: body_control.stop(reason, grace_s=grace_s))
        timer = None
        if step.options.timeout_s is not None:
            timer = threading.Timer(step.options.timeout_s, body_control.stop, ("timeout",), {"grace_s": 5.0})
            timer.daemon = True
            timer.start()
        started = time.time()
        try:
            done = self.backend.execute(self._task(job, attempt), log=log, control=body_control)
        finally:
            if timer is not None:
                timer.cancel()
            _close(log, attempt)
        if isinstance(done, Completed):
            try:
                return self._commit(job, holding, done, build_key, count)
            except StorageError as error:
                done = failure(error, usage=done.usage, retryable=False)
        return self._end(job, holding, done, log, started, count)

    def _task(self, job: Job, attempt: str) -> Task:
        earlier: tuple[str, ...] = ()
        if job.seen.has_work or attempt_epoch(attempt) > 1:
            names = [name for name in list_work(self.store, job.directory) if name != attempt]
            earlier = tuple(work_directory(job.directory, name) for name in reversed(names))
        return Task(
            step=job.step,
            root=self.store.url,
            directory=job.directory,
            attempt=attempt,
            earlier_work=earlier,
            inputs=job.loaded,
            resources=job.resource,
            devices=job.devices,
            seed=decide.seed(job.step, digests=job.digests),
            source_files=job.source.files,
            verify="digests" if job.verify == "digests" else "sizes",
        )

    def _commit(self, job: Job, holding: Holding, done: Completed, build_key: str, count: int) -> Result:
        held = holding.held
        assert held.lease.owner is not None
        commit = Built(
            number=held.lease.commit,
            attempt=held.attempt,
            owner=held.lease.owner,
            output_digest=decide.output_digest(done.manifest, done.result),
            record=self._record(job, build_key, done.result, done.result_type, done.usage, count),
            manifest=done.manifest,
        )
        if holding.lost is not None or not still_held(self.store, held):
            # Only an early exit: if the look is stale, the create below collides.
            return self._superseded_or_lost(job, holding, count)
        return self._publish(job, commit, build_key, count)

    def _publish(self, job: Job, commit: Served, build_key: str, count: int) -> Result:
        key = commit_key(job.directory, commit.number)
        try:
            self.store.create(key, encode(commit), durable=True)
        except AlreadyExists:
            return Superseded(observation=observe(self.store, job.directory, key=job.step.key))
        if commit.kind == "built":
            self._point(build_key, job.directory, commit)
        return Committed(
            observation=Observation(highest=commit.number, commit=commit, has_lease=True, has_attempts=True),
            attempts=count,
        )

    def _point(self, build_key: str, directory: str, commit: Built) -> None:
        pointer = BuildPointer(directory=directory, commit=commit.number, output_digest=commit.output_digest)
        try:
            self.store.write(build_key_file(build_key), encode(pointer))
        except StorageError as error:
            # The step is done: without the pointer, equal work elsewhere is only not found.
            logger.warning("%s will not be found by its build key: %s", directory, error)

    def _superseded_or_lost(self, job: Job, holding: Holding, count: int) -> Result:
        observation = observe(self.store, job.directory, key=job.step.key)
        if observation.highest >= holding.held.lease.commit:
            return Superseded(observation=observation)
        failure = Failed(
            outcome="lost",
            error_type="LeaseLost",
            message=f"the lease of {job.directory} was lost: {holding.lost or 'another owner took it'}",
            traceback="",
            retryable=False,
            exit_code=75,
            usage=no_usage(),
        )
        return Unfinished(failure=failure, attempt=holding.held.attempt, attempts=count, log_tail=())

    def _end(self, job: Job, holding: Holding, failure: Failed, log: LogWriter, started: float, count: int) -> Result:
        attempt = holding.held.attempt
        tail = tuple(failure.log_tail or log.tail(20))
        ended = Ended(
            outcome=failure.outcome,
            attempt=attempt,
            attempt_count=count,
            error_type=failure.error_type,
            message=self.redactor.redact(failure.message),
            traceback=self.redactor.redact(failure.traceback),
            log_tail=tail,
            host=socket.gethostname(),
            pid=os.getpid(),
            started=started,
            ended=time.time(),
            peak_memory_bytes=failure.usage.peak_memory_bytes,
            run=self.provenance.run,
        )
        try:
            self.store.create(f"{attempt_directory(job.directory, attempt)}/ended.json", encode(ended))
        except StorageError as error:
            # The report still tells; to others the attempt looks lost.
            logger.warning("how %s ended could not be stored: %s", attempt_directory(job.directory, attempt), error)
        if failure.outcome == "lost" and holding.lost is not None:
            return self._superseded_or_lost(job, holding, count)
        return Unfinished(failure=failure, attempt=attempt, attempts=count, log_tail=tail)

    def _adopt(self, job: Job, holding: Holding, build_key: str) -> Result | None:
        """Commit the output another step made under the same build key, if it is still there and whole."""
        source = find_build(self.store, build_key)
        if source is None:
            return None
        directory, commit = source
        held = holding.held
        assert held.lease.owner is not None
        adopted = Adopted(
            number=held.lease.commit,
            owner=held.lease.owner,
            output_digest=commit.output_digest,
            record=self._record(job, build_key, commit.record.result, commit.record.result_type, None, 0),
            manifest=commit.manifest,
            source_directory=directory,
            source_commit=commit.number,
            source_data=data_directory(directory, commit),
            source_inputs=commit.record.inputs,
            reason="the same function, arguments, source and input bytes were built there",
        )
        result = self._publish(job, adopted, build_key, 0)
        if isinstance(result, Committed):
            again = find_build(self.store, build_key)
            if again is None or (again[0], again[1].number) != (directory, commit.number):
                return self._take_back(job, adopted)
        return result

    def _take_back(self, job: Job, adopted: Adopted) -> Superseded:
        """Withdraw an adoption whose source was collected while it was published (see `gc.py`)."""
        number = adopted.number + 1
        withdrawn = Withdrawn(
            number=number, owner=adopted.owner, reason=f"{adopted.source_directory} was collected meanwhile"
        )
        # If a later holder has committed on top of it, theirs stands.
        with suppress(AlreadyExists):
            self.store.create(commit_key(job.directory, number), encode(withdrawn), durable=True)
        return Superseded(observation=observe(self.store, job.directory, key=job.step.key))

    def _record(
        self,
        job: Job,
        build_key: str,
        result: object,
        result_type: str | None,
        usage: Usage | None,
        count: int,
    ) -> Record:
        step = job.step
        return Record(
            name=step.name,
            function=step.function.name,
            module=step.function.module_name,
            version=step.version,
            key=step.key,
            arguments=dict(step.bound.canonical),
            runtime=dict(step.bound.runtime),
            secrets=step.bound.secrets,
            inputs=job.inputs,
            files=tuple(
                FileUse(argument=where, path=file.text, files=file.entries) for where, file in step.bound.files
            ),
            source=SourceRecord(digest=job.source.digest, parts=dict(job.source.parts), untraced=job.source.untraced),
            build_key=build_key,
            result=result,
            result_type=result_type,
            resources=repr(job.resource),
            environment={name: self.redactor.redact(value) for name, value in step.options.environment.items()},
            attempt_count=count,
            usage=usage,
            provenance=self.provenance,
        )


def find_build(store: Store, build_key: str) -> tuple[str, Built] | None:
    """The commit made under a build key and its step directory, if it is still there with all its files."""
    try:
        blob = store.read(build_key_file(build_key))
    except NotFound:
        return None
    if is_torn(blob.data):
        return None
    pointer: BuildPointer = parse(BuildPointer, blob.data, key=build_key_file(build_key))
    latest = observe(store, pointer.directory)
    if latest.commit is None or latest.highest < pointer.commit:
        return None
    commit = read_commit(store, pointer.directory, pointer.commit)
    if isinstance(commit, Withdrawn) or commit.kind != "built" or commit.output_digest != pointer.output_digest:
        return None
    prefix = data_directory(pointer.directory, commit)
    present = {entry.key[len(prefix) + 1 :]: entry.size_bytes for entry in store.list_files(prefix)}
    if present != {file.path: file.size for file in commit.manifest}:
        return None
    return pointer.directory, commit


def _close(log: LogWriter, attempt: str) -> None:
    try:
        log.close()
    except StorageError as error:
        # What the body came to counts, not what it printed.
        logger.warning("the end of the log of %s could not be stored: %s", attempt, error)
