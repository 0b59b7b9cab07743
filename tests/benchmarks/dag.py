"""The graphs that the engine is measured on: steps that each write one small JSON file."""

import json
from typing import Any

from marin_pipe import Artifact, Step, StepContext, step


class Link(Artifact):
    """What a trivial step returns."""

    index: int


@step
def link(previous: Link | None, *, index: int, ctx: StepContext) -> Link:  # noqa: ARG001  an input is enough
    """Write one small file."""
    (ctx.output / "value.json").write_text(json.dumps({"index": index}))
    return Link(index=index)


@step
def join(parts: list[Link], *, ctx: StepContext) -> Link:
    """Read all results and write one small file."""
    total = sum(part.index for part in parts)
    (ctx.output / "value.json").write_text(json.dumps({"total": total}))
    return Link(index=total)


def chain(length: int) -> list[Step[Any]]:
    """`length` steps, each the input of the next."""
    steps: list[Step[Any]] = []
    for index in range(length):
        steps.append(link(steps[-1] if steps else None, index=index).named(f"bench/chain{index}"))
    return steps


def chain_fan_join(length: int) -> Step[Any]:
    """A chain of a tenth of `length`, a fan-out from its end, and one join: `length` steps in all."""
    links = chain(length // 10)
    fan = [link(links[-1], index=i).named(f"bench/fan{i}") for i in range(len(links), length - 1)]
    return join(fan).named("bench/join")
