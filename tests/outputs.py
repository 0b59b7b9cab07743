"""What lies below a root, read without the engine's help: the commits of each step, and whether they are whole."""

import json
from typing import Any

from marin_storage import Store

CommitsByStep = dict[str, dict[int, dict[str, Any]]]


def read_commits(store: Store) -> CommitsByStep:
    """Step directory -> commit number -> its record, as JSON."""
    found: CommitsByStep = {}
    for entry in store.list_files(""):
        directory, _, name = entry.key.rpartition("/")
        if "/attempts/" in f"/{entry.key}" or directory.startswith(".marin_pipe"):
            continue
        if name == "commit.json" or (name.startswith("commit.") and name.endswith(".json")):
            number = 1 if name == "commit.json" else int(name.split(".")[1])
            found.setdefault(directory, {})[number] = json.loads(store.read(entry.key).data)
    return found


def check_whole(store: Store) -> CommitsByStep:
    """The commits, after a look at every byte that they name: nothing is missing, changed or left out."""
    commits = read_commits(store)
    for directory, by_number in commits.items():
        for number, commit in by_number.items():
            assert commit["number"] == number
            prefix = (
                f"{directory}/attempts/{commit['attempt']}/output"
                if commit["kind"] == "built"
                else commit["source_data"]
            )
            expected = {f"{prefix}/{file['path']}": (file["size"], file["digest"]) for file in commit["manifest"]}
            present = {e.key: (e.size_bytes, store.digest(e.key)) for e in store.list_files(prefix)}
            assert present == expected, f"{directory}, commit {number}: torn"
    return commits


def check_once(store: Store, steps: int) -> CommitsByStep:
    """`check_whole`; and `steps` steps have one commit each."""
    commits = check_whole(store)
    assert [list(numbers) for numbers in commits.values()] == [[1]] * steps
    return commits
