"""`doctor`: is this machine and this storage root fit to run? A line per check, with the fix."""

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
from marin_storage import NotFound, StorageError, Store, probe

from marin_pipe.cli.context import App, is_new
from marin_pipe.cli.output import human_size, print_line
from marin_pipe.execution.errors import ExitCode
from marin_pipe.execution.layout import PROJECT, STORE_FILE
from marin_pipe.execution.machine import local_capacity

_LOW_DISK_BYTES = 5 * 2**30
"""A small tokenized corpus with a few checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding. `fix` says what to do about a warning or a failure; a note says what is not there, nor needed."""

    level: Literal["ok", "note", "warn", "fail"]
    what: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class _Cloud:
    """A kind of root that needs more than the core."""

    schemes: tuple[str, ...]
    extra: str
    module: str
    service: str
    variables: tuple[str, ...]
    """Where credentials may come from: environment variables, and a file."""
    file: str


_CLOUDS = (
    _Cloud(
        schemes=("gs", "gcs"),
        extra="gcs",
        module="gcsfs",
        service="Google Cloud",
        variables=("GOOGLE_APPLICATION_CREDENTIALS",),
        file="~/.config/gcloud/application_default_credentials.json",
    ),
    _Cloud(
        schemes=("s3", "s3a"),
        extra="s3",
        module="s3fs",
        service="AWS",
        variables=("AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
        file="~/.aws/credentials",
    ),
)


@click.command("doctor", help="Check Python, devices, disk, credentials and the storage root. Exit 1 if one fails.")
@click.option(
    "--probe",
    "write",
    is_flag=True,
    help="Also try conditional writes: makes and deletes one small object below ROOT/.marin_pipe/.",
)
@click.pass_obj
def doctor_command(app: App, *, write: bool) -> int:
    """Print the checks as they are made: the slow ones (storage) come last."""
    failed = False
    for check in (*machine_checks(), *cloud_checks(app.root), *storage_checks(app, write=write)):
        failed |= check.level == "fail"
        print_line(f"{check.level:<5}{check.what}")
        if check.fix:
            print_line(f"     -> {check.fix}")
    return ExitCode.FAILED if failed else ExitCode.OK


def machine_checks() -> Iterator[Check]:
    """Python, platform, cores, memory and accelerators."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check(level="ok", what=f"Python {version} ({sys.executable})")
    if sys.platform == "win32":
        yield Check(level="fail", what="Windows", fix="worker processes need a POSIX system: use WSL")
    else:
        yield Check(level="ok", what=f"{platform.system()} {platform.release()}, {platform.machine()}")
    has = local_capacity()
    yield Check(level="ok", what=f"{has.cpus:g} cores, {human_size(has.memory_bytes)} of memory")
    if has.gpus:
        yield Check(level="ok", what=f"{len(has.gpus)} GPUs: {has.gpu_kind or 'unknown kind'}")
    if has.tpu is not None:
        yield Check(level="ok", what=f"TPU slice {has.tpu}")
    if not has.gpus and has.tpu is None:
        yield Check(level="note", what="no accelerator: steps that ask for GPU or TPU cannot run here")


def cloud_checks(root: str) -> Iterator[Check]:
    """Whether buckets can be used. Names of credentials only: nothing is read, so nothing can leak."""
    for cloud in _CLOUDS:
        needed = "://" in root and root.partition("://")[0].lower() in cloud.schemes
        fix = f'python -m pip install "marin-pipe[{cloud.extra}]"'
        if importlib.util.find_spec(cloud.module) is not None:
            yield Check(level="ok", what=f"{cloud.schemes[0]}:// roots: {cloud.module} is installed")
        elif needed:
            yield Check(level="fail", what=f"{cloud.module} is not installed, and {root} needs it", fix=fix)
        else:
            yield Check(level="note", what=f"{cloud.schemes[0]}:// roots: {cloud.module} is not installed ({fix})")
            continue
        sources = [name for name in cloud.variables if os.environ.get(name)]
        if Path(cloud.file).expanduser().exists():
            sources.append(cloud.file)
        found = f"credentials of {cloud.service}: {', '.join(sources) or 'none found'}"
        yield Check(level="ok" if sources else "warn" if needed else "note", what=found)


def storage_checks(app: App, *, write: bool) -> Iterator[Check]:
    """The root: reachable, with room, and honest about conditional writes (if asked to write)."""
    try:
        store = app.store
        local = store.local_path("")
        if local is not None:
            yield from _disk_checks(local)
        if is_new(store):
            yield Check(level="note", what=f"root {store.url}: does not exist; the first run makes it")
        else:
            names = store.list_directory("").directories
            yield Check(level="ok", what=f"root {store.url}: readable, {len(names)} entries")
        yield _probe(store) if write else _earlier_probe(store)
    except StorageError as error:
        yield Check(
            level="fail", what=f"root {app.root}: {error}", fix="check --root, MARIN_PIPE_ROOT and the credentials"
        )


def _disk_checks(root: Path) -> Iterator[Check]:
    there = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        yield Check(
            level="warn", what=f"{there} is read-only for this user", fix="cached steps are served; no step can run"
        )
    if free < _LOW_DISK_BYTES:
        fix = "free some, or choose another --root; `marin-pipe gc` says what could go"
        yield Check(level="warn", what=f"{human_size(free)} free at {there}", fix=fix)
    else:
        yield Check(level="ok", what=f"{human_size(free)} free at {there}")


def _probe(store: Store) -> Check:
    result = probe(store, prefix=PROJECT)
    if result.passed:
        return Check(level="ok", what=f"root {store.url}: conditional writes are honoured")
    fix = "use another store; --single-writer accepts this one for a single run at a time"
    return Check(level="fail", what=f"root {store.url}: {'; '.join(result.problems)}", fix=fix)


def _earlier_probe(store: Store) -> Check:
    try:
        store.read(STORE_FILE)
    except NotFound:
        return Check(level="note", what="conditional writes not tried yet: the first run does, or `doctor --probe` now")
    return Check(level="ok", what="conditional writes passed the probe of an earlier run")
