"""A laboratory for the engine: a folder for experiment modules, a root for outputs, and a notebook of what ran."""

import importlib
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from marin_storage import open_store

from marin_pipe import Step, plan, run
from marin_pipe.execution.observe import observe
from marin_pipe.execution.plan import PlannedStep
from marin_pipe.execution.records import Served
from marin_pipe.execution.report import RunReport, StepReport
from marin_pipe.execution.selection import Selection

Steps = Mapping[str, Step[Any]] | Iterable[Step[Any]] | Step[Any]


@dataclass(kw_only=True)
class Lab:
    """Runs and plans inline below `folder`, where `module` puts importable files."""

    folder: Path
    reports: list[RunReport] = field(default_factory=list)

    @property
    def root(self) -> str:
        return str(self.folder / "outputs")

    def module(self, text: str, name: str = "exp") -> ModuleType:
        """Write a module and import it anew, as the next process would."""
        path = self.folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return self.imported(name)

    def edit(self, old: str, new: str, name: str = "exp", *, entry: str = "exp") -> ModuleType:
        """Edit a module, and import `entry` anew."""
        path = self.folder / f"{name.replace('.', '/')}.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return self.imported(entry)

    def imported(self, name: str) -> ModuleType:
        for known, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(str(self.folder)):
                del sys.modules[known]
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    def run(
        self, steps: Steps, *, backend: Any = "inline", selection: dict[str, Any] | None = None, **options: Any
    ) -> dict[str, StepReport]:
        """Run and return the ends of the steps by name; the whole report is `reports[-1]`."""
        chosen = Selection(**{k: _patterns(v) for k, v in (selection or {}).items()})
        self.reports.append(run(steps, root=self.root, backend=backend, selection=chosen, **options))
        return {end.name: end for end in self.reports[-1].steps}

    def statuses(self, steps: Steps, **options: Any) -> dict[str, str]:
        return {name: end.status for name, end in self.run(steps, **options).items()}

    def plan(self, steps: Steps, *, selection: dict[str, Any] | None = None, **options: Any) -> dict[str, PlannedStep]:
        chosen = Selection(**{k: _patterns(v) for k, v in (selection or {}).items()})
        return {row.name: row for row in plan(steps, root=self.root, selection=chosen, **options).steps}

    def actions(self, steps: Steps, **options: Any) -> dict[str, str]:
        return {name: row.action for name, row in self.plan(steps, **options).items()}

    @property
    def exit_code(self) -> int:
        return int(self.reports[-1].exit_code)

    def ran(self) -> list[str]:
        """Names of the steps whose bodies ran since the last call, in order."""
        notebook = Path(os.environ["LAB_NOTEBOOK"])
        names = notebook.read_text().split() if notebook.exists() else []
        notebook.unlink(missing_ok=True)
        return names

    def commit(self, step: Step[Any]) -> Served | None:
        return observe(open_store(self.root), step.directory).commit

    def output(self, step: Step[Any]) -> Path:
        """The committed data directory."""
        return Path(str(step.load(root=self.root).path))

    def delete(self, step: Step[Any]) -> None:
        shutil.rmtree(Path(self.root, step.directory))

    def snapshot(self) -> dict[str, tuple[int, int, bytes]]:
        """Everything below the root: time of change, inode and content by path."""
        found = {}
        for path in sorted(Path(self.root).rglob("*")):
            status = path.stat()
            found[str(path)] = (status.st_mtime_ns, status.st_ino, path.read_bytes() if path.is_file() else b"")
        return found


def _patterns(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value
