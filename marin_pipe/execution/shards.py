"""`process_shards`: many independent files of one step, of which a killed step redoes only the unfinished ones.

Each finished shard leaves its file and, written after it, a note in the attempt's `work`: what it was made from, by
which code, and the file's digest. A later attempt takes over every shard whose note still holds.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from marin_storage import NotFound, Store, open_store
from pydantic import BaseModel, ConfigDict

from marin_pipe.execution.context import StepContext, is_local
from marin_pipe.execution.errors import ConfigurationError, PipelineError
from marin_pipe.execution.identity import canonical, canonical_json
from marin_pipe.execution.records import encode, parse
from marin_pipe.execution.source import fingerprint

T = TypeVar("T")
_COPY_BYTES = 1 << 24
_LOOK_EVERY_S = 1.0


class ShardsStopped(PipelineError):
    """The step was asked to stop; finished shards are kept for its next attempt."""


class ShardNote(BaseModel):
    """`work/<attempt>/shards/done/<name>.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Literal[1] = 1
    input: str
    """sha256 of the canonical form of the shard's value."""
    code: str
    """Fingerprint of the source that the function reaches."""
    digest: str
    summary: Any = None


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One shard, ready to travel to a process."""

    name: str
    value: Any
    function: Callable[[Any, Path], Any]
    url: str
    work_key: str
    output_key: str
    input: str
    code: str


def process_shards(
    ctx: StepContext, shards: Mapping[str, T], function: Callable[[T, Path], Any], *, workers: int = 1
) -> dict[str, Any]:
    """Make one output file for each shard; returns what `function` returned, by shard, in the order of `shards`.

    Args:
        ctx: the step's context. Files go to `ctx.output / name`.
        shards: by file name ("part-00007.parquet", "en/part-1.txt"): what the shard is made from. Values have a
            canonical form, as arguments of steps do; a shard is done again if its value or the function's code changed.
        function: `function(value, path)` writes the local file `path` and returns JSON or None. At the top level of a
            module or script. Its bytes must depend on `value` alone: then they do not depend on `workers` either.
        workers: processes to use at once; 1 is this process.

    Raises:
        ShardsStopped: `ctx.should_stop()`; shards in progress are finished first.
    """
    if workers < 1:
        raise ConfigurationError(f"workers={workers} must be at least 1")
    if workers > 1 and ctx.store.url.startswith("memory:"):
        raise ConfigurationError(
            f"process_shards(workers={workers}) cannot be used with the root {ctx.store.url}",
            why="other processes do not see this memory",
            next="use workers=1 or a directory",
        )
    ctx.work  # noqa: B018  what lies there counts for a later try only if it was asked for: that marks whose it is
    code = fingerprint([function]).digest
    jobs = [
        _Job(
            name=name,
            value=value,
            function=function,
            url=ctx.store.url,
            work_key=ctx.work_key,
            output_key=ctx.output_key,
            input=_identity(name, value),
            code=code,
        )
        for name, value in shards.items()
    ]
    summaries: dict[str, Any] = {}
    with ctx.progress(len(jobs), "shards") as progress:
        for job in jobs:
            if _take_over(ctx, job, summaries):
                progress.update()
        if summaries:
            ctx.log.info("%d of %d shards were finished by earlier attempts", len(summaries), len(jobs))
        for name, summary in _run(ctx, [job for job in jobs if job.name not in summaries], workers):
            summaries[name] = summary
            progress.update()
    return {name: summaries[name] for name in shards}


def _identity(name: str, value: Any) -> str:
    form = canonical(value, Any, where=f"shards[{name!r}]", visit=lambda _where, _object: None)
    return hashlib.sha256(canonical_json(form).encode()).hexdigest()


def _run(ctx: StepContext, jobs: list[_Job], workers: int) -> Iterator[tuple[str, Any]]:
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            _stop_if_asked(ctx)
            yield job.name, _make(job, ctx.store)
        return
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn"))
    try:
        names = {pool.submit(_make_in_process, job): job.name for job in jobs}
        pending = set(names)
        while pending:
            _stop_if_asked(ctx)
            done, pending = wait(pending, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
            for future in done:
                yield names[future], future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _stop_if_asked(ctx: StepContext) -> None:
    if ctx.should_stop():
        raise ShardsStopped("the step was asked to stop between shards", next="run again: finished shards are kept")


def _make_in_process(job: _Job) -> Any:
    return _make(job, open_store(job.url))


def _make(job: _Job, store: Store) -> Any:
    """Write one shard's file, then the note that it is done, then publish it."""
    data_key = _data_key(job.work_key, job.name)
    with _local_file(store, data_key) as path:
        summary = job.function(job.value, path)
        if not path.is_file():
            raise FileNotFoundError(f"shard {job.name!r}: {job.function.__qualname__} wrote no file at the path it got")
        if not is_local(store):
            store.upload(path, data_key)
            store.upload(path, f"{job.output_key}/{job.name}")
    note = ShardNote(input=job.input, code=job.code, digest=store.digest(data_key), summary=summary)
    store.write(_note_key(job.work_key, job.name), encode(note))
    if is_local(store):
        _publish(store, data_key, f"{job.output_key}/{job.name}")
    return summary


@contextmanager
def _local_file(store: Store, key: str) -> Iterator[Path]:
    """Where a function may write the file: in its place on a local store, else in a temporary directory."""
    local = store.local_path(key)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
        # What an earlier try of this attempt left, which may be half of a file.
        local.unlink(missing_ok=True)
        yield local
        return
    with tempfile.TemporaryDirectory(prefix="marin_pipe-shard-") as folder:
        yield Path(folder) / os.path.basename(key)


def _take_over(ctx: StepContext, job: _Job, summaries: dict[str, Any]) -> bool:
    """Publish the shard from an earlier attempt that finished it, if its note and its bytes still hold."""
    for work_key in ctx.earlier_work_keys:
        key = _note_key(work_key, job.name)
        try:
            note: ShardNote = parse(ShardNote, ctx.store.read(key).data, key=key)
        except NotFound:
            continue
        if (note.input, note.code) != (job.input, job.code):
            continue
        data_key = _data_key(work_key, job.name)
        if not _is_whole(ctx.store, data_key, note.digest):
            ctx.log.warning("shard %s of an earlier attempt was changed or lost; it is made again", job.name)
            continue
        _publish(ctx.store, data_key, f"{job.output_key}/{job.name}")
        summaries[job.name] = note.summary
        return True
    return False


def _is_whole(store: Store, key: str, digest: str) -> bool:
    try:
        return store.digest(key) == digest
    except NotFound:
        return False


def _publish(store: Store, source: str, target: str) -> None:
    """Copy a shard to the output; on a local disk by a second name for the same bytes."""
    from_path, to_path = store.local_path(source), store.local_path(target)
    if from_path is not None and to_path is not None:
        to_path.parent.mkdir(parents=True, exist_ok=True)
        to_path.unlink(missing_ok=True)
        try:
            os.link(from_path, to_path)
        except PermissionError:
            # Some network file systems have no hard links.
            shutil.copyfile(from_path, to_path)
        return
    with tempfile.NamedTemporaryFile(prefix="marin_pipe-shard-") as file:
        position = 0
        while chunk := store.read_range(source, position, _COPY_BYTES):
            file.write(chunk)
            position += len(chunk)
        file.flush()
        store.upload(Path(file.name), target)


def _data_key(work_key: str, name: str) -> str:
    return f"{work_key}/shards/data/{name}"


def _note_key(work_key: str, name: str) -> str:
    return f"{work_key}/shards/done/{name}.json"
