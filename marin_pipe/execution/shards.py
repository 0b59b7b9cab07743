"""`process_shards`: many independent files of one step, of which a killed step redoes only the unfinished ones.

Each finished shard leaves its files and, written after them, a note in the attempt's `work`: what it was made from, by
which code, and the files' digests. A later attempt takes over every shard whose note still holds.
"""

import hashlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
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
    format: Literal[2] = 2
    input: str
    """sha256 of the canonical form of the shard's value."""
    code: str
    """Fingerprint of the source that the function reaches."""
    files: dict[str, str]
    """By name within the shard's directory: the digest of each file."""
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
    """Make the output files of each shard; returns what `function` returned, by shard, in the order of `shards`.

    Args:
        ctx: the step's context. Files go to `ctx.output / name`, or beside it with longer names.
        shards: by name ("part-00007.parquet", "en/part-1.txt"): what the shard is made from. Values have a canonical
            form, as arguments of steps do; a shard is done again if its value changed, or the code of `function` or of
            a function within the value.
        function: `function(value, path)` writes the local file `path`, or several files beside it whose names begin
            with its name ("part-00007" -> "part-00007.tok", "part-00007.idx"), and returns JSON or None. At the top
            level of a module or script. Its bytes must depend on `value` alone: then they do not depend on `workers`.
        workers: processes to use at once; 1 is this process.

    Raises:
        ShardsStopped: `ctx.should_stop()`; shards in progress are finished first.
        ValueError: two shards wrote a file of one name.
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
    functions: dict[str, Any] = {}
    inputs = {name: _identity(name, value, functions) for name, value in shards.items()}
    code = fingerprint([function, *functions.values()]).digest
    jobs = [
        _Job(
            name=name,
            value=value,
            function=function,
            url=ctx.store.url,
            work_key=ctx.work_key,
            output_key=ctx.output_key,
            input=inputs[name],
            code=code,
        )
        for name, value in shards.items()
    ]
    summaries: dict[str, Any] = {}
    owners: dict[str, str] = {}
    with ctx.progress(len(jobs), "shards") as progress:
        for job in jobs:
            if (note := _take_over(ctx, job)) is not None:
                _claim(job.name, note.files, owners)
                summaries[job.name] = note.summary
                progress.update()
        if summaries:
            ctx.log.info("%d of %d shards were finished by earlier attempts", len(summaries), len(jobs))
        for name, note in _run(ctx, [job for job in jobs if job.name not in summaries], workers):
            _claim(name, note.files, owners)
            summaries[name] = note.summary
            progress.update()
    return {name: summaries[name] for name in shards}


def _identity(name: str, value: Any, functions: dict[str, Any]) -> str:
    """The value's identity; adds the functions and classes that it names to `functions`."""

    def visit(_where: str, found: Any) -> None:
        if isinstance(found, (FunctionType, type)):
            functions[f"{found.__module__}.{found.__qualname__}"] = found

    form = canonical(value, Any, where=f"shards[{name!r}]", visit=visit)
    return hashlib.sha256(canonical_json(form).encode()).hexdigest()


def _claim(name: str, files: Mapping[str, str], owners: dict[str, str]) -> None:
    """Refuse a file that another shard has written: one of the two would be lost."""
    for file in files:
        target = _beside(name, file)
        if owners.setdefault(target, name) != name:
            raise ValueError(f"shards {owners[target]!r} and {name!r} both wrote {target!r}")


def _run(ctx: StepContext, jobs: list[_Job], workers: int) -> Iterator[tuple[str, ShardNote]]:
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


def _make_in_process(job: _Job) -> ShardNote:
    return _make(job, open_store(job.url))


def _make(job: _Job, store: Store) -> ShardNote:
    """Write one shard's files, then the note that it is done, then publish them."""
    folder_key = _data_key(job.work_key, job.name)
    with _local_folder(store, folder_key) as folder:
        path = folder / posixpath.basename(job.name)
        summary = job.function(job.value, path)
        names = sorted(file.name for file in folder.iterdir())
        _check_names(job, folder, names)
        if not is_local(store):
            for name in names:
                store.upload(folder / name, f"{folder_key}/{name}")
                store.upload(folder / name, f"{job.output_key}/{_beside(job.name, name)}")
    files = {name: store.digest(f"{folder_key}/{name}") for name in names}
    note = ShardNote(input=job.input, code=job.code, files=files, summary=summary)
    store.write(_note_key(job.work_key, job.name), encode(note))
    if is_local(store):
        _publish_all(store, job, folder_key, names)
    return note


def _check_names(job: _Job, folder: Path, names: list[str]) -> None:
    function, begin = job.function.__qualname__, posixpath.basename(job.name)
    if not names:
        raise FileNotFoundError(f"shard {job.name!r}: {function} wrote no file at the path it got")
    for name in names:
        if not (folder / name).is_file():
            raise ValueError(f"shard {job.name!r}: {function} made the directory {name!r}; a shard writes files only")
        if not name.startswith(begin):
            raise ValueError(
                f"shard {job.name!r}: {function} wrote {name!r}; its files' names must begin with {begin!r}"
            )


@contextmanager
def _local_folder(store: Store, key: str) -> Iterator[Path]:
    """An empty directory for a shard's files: in its place on a local store, else a temporary one."""
    local = store.local_path(key)
    if local is not None:
        if local.exists():
            # What an earlier try of this attempt left, which may be half of a file.
            shutil.rmtree(local)
        local.mkdir(parents=True)
        yield local
        return
    with tempfile.TemporaryDirectory(prefix="marin_pipe-shard-") as folder:
        yield Path(folder)


def _take_over(ctx: StepContext, job: _Job) -> ShardNote | None:
    """Publish the shard from an earlier attempt that finished it, if its note and its bytes still hold."""
    for work_key in ctx.earlier_work_keys:
        key = _note_key(work_key, job.name)
        try:
            note: ShardNote = parse(ShardNote, ctx.store.read(key).data, key=key)
        except NotFound:
            continue
        if (note.input, note.code) != (job.input, job.code):
            continue
        folder_key = _data_key(work_key, job.name)
        if not all(_is_whole(ctx.store, f"{folder_key}/{name}", digest) for name, digest in note.files.items()):
            ctx.log.warning("shard %s of an earlier attempt was changed or lost; it is made again", job.name)
            continue
        _publish_all(ctx.store, job, folder_key, list(note.files))
        return note
    return None


def _is_whole(store: Store, key: str, digest: str) -> bool:
    try:
        return store.digest(key) == digest
    except NotFound:
        return False


def _publish_all(store: Store, job: _Job, folder_key: str, names: list[str]) -> None:
    for name in names:
        _publish(store, f"{folder_key}/{name}", f"{job.output_key}/{_beside(job.name, name)}")


def _publish(store: Store, source: str, target: str) -> None:
    """Copy a shard's file to the output; on a local disk by a second name for the same bytes."""
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


def _beside(name: str, file: str) -> str:
    """The output file of shard `name` whose own name is `file`."""
    return posixpath.join(posixpath.dirname(name), file)


def _data_key(work_key: str, name: str) -> str:
    # Not a name of its own below a shard "a" that shares its work with a shard "a/b".
    return f"{work_key}/shards/data/{name}+"


def _note_key(work_key: str, name: str) -> str:
    return f"{work_key}/shards/done/{name}.json"
