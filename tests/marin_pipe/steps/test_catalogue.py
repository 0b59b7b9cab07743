"""The catalogue as a whole: cheap to import, and its page says what it is."""

import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import marin_pipe.steps

DOCS = Path(__file__).parents[3] / "docs"
HEAVY = (
    "numpy",
    "pyarrow",
    "polars",
    "tokenizers",
    "tiktoken",
    "resiliparse",
    "selectolax",
    "huggingface_hub",
    "fsspec",
)


@pytest.fixture(scope="module")
def page_writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_steps", DOCS / "steps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_driver_that_uses_every_step_loads_no_heavy_library() -> None:
    """Experiments are built in the driver; what works on data is loaded where a body runs."""
    names = [module.name for module in pkgutil.iter_modules(marin_pipe.steps.__path__, "marin_pipe.steps.")]
    assert len(names) > 8
    imports = "\n".join(f"import {name}" for name in [*names, "marin_corpus.filters.rules"])
    code = f"import sys\n{imports}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []


def test_the_page_of_steps_is_what_the_steps_say(page_writer: ModuleType) -> None:
    assert page_writer.PAGE.read_text() == page_writer.page(), "run: python docs/steps.py"


def test_every_module_and_argument_of_the_catalogue_is_described(page_writer: ModuleType) -> None:
    """A user reads what an argument does where it is not said by its name and its step's first line."""
    helpers = {"artifacts", "documents", "output"}
    modules = {module.name for module in pkgutil.iter_modules(marin_pipe.steps.__path__)} - helpers
    assert set(page_writer.MODULES) == modules
    for name in modules:
        module = importlib.import_module(f"marin_pipe.steps.{name}")
        for function_name, function, _ in page_writer.functions(module):
            assert function.__doc__, f"{name}.{function_name} says nothing"


def test_the_page_of_attributes_names_every_column() -> None:
    """An expression can only be written by who knows the columns."""
    from marin_corpus.dedup import contamination, exact, near, paragraphs
    from marin_corpus.filters import heuristics, language, pii, quality, rules

    page = (DOCS / "reference" / "attributes.md").read_text()
    modules = (heuristics, language, pii, quality, exact, paragraphs, near, contamination)
    columns = [name for module in modules for name in module.SCHEMA.names]
    assert len(columns) > 50
    names = [*columns, *(name for name in vars(rules) if name.isupper())]
    assert [name for name in names if f"`{name}`" not in page] == []
