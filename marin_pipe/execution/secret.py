"""Secrets."""
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Secret:
    name: str

    def __canonical__(self) -> Any:
        return {"$secret": None}
