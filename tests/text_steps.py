"""Documents of given texts, as steps make and get them."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from speeches import write_documents

from marin_pipe import StepContext
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.documents import documents_artifact


def fill(ctx: StepContext, texts: Sequence[str], *, source: str = "test", num_parts: int = 1) -> Documents:
    """The body of a step whose output is these texts."""
    made = write_documents(ctx.local_output(), texts, source=source, num_parts=num_parts)
    return documents_artifact([vars(part) for part in made.parts])


def artifact(folder: Path, texts: Sequence[str], *, num_parts: int = 1) -> Documents:
    """What a step gets whose argument was made of these texts."""
    made = write_documents(folder, texts, num_parts=num_parts)
    return cast(Documents, documents_artifact([vars(part) for part in made.parts]).located_at(str(folder)))
