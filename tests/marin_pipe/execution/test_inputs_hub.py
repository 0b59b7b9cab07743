"""Files of the Hugging Face hub as arguments: known by what the hub lists, through its real client."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub, Repository

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SMALL, LARGE = b"a small file", b"a large file" * 1000
LISTING = """
import json, logging, sys
from marin_pipe import InputFiles
from marin_pipe.execution.inputs import InputChanged

logging.basicConfig(level=logging.INFO)
files = InputFiles(sys.argv[1]).resolved()
files.check()
for path in files.paths:
    files.check_content(path, path.read_bytes())
    try:
        files.check_content(path, b"another file")
    except InputChanged:
        continue
    raise AssertionError(f"{path}: another file was taken for it")
print(json.dumps([[entry.path, entry.size, entry.digest] for entry in files.entries]))
"""


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    pytest.importorskip("huggingface_hub")
    files = {"data/small.jsonl": SMALL, "data/deep/large.jsonl": LARGE, "README.md": b"# about"}
    hub = FakeHub([Repository("dataset", "people/speeches", COMMIT, files)])
    yield hub
    hub.close()


def test_files_are_known_by_the_hubs_digests_without_being_fetched(hub: FakeHub, tmp_path: Path) -> None:
    """In a process of its own: the client reads where the hub is when it is imported."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    variables |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    url = f"hf://datasets/people/speeches@{COMMIT}/data/**/*.jsonl"
    line = [sys.executable, "-c", LISTING, url]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    git = subprocess.run(["git", "hash-object", "--stdin"], input=SMALL, capture_output=True, check=True)
    assert json.loads(done.stdout) == [
        ["deep/large.jsonl", len(LARGE), f"sha256:{hashlib.sha256(LARGE).hexdigest()}"],
        ["small.jsonl", len(SMALL), f"git:{git.stdout.decode().strip()}"],
    ]
    listed = [request for request in hub.requests if "resolve" not in request]
    assert hub.requests[: len(listed)] == listed, "files were fetched before they were asked for"
    # Addresses of private files hold signatures, which would end up in the log of the attempt.
    assert "HTTP Request" not in done.stderr
