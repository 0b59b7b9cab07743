"""Commits: the one write that makes a step done. It is a create-if-absent, comes last, and names the attempt whose data
it stands for (or, adopted, another step's).
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

from marin_storage import AlreadyExists, StorageError, Store

from marin_pipe.execution import decide
from marin_pipe.execution.backends.base import Completed
from marin_pipe.execution.describe import describe_step
from marin_pipe.execution.errors import RecordError
from marin_pipe.execution.jobs import Committed, Job, Result, Superseded
from marin_pipe.execution.layout import build_key_file, commit_key
from marin_pipe.execution.lease import Held
from marin_pipe.execution.manifest import size_problem, sizes_below
from marin_pipe.execution.observe import Observation, data_directory, find_commit, observe, read_if_whole
from marin_pipe.execution.records import (
    Adopted,
    BuildPointer,
    Built,
    Provenance,
    Record,
    Served,
    Usage,
    Withdrawn,
    encode,
)
from marin_pipe.execution.secret import Redactor

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Commits:
    """Makes the commits of a launch."""

    store: Store
    provenance: Provenance
    redactor: Redactor

    def build(
        self, job: Job, held: Held, done: Completed, count: int, *, resumed_sources: tuple[str, ...] = ()
    ) -> Result:
        """Commit what a body made, in its `count`-th try. `Superseded` if somebody else's commit has the number.

        Args:
            resumed_sources: other sources that had a part in it, through the state it went on from.
        """
        assert held.lease.owner is not None
        commit = Built(
            number=held.lease.commit,
            attempt=held.attempt,
            owner=held.lease.owner,
            output_digest=decide.output_digest(done.manifest, done.result),
            record=self._record(
                job,
                result=done.result,
                result_type=done.result_type,
                usage=done.usage,
                count=count,
                resumed_sources=resumed_sources,
            ),
            manifest=done.manifest,
        )
        return self._publish(job, commit, count)

    def adopt(self, job: Job, held: Held) -> Result | None:
        """Commit the output another step made under the same build key, if it is still there and whole."""
        source = find_build(self.store, job.build_key)
        if source is None:
            return None
        directory, commit = source
        assert held.lease.owner is not None
        adopted = Adopted(
            number=held.lease.commit,
            owner=held.lease.owner,
            output_digest=commit.output_digest,
            record=self._record(
                job, result=commit.record.result, result_type=commit.record.result_type, usage=None, count=0
            ),
            manifest=commit.manifest,
            source_directory=directory,
            source_commit=commit.number,
            source_data=data_directory(directory, commit),
            source_inputs=commit.record.inputs,
            reason="the same function, arguments, source and input bytes were built there",
        )
        result = self._publish(job, adopted, 0)
        if isinstance(result, Committed):
            again = find_build(self.store, job.build_key)
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
        *,
        result: object,
        result_type: str | None,
        usage: Usage | None,
        count: int,
        resumed_sources: tuple[str, ...] = (),
    ) -> Record:
        environment = job.step.options.environment
        return describe_step(
            job.step,
            source=job.source,
            inputs=job.inputs,
            build_key=job.build_key,
            result=result,
            result_type=result_type,
            resources=repr(job.resource),
            environment={name: self.redactor.redact(value) for name, value in environment.items()},
            attempt_count=count,
            resumed_sources=resumed_sources,
            usage=usage,
            provenance=self.provenance,
        )

    def _publish(self, job: Job, commit: Served, count: int) -> Result:
        key = commit_key(job.directory, commit.number)
        try:
            self.store.create(key, encode(commit), durable=True)
        except AlreadyExists:
            return Superseded(observation=observe(self.store, job.directory, key=job.step.key))
        if commit.kind == "built" and not commit.record.resumed_sources:
            # Bytes that other source had a part in are not what the build key stands for.
            self._point(commit.record.build_key, job.directory, commit)
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


def find_build(store: Store, build_key: str) -> tuple[str, Built] | None:
    """The commit made under a build key and its step directory, if it is still there with all its files."""
    pointer: BuildPointer | None = read_if_whole(store, BuildPointer, build_key_file(build_key))
    if pointer is None:
        return None
    latest = observe(store, pointer.directory)
    if latest.commit is None or latest.highest < pointer.commit:
        return None
    commit = find_commit(store, pointer.directory, pointer.commit)
    if isinstance(commit, RecordError):
        logger.warning("%s. It is not adopted.", commit.what)
        return None
    if isinstance(commit, Withdrawn) or commit.kind != "built" or commit.output_digest != pointer.output_digest:
        return None
    present = sizes_below(store, data_directory(pointer.directory, commit))
    if size_problem(present, ((file.path, file.size) for file in commit.manifest)) is not None:
        return None
    return pointer.directory, commit
