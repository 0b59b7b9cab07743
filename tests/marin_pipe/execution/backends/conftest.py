"""Running single bodies on a backend, without an engine."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from marin_storage import Store, open_store

from marin_pipe.execution.backends.base import Backend, Completed, Control, Failed, LoadedInput, Task
from marin_pipe.execution.backends.local import LocalBackend
from marin_pipe.execution.handle import Step
from marin_pipe.execution.layout import attempt_directory
from marin_pipe.execution.logs import LogWriter, read_log
from marin_pipe.execution.resources import CPU, Resource
from marin_pipe.execution.secret import Redactor


@pytest.fixture(scope="session")
def bodies() -> Iterator[Any]:
    """The module `backend_bodies`, importable here and in workers."""
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    module: ModuleType = importlib.import_module("backend_bodies")
    yield module
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def local(bodies: ModuleType) -> Iterator[LocalBackend]:  # noqa: ARG001  workers inherit its import path
    """A local backend shared by the tests of a file, so that workers are reused."""
    backend = LocalBackend(max_workers=2)
    yield backend
    backend.close()


@dataclass(frozen=True)
class Ran:
    """What became of one body."""

    result: Completed | Failed
    log: tuple[str, ...]
    attempt: str
    """Attempt directory."""

    @property
    def value(self) -> Any:
        assert isinstance(self.result, Completed), self.result
        return self.result.result

    @property
    def failed(self) -> Failed:
        assert isinstance(self.result, Failed), self.result
        return self.result


Runner = Callable[..., Ran]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "root"))


@pytest.fixture
def run(local: LocalBackend, store: Store) -> Runner:
    """Run one step on the local backend (or another)."""
    return make_runner(store, local)


@pytest.fixture
def run_at() -> Callable[[Store, Backend], Runner]:
    """Run steps on another store."""
    return make_runner


def make_runner(store: Store, default: Backend) -> Runner:
    count = 0

    def run(
        step: Step[Any],
        *,
        backend: Backend = default,
        control: Control | None = None,
        inputs: Mapping[Step[Any], Ran] | None = None,
        resources: Resource | None = None,
        devices: tuple[int, ...] = (),
        earlier_work: tuple[str, ...] = (),
        verify: Any = "sizes",
        seed: int = 0,
        secrets: Mapping[str, str] | None = None,
        source_files: Mapping[str, str] | None = None,
    ) -> Ran:
        nonlocal count
        count += 1
        attempt = f"{count:06d}-abcdef"
        task = Task(
            step=step,
            root=store.url,
            directory=step.directory,
            attempt=attempt,
            earlier_work=earlier_work,
            inputs={up.directory: _loaded(store, up, ran) for up, ran in (inputs or {}).items()},
            resources=resources or CPU(),
            devices=devices,
            seed=seed,
            source_files=source_files or {},
            verify=verify,
        )
        directory = attempt_directory(step.directory, attempt)
        log = LogWriter(store, directory, Redactor(secrets or {}))
        try:
            result = backend.execute(task, log=log, control=control or Control())
        finally:
            log.close()
        return Ran(result, tuple(line.text for line in read_log(store, directory)), directory)

    return run


def _loaded(store: Store, upstream: Step[Any], ran: Ran) -> LoadedInput:
    assert isinstance(ran.result, Completed)
    return LoadedInput(
        directory=upstream.directory,
        data_url=f"{store.url}/{ran.attempt}/output",
        result=ran.result.result,
        annotation=upstream.function.hints.get("return"),
        manifest=ran.result.manifest,
        rebuild=f"rebuild it with `run --force {upstream.name}`",
    )


@pytest.fixture
def python() -> Callable[..., str]:
    """Run a Python program to its end; what it printed to both streams."""

    def run(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run
