"""Runs one body in this process: the part that worker processes and the inline backend share."""

import functools
import os
import resource
import stat
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from marin_storage import Entry, StorageError, Store

from marin_pipe.execution.backends.base import Completed, Failed
from marin_pipe.execution.backends.loading import Loader, store_at
from marin_pipe.execution.backends.outcome import failure, format_error
from marin_pipe.execution.backends.results import encode_result
from marin_pipe.execution.backends.transport import Content, Invocation, unpack
from marin_pipe.execution.binding import Placeholder, call_arguments, substitute, takes_context
from marin_pipe.execution.context import StepContext, is_local
from marin_pipe.execution.errors import PipelineError, SourceChanged
from marin_pipe.execution.records import FileEntry, Usage
from marin_pipe.execution.secret import refuse_secrets_in_result
from marin_pipe.execution.source_loaded import check_loaded

if TYPE_CHECKING:
    from marin_pipe.execution.step import StepFunction


class OutputError(PipelineError):
    """The files a body left cannot become an output."""


class Stopped(PipelineError):
    """The body was asked to stop and did."""


class Meter:
    """Measures one body: wall and CPU time of this process and its ended children, and the peak of its memory."""

    def __init__(self) -> None:
        self.started = time.time()
        self._wall = time.perf_counter()
        self._cpu_s = _cpu_s()
        self._children_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        _reset_peak()

    def usage(self) -> Usage:
        children_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        peak = _peak_bytes()
        if children_kib > self._children_kib:
            peak = max(peak, _rss_bytes(children_kib))
        return Usage(
            started=self.started,
            ended=time.time(),
            duration_s=time.perf_counter() - self._wall,
            cpu_s=max(0.0, _cpu_s() - self._cpu_s),
            peak_memory_bytes=peak,
        )


