"""Sample steps whose outputs are readable texts, so that a test can write down what each must hold."""

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from marin_pipe import Artifact, Ref, Runtime, StepContext, step


class Text(Artifact):
    """A text file and its length in characters."""

    length: int

    def read(self) -> str:
        return str((self.path / "text.txt").read_text())


def ran(name: str) -> None:
    """Note in the laboratory's notebook that a body ran."""
    with Path(os.environ["LAB_NOTEBOOK"]).open("a") as notebook:
        notebook.write(f"{name}\n")


def write(ctx: StepContext, text: str) -> Text:
    (ctx.output / "text.txt").write_text(text)
    return Text(length=len(text))


@step
def node(
    label: str, parts: tuple[Text, ...] = (), *, salt: Runtime[str] = "", fail: Runtime[bool] = False, ctx: StepContext
) -> Text:
    """`label(part,part)salt`. The salt stands for what a step should not depend on: time, chance, the weather."""
    ran(ctx.name)
    if fail:
        raise RuntimeError(f"{label} was told to fail")
    inside = f"({','.join(part.read() for part in parts)})" if parts else ""
    return write(ctx, f"{label}{inside}{salt}")


@dataclass(frozen=True, kw_only=True)
class Mixture:
    main: Ref[Text]
    weight: float = 1.0
    others: tuple[Ref[Text], ...] = ()


class Settings(BaseModel, frozen=True):
    corpus: Ref[Text]
    by_name: dict[str, Ref[Text]] = {}


@step
def nested(
    mixture: Mixture,
    settings: Settings,
    listed: list[Text],
    pair: tuple[Text, int],
    named: dict[str, Text],
    *,
    ctx: StepContext,
) -> Text:
    """All texts it was given, wherever they stood."""
    ran(ctx.name)
    mixed = (mixture.main, *mixture.others)
    texts = [*mixed, settings.corpus, *settings.by_name.values(), *listed, pair[0], *named.values()]
    assert all(type(text) is Text for text in texts)
    return write(ctx, "+".join(text.read() for text in texts if isinstance(text, Text)))


@step
def seed(label: str, parts: tuple[Text, ...] = (), *, ctx: StepContext) -> list[object]:
    """The seed it was given, and what it was given it for."""
    return [ctx.seed, label, *(part.read() for part in parts)]
