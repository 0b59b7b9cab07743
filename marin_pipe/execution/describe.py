"""What a record says of a step itself: its identity with all values, whoever makes the commit."""

from typing import Any

from marin_pipe.execution.handle import Step
from marin_pipe.execution.namesakes import first_party_modules
from marin_pipe.execution.records import FileUse, Record, SourceRecord
from marin_pipe.execution.source import Fingerprint


def describe_step(step: Step[Any], *, source: Fingerprint, **run: Any) -> Record:
    """The record of a step; `run` holds the fields that its run adds: inputs, build key, result, provenance."""
    return Record(
        name=step.name,
        function=step.function.name,
        module=step.function.module_name,
        version=step.version,
        key=step.key,
        arguments=dict(step.bound.canonical),
        runtime=dict(step.bound.runtime),
        modules=first_party_modules(step.bound.functions),
        secrets=step.bound.secrets,
        files=file_uses(step),
        source=SourceRecord(digest=source.digest, parts=dict(source.parts), untraced=source.untraced),
        **run,
    )


def file_uses(step: Step[Any]) -> tuple[FileUse, ...]:
    """The files from outside among a step's arguments, as they were when the graph was built."""
    return tuple(FileUse(argument=where, path=file.text, files=file.entries) for where, file in step.bound.files)
