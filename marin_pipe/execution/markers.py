"""What users write in annotations and return from steps: `Artifact`, `Runtime`, `OmitAt`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr

if TYPE_CHECKING:
    from upath import UPath

T = TypeVar("T")


class RuntimeMarker:
    """Marks an argument or field that bears no identity."""

    def __repr__(self) -> str:
        return "Runtime"


RUNTIME = RuntimeMarker()

Runtime = Annotated[T, RUNTIME]
"""`workers: Runtime[int] = 2`: the value reaches the step but never its key."""


@dataclass(frozen=True)
class OmitAt:
    """`Annotated[T, OmitAt(value)]`: an argument added later keeps old keys while it has this value."""

    value: Any


class Artifact(BaseModel):
    """A step's typed result: JSON-able fields, stored in the record. `.path` is the data directory once loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _path: Any = PrivateAttr(default=None)

    @property
    def path(self) -> "UPath":
        """The committed data directory. Raises AttributeError on an artifact that was not loaded from a commit."""
        if self._path is None:
            raise AttributeError(
                f"{type(self).__name__}.path is set when the artifact is loaded from a commit; inside the step that "
                "makes it, write to ctx.output"
            )
        from upath import UPath

        return UPath(self._path)

    def located_at(self, path: str) -> "Artifact":
        """A copy of this artifact whose `.path` is `path`."""
        copy = self.model_copy()
        copy._path = path
        return copy
