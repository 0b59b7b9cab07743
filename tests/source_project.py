"""A folder of modules to be fingerprinted."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from marin_pipe.execution.source import Fingerprint, fingerprint

HELPER = "def clean(text):\n    return text.strip()\n\ndef other():\n    return 1\n"


class Project:
    """A folder of modules on `sys.path`, none of which is imported."""

    def __init__(self, folder: Path):
        self.folder = folder

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def root(self, module: str = "exp", qualname: str = "main") -> Callable[..., Any]:
        """Stands for a function of a module that the driver has imported."""

        def function() -> None: ...

        function.__module__, function.__qualname__ = module, qualname
        loaded = ModuleType(module)
        path = self.folder / (module.replace(".", "/") + ".py")
        loaded.__file__ = str(path if path.exists() else path.with_suffix("") / "__init__.py")
        loaded.__package__ = module.rpartition(".")[0]
        sys.modules[module] = loaded
        return function

    def fingerprint(self, module: str = "exp", qualname: str = "main") -> Fingerprint:
        return fingerprint([self.root(module, qualname)])
