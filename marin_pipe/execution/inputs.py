"""Files from outside as arguments."""
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InputFile:
    url: str

    def resolved(self) -> "InputFile":
        return self

    def __canonical__(self) -> Any:
        return {"$file": self.url}


@dataclass(frozen=True)
class InputFiles:
    url: str

    def resolved(self) -> "InputFiles":
        return self

    def __canonical__(self) -> Any:
        return {"$files": self.url}
