"""Where and by whom a launch runs: git state, packages, host. Collected once per launch, only when something runs."""

import getpass
import hashlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path

from marin_storage import AlreadyExists, Store

from marin_pipe.execution.layout import packages_file
from marin_pipe.execution.records import Provenance
from marin_pipe.execution.secret import Redactor

_DISTRIBUTION = re.compile(r"^(?P<name>.+?)-(?P<version>[^-]+)\.(?:dist|egg)-info$")


def collect(store: Store, *, run: str, experiment: str | None, redactor: Redactor) -> Provenance:
    """Facts about this process and the code around the script it runs. Stores the list of packages if it is new."""
    script = Path(sys.argv[0]).resolve().parent if sys.argv and sys.argv[0] else Path.cwd()
    commit, dirty = git_state(script if script.is_dir() else Path.cwd())
    return Provenance(
        run=run,
        experiment=experiment,
        host=socket.gethostname(),
        user=user_name(),
        argv=tuple(redactor.redact(argument) for argument in sys.argv),
        python=platform.python_version(),
        git_commit=commit,
        git_dirty_digest=dirty,
        packages=_store_packages(store),
    )


def _store_packages(store: Store) -> str:
    """The digest under which the installed packages are on record."""
    text = json.dumps(installed_packages(), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    # Two launches may store the same list at once: equal bytes under one name are no conflict.
    try:
        store.create(packages_file(digest), text.encode())
    except AlreadyExists:
        # Torn by a power failure: no other bytes have this name.
        store.write(packages_file(digest), text.encode())
    return digest


def read_packages(store: Store, digest: str) -> dict[str, str]:
    """Name -> version of the packages that a record names."""
    packages: dict[str, str] = json.loads(store.read(packages_file(digest)).data)
    return packages


def user_name() -> str:
    """The login name, or the user id where there is none (containers)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def installed_packages() -> dict[str, str]:
    """Name -> version of every installed distribution, from the names of their metadata directories.

    Reading each distribution's metadata would cost fifty times as much.
    """
    found: dict[str, str] = {}
    for entry in sys.path:
        try:
            names = os.listdir(entry or ".")
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            match = _DISTRIBUTION.match(name)
            if match is not None:
                found.setdefault(match["name"].lower().replace("_", "-"), match["version"])
    return dict(sorted(found.items()))


def git_state(directory: Path) -> tuple[str | None, str | None]:
    """The commit checked out around `directory`, and a digest of what differs from it (None if nothing does)."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    root = _git(directory, "rev-parse", "--show-toplevel")
    difference = _git(directory, "diff", "HEAD", "--binary", "--no-ext-diff")
    untracked = _git(directory, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", ":/")
    digest = hashlib.sha256((difference or b"") + b"\0")
    for name in sorted((untracked or b"").split(b"\0")):
        if name and root is not None:
            path = Path(os.fsdecode(root.strip())) / os.fsdecode(name)
            digest.update(name + b"\0")
            if path.is_file() and path.stat().st_size <= 2**20:
                digest.update(path.read_bytes())
    dirty = digest.hexdigest() if difference or untracked else None
    return commit.decode().strip(), dirty


def _git(directory: Path, *arguments: str) -> bytes | None:
    """Output of a git command; None where there is no git or no repository: provenance is then silent about it."""
    try:
        result = subprocess.run(  # noqa: S603
            ["git", "-C", str(directory), *arguments],  # noqa: S607
            capture_output=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None
