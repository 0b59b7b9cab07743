"""What the steps that make documents and attributes share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin_pipe.steps.artifacts import Attributes, Documents

if TYPE_CHECKING:
    from marin_corpus.documents.read import DocumentSet


def documents_artifact(parts: Sequence[Mapping[str, Any]], *, dropped: Mapping[str, int] | None = None) -> Documents:
    """Sum up the manifest's entries."""
    sources: dict[str, int] = {}
    for part in parts:
        for source, count in part["sources"].items():
            sources[source] = sources.get(source, 0) + count
    return Documents(
        num_documents=sum(part["num_documents"] for part in parts),
        text_bytes=sum(part["text_bytes"] for part in parts),
        num_parts=len(parts),
        sources=dict(sorted(sources.items())),
        dropped=dict(dropped or {}),
    )


def attributes_artifact(
    documents: "DocumentSet", columns: Sequence[str], summaries: Sequence[Mapping[str, Any]]
) -> Attributes:
    """Sum up what `map_attributes` returned."""
    sums: dict[str, float] = {}
    for summary in summaries:
        for name, value in summary["sums"].items():
            sums[name] = sums.get(name, 0.0) + value
    return Attributes(columns=tuple(columns), num_documents=documents.num_documents, sums=sums)
