"""`StepContext`: what a body may use of the attempt it runs in."""

import functools
import logging
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from marin_storage import Store, open_store

from marin_pipe.execution.layout import attempt_directory, work_directory
from marin_pipe.execution.metrics import Metrics
from marin_pipe.execution.progress import Progress
from marin_pipe.execution.resources import CPU, Resource

if TYPE_CHECKING:
    from upath import UPath


class StepContext:
    """One attempt at one step, as its body sees it. Everything is made when it is first touched."""

    def __init__(
        self,
        *,
        store: Store,
        name: str,
        attempt_key: str,
        work_key: str,
        earlier_work_keys: Sequence[str] = (),
        resources: Resource | None = None,
        seed: int = 0,
        work_mark: bytes = b"",
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.resources: Resource = resources if resources is not None else CPU()
        """What the step was given."""
        self.seed = seed
        """From the function, its own arguments and the inputs' digests: equal work has equal seeds."""
        self.store = store
        self.attempt_key = attempt_key
        self.output_key = f"{attempt_key}/output"
        self.work_key = work_key
        self.earlier_work_keys = tuple(earlier_work_keys)
        self._work_mark = work_mark
        self._stopped = stopped
        self._saw_stop = False
        self.looks_for_stop = False
        """Whether the body has asked `should_stop()`, and so ends by itself in an orderly way."""
        self.interrupted = False
        """Whether KeyboardInterrupt was raised in the body: what it returns after that may be half done."""
        self._progress: Progress | None = None
        self._staging: Path | None = None

    @classmethod
    def for_attempt(
        cls,
        store: Store,
        *,
        name: str,
        directory: str,
        attempt: str,
        earlier_work: Sequence[str],
        resources: Resource,
        seed: int,
        work_mark: bytes,
        stopped: Callable[[], bool],
    ) -> "StepContext":
        """The context of an attempt below `<directory>/attempts/<attempt>`."""
        return cls(
            store=store,
            name=name,
            attempt_key=attempt_directory(directory, attempt),
            work_key=work_directory(directory, attempt),
            earlier_work_keys=earlier_work,
            resources=resources,
            seed=seed,
            work_mark=work_mark,
            stopped=stopped,
        )

    @classmethod
    def for_test(
        cls,
        tmp_path: str | os.PathLike[str],
        *,
        name: str = "test",
        seed: int = 0,
        resources: Resource | None = None,
        earlier_work: Sequence[str] = (),
        should_stop: bool | Callable[[], bool] = False,
    ) -> "StepContext":
        """A context for calling a step as a plain function: `count.fn(docs, ctx=StepContext.for_test(tmp_path))`.

        Output is in `<tmp_path>/attempt/output`, resumable state in `<tmp_path>/work`. `earlier_work` names
        directories below `tmp_path`, newest first.
        """
        return cls(
            store=open_store(os.fspath(tmp_path)),
            name=name,
            attempt_key="attempt",
            work_key="work",
            earlier_work_keys=earlier_work,
            resources=resources,
            seed=seed,
            stopped=should_stop if callable(should_stop) else lambda: should_stop,
        )

    @cached_property
    def output(self) -> "UPath":
        """The attempt's data directory. Everything in it when the body returns is the step's output."""
        return self._directory(self.output_key)

    @cached_property
    def work(self) -> "UPath":
        """Resumable state (checkpoints, finished shards). A later attempt finds it in `earlier_work`."""
        if self._work_mark:
            self.store.write(f"{self.attempt_key}/work.json", self._work_mark)
        return self._directory(self.work_key)

    @cached_property
    def earlier_work(self) -> "tuple[UPath, ...]":
        """The `work` of earlier attempts at this step, newest first. Read it, never write into it."""
        return tuple(self.store.path(key) for key in self.earlier_work_keys)

    def local_output(self) -> Path:
        """A directory on this machine for libraries that cannot write to a URL.

        On a remote store its files are uploaded into `output`, under their relative names, when the body has returned.
        """
        local = self.store.local_path(self.output_key)
        if local is not None:
            local.mkdir(parents=True, exist_ok=True)
            return local
        if self._staging is None:
            import tempfile

            self._staging = Path(tempfile.mkdtemp(prefix="marin_pipe-output-"))
        return self._staging

    @cached_property
    def log(self) -> logging.Logger:
        """A logger whose lines go to the attempt's log, like everything the body prints."""
        return logging.getLogger(f"step.{self.name}")

    def progress(self, total: float | None = None, unit: str = "") -> Progress:
        """Begin to count towards `total` (None: unknown). A second call replaces the first count."""
        if self._progress is not None:
            self._progress.close()
        self._progress = Progress(self.store, f"{self.attempt_key}/progress.json", total=total, unit=unit)
        return self._progress

    @cached_property
    def metrics(self) -> Metrics:
        """`ctx.metrics.log(step, {"loss": 2.1})`: numbers over time, drawn by the browser."""
        return Metrics(self.store, self.attempt_key)

    def should_stop(self) -> bool:
        """Whether the body was asked to stop: preemption, cancel, timeout, Ctrl-C or a lost lease.

        Save resumable state in `work` and return or raise. Once this has returned True, whatever the body does counts
        as stopped: its output is never taken for whole.
        """
        self.looks_for_stop = True
        if self._stopped():
            self._saw_stop = True
        return self._saw_stop

    @property
    def saw_stop(self) -> bool:
        """Whether `should_stop()` has returned True."""
        return self._saw_stop

    def finish(self) -> None:
        """Upload what `local_output()` holds. The engine calls it when the body has returned."""
        if self._staging is not None:
            self.store.upload_tree(self._staging, self.output_key)

    def close(self) -> None:
        """Write the last progress and metrics, and remove staged files. The engine calls it, however the body ended."""
        if self._staging is not None:
            import shutil

            shutil.rmtree(self._staging)
            self._staging = None
        if self._progress is not None:
            self._progress.close()
        if "metrics" in self.__dict__:
            self.metrics.close()

    def _directory(self, key: str) -> "UPath":
        if is_local(self.store):
            os.makedirs(f"{self.store.url}/{key}", exist_ok=True)
        return self.store.path(key)


@functools.cache
def is_local(store: Store) -> bool:
    """Whether the objects are files of this machine, below the directory `store.url`."""
    return store.local_path("") is not None
