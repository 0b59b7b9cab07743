"""One step from its lease to its commit: tries, retries, stops. Everything before the commit (`commit.py`) can be
interrupted anywhere and leaves nothing that is served.
"""

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from marin_storage import Conflict, StorageError, Store

from marin_pipe.execution.backends.base import Backend, Completed, Control, Failed, Task
from marin_pipe.execution.backends.outcome import failure, no_usage
from marin_pipe.execution.commit import Commits
from marin_pipe.execution.errors import PipelineError
from marin_pipe.execution.jobs import Job, Occupied, Result, Superseded, Unfinished
from marin_pipe.execution.keeper import Callbacks, Holding, Keeper
from marin_pipe.execution.layout import attempt_directory, attempt_epoch
from marin_pipe.execution.lease import LeaseTimes, Newer, Taken, acquire, boottime, still_held
from marin_pipe.execution.logs import LogWriter
from marin_pipe.execution.observe import observe
from marin_pipe.execution.records import Ended, Provenance, WorkMark, encode
from marin_pipe.execution.report import EventKind
from marin_pipe.execution.resume import NOTHING_TO_RESUME, Resumable, find_resumable, last_commit_epoch
from marin_pipe.execution.secret import Redactor

logger = logging.getLogger(__name__)

Tell = Callable[[EventKind, str], None]
"""Says what happens to a step, from the thread of its attempt."""


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
    settings: AttemptSettings = AttemptSettings()

    def __post_init__(self) -> None:
        self.commits = Commits(store=self.store, provenance=self.provenance, redactor=self.redactor)

    def run(self, job: Job, control: Control, tell: Tell) -> Result:
        """Bring one step to a commit, or say why there is none. A store that fails, fails the step."""
        try:
            return self._run(job, control, tell)
        except (StorageError, PipelineError) as error:
            failed = failure(error, usage=no_usage(), retryable=False)
            return Unfinished(failure=failed, attempt=None, attempts=0, log_tail=())

    def _run(self, job: Job, control: Control, tell: Tell) -> Result:
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
            adopted = self.commits.adopt(job, holding.held) if job.may_adopt else None
            return adopted or self._try_until_done(job, holding, control, tell)
        finally:
            holding.release()

    def _try_until_done(self, job: Job, holding: Holding, control: Control, tell: Tell) -> Result:
        count = 0
        used_up = holding.held.lease.epoch - 1 if job.fresh else last_commit_epoch(job.seen.commit)
        tell("started", "")
        while True:
            count += 1
            earlier = self._earlier_work(job, holding.held.attempt, used_up)
            if set(earlier.sources) - {job.source.digest} and job.policy == "warn":
                tell("note", "goes on from state that other source had a part in; --force starts from nothing")
            result = self._try_once(job, holding, control, count, earlier)
            if not isinstance(result, Unfinished) or not self._try_again(job, result, control, count):
                return result
            assert isinstance(result, Unfinished)
            tell("retrying", f"try {count + 1} of {job.step.options.retry.times + 1}: {result.failure.message}")
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

    def _try_once(self, job: Job, holding: Holding, control: Control, count: int, earlier: Resumable) -> Result:
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
            done = self.backend.execute(self._task(job, attempt, earlier), log=log, control=body_control)
        finally:
            if timer is not None:
                timer.cancel()
            _close(log, attempt)
        if isinstance(done, Completed):
            try:
                return self._commit(job, holding, done, count, earlier)
            except StorageError as error:
                done = failure(error, usage=done.usage, retryable=False)
        return self._end(job, holding, done, log, started, count)

    def _earlier_work(self, job: Job, attempt: str, used_up: int) -> Resumable:
        if not job.seen.has_work and attempt_epoch(attempt) == 1:
            return NOTHING_TO_RESUME
        return find_resumable(
            self.store,
            job.directory,
            after_epoch=used_up,
            seed=job.seed,
            source=job.source.digest,
            policy=job.policy,
        )

    def _task(self, job: Job, attempt: str, earlier: Resumable) -> Task:
        mark = WorkMark(seed=job.seed, sources=tuple(sorted({*earlier.sources, job.source.digest})))
        return Task(
            step=job.step,
            root=self.store.url,
            directory=job.directory,
            attempt=attempt,
            earlier_work=earlier.directories,
            inputs=job.loaded,
            resources=job.resource,
            devices=job.devices,
            seed=job.seed,
            work_mark=encode(mark),
            source_files=job.source.files,
            verify="digests" if job.verify == "digests" else "sizes",
        )

    def _commit(self, job: Job, holding: Holding, done: Completed, count: int, earlier: Resumable) -> Result:
        if holding.lost is not None or not self._believed_held(holding):
            return self._superseded_or_lost(job, holding, count)
        foreign = tuple(sorted(set(earlier.sources) - {job.source.digest}))
        return self.commits.build(job, holding.held, done, count, resumed_sources=foreign)

    def _believed_held(self, holding: Holding) -> bool:
        """Whether to commit at all. Only an early exit: if it errs, the create of the commit collides."""
        if boottime() - holding.confirmed_s < self.settings.times.beat_s:
            return True
        return still_held(self.store, holding.held)

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
        # What a terminal shows often ends in a file, too.
        failure = replace(
            failure, message=self.redactor.redact(failure.message), traceback=self.redactor.redact(failure.traceback)
        )
        ended = Ended(
            outcome=failure.outcome,
            attempt=attempt,
            attempt_count=count,
            error_type=failure.error_type,
            message=failure.message,
            traceback=failure.traceback,
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


def _close(log: LogWriter, attempt: str) -> None:
    try:
        log.close()
    except StorageError as error:
        # What the body came to counts, not what it printed.
        logger.warning("the end of the log of %s could not be stored: %s", attempt, error)
