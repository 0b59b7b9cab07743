"""The floor of the engine benchmark: a loop in one process that makes the storage calls of a cold (or cached) launch,
and nothing else: `python -m tests.benchmarks.bare_loop LENGTH ROOT [cached]`.
"""

import hashlib
import json
import sys

from marin_storage import Store, open_store


def cold_step(store: Store, directory: str, index: int) -> None:
    lease = json.dumps({"owner": f"{index:016x}", "beat": 0}).encode()
    version = store.create(f"{directory}/lease.json", lease)
    attempt = f"{directory}/attempts/000001-abcdef"
    store.write(f"{attempt}/output/value.json", json.dumps({"index": index}).encode())
    store.make_durable(f"{attempt}/output")
    store.list_files(f"{attempt}/output")
    digest = store.digest(f"{attempt}/output/value.json")
    store.list_files(f"{attempt}/output")
    store.read(f"{directory}/lease.json")
    # As long as the record of a trivial step.
    record = json.dumps({"digest": digest, "padding": "x" * 6000}).encode()
    store.create(f"{directory}/commit.json", record, durable=True)
    key = hashlib.sha256(directory.encode()).hexdigest()
    store.write(f".marin_pipe/builds/{key}.json", json.dumps({"directory": directory}).encode())
    store.replace(f"{directory}/lease.json", json.dumps({"owner": None, "beat": index}).encode(), version=version)


def main() -> None:
    length, root, *rest = sys.argv[1:]
    store = open_store(root)
    for index in range(int(length)):
        directory = f"bench/step{index}-{index:016x}"
        if rest == ["cached"]:
            store.list_directory(directory)
            json.loads(store.read(f"{directory}/commit.json").data)
        else:
            cold_step(store, directory, index)


if __name__ == "__main__":
    main()
