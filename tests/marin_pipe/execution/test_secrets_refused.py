"""Where a secret is refused: whatever would be stored or shown of a step, from its arguments to its output."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import Lab
from pydantic import BaseModel, field_validator

from marin_pipe import Secret, StepContext, step
from marin_pipe.execution.errors import GraphError, PipelineError, ResultError
from marin_pipe.execution.graph import build_graph
from marin_pipe.execution.secret import refuse_secrets_in_json

VALUE = "correct-horse-battery-staple"
LONG = "long-" + "0123456789abcdef" * 12
TOKEN = "hf_" + "a1B2c3D4" * 5
HIDDEN = re.compile("horse|0123456789abcdef|a1B2c3D4")


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", VALUE)
    monkeypatch.setenv("LONG_TOKEN", LONG)


@dataclass(frozen=True)
class Config:
    size: int
    note: str = ""


class Strict(BaseModel):
    size: int
    note: str = ""

    @field_validator("size")
    @classmethod
    def positive(cls, size: int) -> int:
        if size < 0:
            raise ValueError("must be positive")
        return size


@step
def anything(value: Any = None) -> str:
    return str(value)


@step
def typed(size: int = 0, sizes: list[int] | None = None, config: Config | None = None) -> str:
    return repr((size, sizes, config))


EVERYWHERE = [VALUE, LONG, TOKEN]


@pytest.mark.parametrize("secret", EVERYWHERE)
@pytest.mark.parametrize(
    "build",
    [
        lambda secret: anything(secret),
        lambda secret: anything(secret.encode()),
        lambda secret: anything([bytearray(secret.encode())]),
        lambda secret: anything({"a": b"\xff" * 300 + secret.encode()}),
        lambda secret: anything(re.compile(secret.encode())),
        lambda secret: anything(np.str_(secret)),
        lambda secret: anything(Path(secret)),
        lambda secret: anything().named(secret),
        lambda secret: anything().named(f"exp001/{secret}/count"),
        lambda secret: anything().versioned(secret),
        lambda secret: anything().pinned_to(f"https://{secret}@host/x", reason="there"),
        lambda secret: anything().pinned_to("there", reason=secret),
        lambda secret: anything().environment({secret: "1"}),
        lambda secret: step(name=secret)(typed.fn),
        lambda secret: step(version=secret)(typed.fn),
        lambda secret: build_graph({secret: anything()}),
        lambda secret: build_graph({"a": anything(), f"x/{secret}": anything()}),
        lambda secret: refuse_secrets_in_json({"config": [{"token": secret, "nan": float("nan")}]}, where="the config"),
    ],
)
def test_it_is_refused_when_the_step_is_built(build: Any, secret: str) -> None:
    with pytest.raises(GraphError, match="contains") as caught:
        build(secret)
    assert not HIDDEN.search(str(caught.value))
    assert "Secret(" in caught.value.next


@pytest.mark.parametrize("secret", EVERYWHERE)
@pytest.mark.parametrize(
    "build",
    [
        lambda secret: typed(secret),
        lambda secret: typed([secret]),
        lambda secret: typed(secret.encode()),
        lambda secret: typed({"a": secret}),
        lambda secret: typed(sizes=[1, secret]),
        lambda secret: typed(sizes={secret: 1}),
        lambda secret: typed(config=Config("x", note=secret)),  # type: ignore[arg-type]
        lambda secret: typed(config=secret),
        lambda secret: typed(1, None, None, secret),
        lambda secret: typed(**{secret: 1}),
        lambda secret: anything(Strict.model_construct(size=secret)),
        lambda secret: anything(Strict.model_construct(size=True, note=secret)),
        lambda secret: typed(size=Strict(size=1, note=secret)),
    ],
)
def test_no_message_shows_it_or_a_piece_of_it(build: Any, secret: str) -> None:
    with pytest.raises(PipelineError) as caught:
        build(secret)
    assert not HIDDEN.search(str(caught.value))


def test_a_declared_secret_counts_whatever_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN_OF_THIS_TEST", "somebody:something")
    anything("somebody:something")
    Secret("LOGIN_OF_THIS_TEST")
    with pytest.raises(GraphError, match="LOGIN_OF_THIS_TEST"):
        anything("somebody:something")


MAKES = """
import os
from marin_pipe import Artifact, Secret, StepContext, step

class Login(Artifact):
    user: str
    headers: dict[str, list[str]]

TOKEN = os.environ["SERVICE_TOKEN"]

@step
def text() -> str:
    return f"Bearer {TOKEN}"

@step
def nested() -> dict[str, list[str]]:
    return {"a": ["x", TOKEN]}

@step
def key() -> dict[str, int]:
    return {TOKEN: 1}

@step
def artifact() -> Login:
    return Login(user="me", headers={"auth": [TOKEN]})

@step
def known_kind() -> str:
    return "hf_" + "a1B2c3D4" * 5

@step
def file(*, ctx: StepContext) -> None:
    (ctx.output / f"{TOKEN}.txt").write_text("x")

@step
def metric(*, ctx: StepContext) -> None:
    ctx.metrics.log(1, {TOKEN: 1.0})

@step
def unit(*, ctx: StepContext) -> None:
    ctx.progress(total=3, unit=TOKEN)

@step
def revealed(login: Secret) -> str:
    return login.reveal()
"""


@pytest.mark.parametrize(
    "name", ["text", "nested", "key", "artifact", "known_kind", "file", "metric", "unit", "revealed"]
)
def test_an_output_that_holds_it_is_not_committed(lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN_OF_THE_BODY", "correct-horse:unsafe")
    module = lab.module(MAKES)
    made = module.revealed(Secret("LOGIN_OF_THE_BODY")) if name == "revealed" else getattr(module, name)()
    end = lab.run(made)[name]
    assert end.status == "failed"
    assert end.failure is not None
    assert end.failure.error_type.endswith("ResultError")
    assert "Secret(" in end.failure.message
    assert lab.commit(made) is None
    for path, (_, _, content) in lab.snapshot().items():
        assert not HIDDEN.search(content.decode(errors="replace")), path


def test_a_message_of_the_progress_is_redacted_like_a_line_of_the_log(tmp_path: Path) -> None:
    with StepContext.for_test(tmp_path).progress(total=3) as progress:
        progress.update(message=f"using {VALUE}")
    assert "[SERVICE_TOKEN redacted]" in (tmp_path / "attempt/progress.json").read_text()


def test_a_metric_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    context = StepContext.for_test(tmp_path)
    with pytest.raises(ResultError, match="the name of a metric contains"):
        context.metrics.log(1, {VALUE: 1.0})
    context.close()
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
