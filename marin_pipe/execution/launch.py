"""The record of a launch (what was asked for, when, by whom) and the labels that follow its targets."""

import secrets
import time
from typing import Any

from marin_storage import NotFound, Store

from marin_pipe.execution.graph import Graph
from marin_pipe.execution.layout import GC_FILE, launches_directory
from marin_pipe.execution.pin import pin_address
from marin_pipe.execution.records import Launch, LaunchStep, Provenance, encode, parse


def new_run_id() -> str:
    """Sorts by time, unique by its random part: `20260630-142501-9f3c2a`."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def make_launch(
    graph: Graph, *, run: str, experiment: str, description: str, config: Any, provenance: Provenance
) -> Launch:
    return Launch(
        run=run,
        experiment=experiment,
        created=time.time(),
        description=description,
        config=config,
        targets={name: node.directory for name, node in graph.targets.items()},
        steps=tuple(
            LaunchStep(
                name=node.name,
                key=node.step.key,
                directory=node.directory,
                function=node.step.function.name,
                inputs=tuple(upstream.directory for upstream in node.inputs),
                pin=pin_address(node.step.options.pin) if node.step.options.pin is not None else None,
            )
            for node in graph.nodes
        ),
        provenance=provenance,
    )


def write_launch(store: Store, launch: Launch) -> None:
    # Durable: what a launch names is kept from collection by this record.
    store.create(f"{launches_directory(launch.experiment)}/{launch.run}.json", encode(launch), durable=True)


def list_launches(store: Store, experiment: str) -> list[str]:
    """Run ids of an experiment, newest first."""
    names = [entry.key.rpartition("/")[2] for entry in store.list_directory(launches_directory(experiment)).files]
    return sorted((name.removesuffix(".json") for name in names if name.endswith(".json")), reverse=True)


def read_launch(store: Store, experiment: str, run: str) -> Launch:
    key = f"{launches_directory(experiment)}/{run}.json"
    launch: Launch = parse(Launch, store.read(key).data, key=key)
    return launch


def last_collection(store: Store) -> bytes:
    """Different after each `gc --delete`: a launch that sees it change may have looked at outputs that are gone."""
    try:
        return store.read(GC_FILE).data
    except NotFound:
        return b""