def run_body(
    invocation: Invocation,
    *,
    resolve: "Callable[[Invocation], StepFunction[Any]]",
    loader: Loader,
    stopped: Callable[[], bool],
    settle: Callable[[], None] = lambda: None,
    interruptible: Callable[[StepContext], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Completed | Failed:
    """Check and load the inputs, call the function, and make what it left durable.

    Args:
        resolve: finds the step's function, importing its module.
        stopped: whether the engine asked this body to stop.
        interruptible: entered around the call of the function.
        settle: called when the body has ended, before its files are digested: ends what it left running.
    """
    meter = Meter()
    process = os.getpid()
    content: Content | None = None
    in_body = False
    context: StepContext | None = None
    try:
        os.chdir(invocation.cwd)
        function = resolve(invocation)
        content = unpack(invocation.content)
        _check_source(invocation)
        seen = loader.verify(invocation.inputs, root=invocation.root, mode=invocation.verify)
        arguments = _load_arguments(invocation, content, loader)
        store = store_at(invocation.root)
        context = StepContext.for_attempt(
            store,
            name=invocation.name,
            directory=invocation.directory,
            attempt=invocation.attempt,
            earlier_work=invocation.earlier_work,
            resources=invocation.resources,
            seed=invocation.seed,
            work_mark=invocation.work_mark,
            stopped=stopped,
        )
        positional, keywords = call_arguments(function, arguments, context if takes_context(function) else None)
        in_body = True
        try:
            with interruptible(context):
                result = function.fn(*positional, **keywords)
        finally:
            if os.getpid() != process:
                _end_forked_child()
            settle()
        in_body = False
        if context.interrupted:
            raise KeyboardInterrupt("the body was interrupted and returned nevertheless: it may be half done")
        if context.saw_stop:
            raise Stopped("the body returned after it was asked to stop")
        loader.check_unchanged(invocation.inputs, seen, root=invocation.root, step=invocation.name)
        encoded, result_type = encode_result(result, function.returns, step=invocation.name, function=function.fn)
        _check_source(invocation)
        context.finish()
        context.close()
        manifest = commit_files(store, context.output_key)
        return Completed(result=encoded, result_type=result_type, manifest=manifest, usage=meter.usage())
    except BaseException as error:
        retryable = content is not None and _retryable(error, content.retry_on, in_body=in_body)
        failed = failure(error, usage=meter.usage(), retryable=retryable)
        if context is not None:
            # The body's own error is the one to tell.
            with suppress(StorageError, OSError):
                context.close()
        return failed


def _end_forked_child() -> NoReturn:
    """End a process that the body forked and that left the body: only the process that ran it makes the commit."""
    error = sys.exception()
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    elif error is not None:
        code = 1
        with suppress(OSError):
            os.write(2, format_error(error).encode("utf-8", "backslashreplace"))
    for stream in (sys.stdout, sys.stderr):
        # Closed, or replaced by something of the body's own.
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def _check_source(invocation: Invocation) -> None:
    changed = check_loaded(invocation.source_files)
    if changed:
        raise SourceChanged(
            f"step {invocation.name}: {', '.join(changed)} changed after the launch began",
            why="the process that ran the step imported other code than its record would name",
            next="run again",
        )


def _load_arguments(invocation: Invocation, content: Content, loader: Loader) -> dict[str, Any]:
    for file in content.files:
        file.check()

    def lookup(placeholder: Placeholder) -> Any:
        return loader.load(placeholder, invocation.inputs, content.annotations, root=invocation.root)

    return {name: substitute(value, lookup) for name, value in content.arguments.items()}


def _retryable(error: BaseException, retry_on: tuple[type[BaseException], ...], *, in_body: bool) -> bool:
    """Arguments, imports, sources, corrupt data and wrong results fail again in the same way."""
    if isinstance(error, (ImportError, PipelineError)) or not isinstance(error, retry_on):
        return False
    return in_body or isinstance(error, (StorageError, OSError))


def commit_files(store: Store, prefix: str) -> tuple[FileEntry, ...]:
    """Make the files below `prefix` durable and digest them. OutputError for what a manifest cannot hold."""
    if is_local(store):
        _check_kinds(f"{store.url}/{prefix}")
    before = store.list_files(prefix)
    if not before:
        return ()
    store.make_durable(prefix)
    start = len(prefix) + 1
    for entry in before:
        _check_name(entry.key[start:])
    refuse_secrets_in_result([entry.key[start:] for entry in before], where="the names of the output files")
    digests = store.map(store.digest, [entry.key for entry in before])
    if _state(store.list_files(prefix)) != _state(before):
        raise OutputError(
            f"files below {prefix} changed while they were digested",
            why="a thread or process that the step started still writes there",
            next="wait for it before the function returns",
        )
    if is_local(store):
        # A consumer that writes into its input must fail, not change what was committed.
        _make_read_only(f"{store.url}/{prefix}", [entry.key[start:] for entry in before])
    entries = [
        FileEntry(path=entry.key[start:], size=entry.size_bytes, digest=digest)
        for entry, digest in zip(before, digests, strict=True)
    ]
    return tuple(sorted(entries, key=lambda entry: entry.path))


def _make_read_only(folder: str, paths: list[str]) -> None:
    for path in paths:
        file = f"{folder}/{path}"
        os.chmod(file, stat.S_IMODE(os.stat(file).st_mode) & ~0o222)


def _state(entries: list[Entry]) -> list[tuple[str, int, str, float]]:
    return [(entry.key, entry.size_bytes, entry.version, entry.modified) for entry in entries]


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OutputError(
            f"the output file {os.fsencode(path)!r} has a name that is not UTF-8",
            why="records are JSON, and other kinds of storage cannot keep such a name",
            next="write the file under another name",
        ) from None


def _check_kinds(root: str) -> None:
    """OutputError unless `root` is a directory, or nothing, and holds directories and regular files alone.

    A link would be digested as the file it points to, which may change or vanish later.
    """
    for folder in (os.path.dirname(root), root):
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise OutputError(
                    f"the output directory {folder} was replaced by {_kind(folder)}",
                    why="what it leads to would be committed, and is not the engine's to keep",
                    next="write into ctx.output, and leave the directory itself alone",
                )
    pending = [root]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        raise OutputError(
                            f"the output holds {os.path.relpath(entry.path, root)!r}, {_kind(entry.path)}",
                            why="a manifest holds regular files, so that an output is the same on every storage",
                            next="copy the file instead" if entry.is_symlink() else "remove it before returning",
                        )
        except FileNotFoundError:
            # The body never touched its output.
            continue


def _kind(path: str) -> str:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return f"a symbolic link to {os.readlink(path)!r}"
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "no regular file")


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@functools.cache
def _open_proc(name: str, flags: int) -> int | None:
    """A file of this process below /proc, opened once: opening costs more than reading. None where there is none."""
    try:
        return os.open(f"/proc/self/{name}", flags | os.O_CLOEXEC)
    except OSError:
        return None


def _reset_peak() -> None:
    # Where this is not possible (macOS, some containers) the peak is that of the process so far.
    descriptor = _open_proc("clear_refs", os.O_WRONLY)
    if descriptor is not None:
        with suppress(OSError):
            os.write(descriptor, b"5")


def _peak_bytes() -> int:
    descriptor = _open_proc("status", os.O_RDONLY)
    if descriptor is None:
        return _rss_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    status = os.pread(descriptor, 4096, 0)
    start = status.index(b"VmHWM:") + 6
    return int(status[start : status.index(b"kB", start)]) * 1024


def _rss_bytes(ru_maxrss: int) -> int:
    """The kernel counts KiB on Linux, bytes on macOS."""
    return ru_maxrss if sys.platform == "darwin" else ru_maxrss * 1024


def usage_of(started: float, cpu_s: float, ru_maxrss: int) -> Usage:
    """Of a process that died. `started` in seconds since the epoch."""
    now = time.time()
    return Usage(
        started=started, ended=now, duration_s=now - started, cpu_s=cpu_s, peak_memory_bytes=_rss_bytes(ru_maxrss)
    )
