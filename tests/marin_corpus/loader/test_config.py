"""Settings that cannot be honoured are refused with field, value and rule."""

from typing import Any

import pytest
from marin_corpus.errors import BadConfig
from marin_corpus.loader.config import ComponentConfig, LoaderConfig, SimulatedEpochs, StageConfig

TWO = (ComponentConfig(name="a", weight=1), ComponentConfig(name="b", weight=1))


@pytest.mark.parametrize(
    ("make", "fields", "message"),
    [
        (ComponentConfig, {"name": ""}, "name='' must not be empty"),
        (ComponentConfig, {"name": "a", "weight": -1.0}, "weight=-1.0 must be"),
        (ComponentConfig, {"name": "a", "weight": float("nan")}, "weight=nan must be"),
        (ComponentConfig, {"name": "a", "max_epochs": 0.0}, "max_epochs=0.0 must be above 0"),
        (StageConfig, {"weights": {"a": 1.0}}, "start_step=None, start_tokens=None"),
        (StageConfig, {"start_step": 1, "start_tokens": 1, "weights": {"a": 1.0}}, "start_step=1, start_tokens=1"),
        (StageConfig, {"start_step": 0, "weights": {"a": 1.0}}, "begins at 0"),
        (StageConfig, {"start_step": 1}, "changes nothing"),
        (StageConfig, {"start_step": 1, "weights": {"a": -2.0}}, r"weights\['a'\]=-2.0"),
        (StageConfig, {"start_step": 1, "global_batch_size": 0}, "global_batch_size=0"),
        (SimulatedEpochs, {"experiment_tokens": 9, "target_tokens": 8}, "experiment_tokens=9"),
    ],
)
def test_parts(make: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        make(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sequence_length": 0}, "sequence_length=0"),
        ({"global_batch_size": -3}, "global_batch_size=-3"),
        ({"components": ()}, "components is empty"),
        ({"components": (TWO[0], TWO[0])}, "names 'a' twice"),
        ({"components": (TWO[0], ComponentConfig(name="b"))}, "'b' has no weight"),
        ({"components": (ComponentConfig(name="a", weight=0),)}, "all weights are 0"),
        ({"weights": "tokens"}, "weight=1, which weights='tokens' would not use"),
        ({"weights": "other"}, "weights='other' must be one of given, tokens, sqrt"),
        ({"packing": "other"}, "packing='other' must be one of"),
        ({"packing": "documents", "segments": True}, "segments=True goes with"),
        ({"stages": (StageConfig(start_step=1, weights={"z": 1}),)}, "'z', which is no component"),
    ],
)
def test_loader(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        LoaderConfig(**{"sequence_length": 8, "global_batch_size": 4, "components": TWO, **fields})
