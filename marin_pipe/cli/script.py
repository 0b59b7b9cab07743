"""What an experiment file contributes to an invocation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marin_pipe.cli.fields import NO_FIELDS, Fields
from marin_pipe.execution.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Script:
    """An experiment, ready to be asked for its graph."""

    name: str
    description: str
    build: Callable[[Any], Graph]
    """From the config (None if there is none) to the graph."""
    config_class: type | None = None
    default: Any = None
    fields: Fields = NO_FIELDS
