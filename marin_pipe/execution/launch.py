"""The record of a launch (what was asked for, when, by whom) and the labels that follow its targets."""

import secrets
import time
from typing import Any

from marin_storage import NotFound, Store

from marin_pipe.execution.graph import Graph
from marin_pipe.execution.layout import GC_FILE, launches_directory
from marin_pipe.execution.pin import pin_address
from marin_pipe.execution.records import Launch, LaunchStep, Provenance, encode


def new_run_id() -> str:
    """Sorts by time, unique by its random part: `20260630-142501-9f3c2a`."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def make_launch(
    graph: Graph, *, run: str, experiment: str, description: str, config: Any, provenance: Provenance
) -> Launch:
    """What a launch asks for, ready to be recorded."""
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
    """Record a launch. Durable: what a launch names is kept from collection by this record."""
    store.create(f"{launches_directory(launch.experiment)}/{launch.run}.json", encode(launch), durable=True)


def last_collection(store: Store) -> bytes:
    """Different after each `gc --delete`: a launch that sees it change may have looked at outputs that are gone."""
    try:
        return store.read(GC_FILE).data
    except NotFound:
        return b""
