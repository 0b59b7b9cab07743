"""Starting a driver is cheap because heavy packages are imported by the function that needs them."""

import subprocess
import sys

import pytest

STORAGE = {"boto3", "botocore", "fsspec", "gcsfs", "s3fs", "upath"}
COMPUTE = {"flax", "jax", "numpy", "pandas", "ray", "torch", "transformers"}
HEAVY = STORAGE | COMPUTE | {"asyncio", "draccus", "rich"}


@pytest.mark.parametrize("module", ["marin_pipe", "marin_storage", "marin_pipe.cli.main"])
def test_import_loads_no_heavy_package(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.splitlines())
    assert module in loaded
    assert loaded & HEAVY == set()
