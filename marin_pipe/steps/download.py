"""Steps that bring files in from elsewhere: the web, archives, the Hugging Face hub."""

from typing import TYPE_CHECKING, Literal, cast

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.errors import GraphError
from marin_pipe.execution.handle import Ref, Step
from marin_pipe.execution.inputs import InputFile, InputFiles
from marin_pipe.execution.markers import Artifact
from marin_pipe.execution.secret import Secret
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.sources import read_documents
from marin_pipe.steps.tokenizers import TokenizerFiles, tokenizer_from_files

if TYPE_CHECKING:
    from upath import UPath

_TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105  its name, not its value


class DownloadedFile(Artifact):
    """One file, called `name`."""

    name: str
    size_bytes: int


class UnpackedFiles(Artifact):
    """The files of an archive, under their names in it."""

    num_files: int
    num_bytes: int


@step
def download(
    url: str, *, sha256: str, size_bytes: int | None = None, file_name: str | None = None, ctx: StepContext
) -> DownloadedFile:
    """Download a file over http or https. A step that was killed goes on where it stopped.

    Args:
        url: address of the file. Without a password: it is recorded.
        sha256: of the file, 64 hex digits; another file is refused.
        size_bytes: where it is known, a file of another size is refused at once.
        file_name: what to call it; None for the last part of the address.
        ctx: filled in by the engine.
    """
    import os
    import shutil
    import tempfile
    from pathlib import Path

    from marin_corpus.sources.download import Download, validator_path
    from marin_corpus.sources.download import download as fetch

    wanted = Download(url=url, sha256=sha256, size_bytes=size_bytes)
    name = _file_name(url, file_name)
    progress = ctx.progress(size_bytes, "bytes")
    if ctx.store.local_path(ctx.work_key) is None:
        # Another store takes whole objects only: nothing could be gone on with.
        with tempfile.TemporaryDirectory(prefix="marin_pipe-download-") as folder:
            size = fetch(wanted, Path(folder) / "partial", progress=progress.set)
            shutil.move(Path(folder) / "partial", ctx.local_output() / name)
        return DownloadedFile(name=name, size_bytes=size)
    partial = Path(str(ctx.work)) / "partial"
    for earlier in ctx.earlier_work:
        left = Path(str(earlier)) / "partial"
        if not partial.exists() and left.exists():
            if validator_path(left).exists():
                shutil.copyfile(validator_path(left), validator_path(partial))
            shutil.copyfile(left, partial)
            ctx.log.info("going on behind the %d bytes of an earlier attempt", partial.stat().st_size)
    size = fetch(wanted, partial, progress=progress.set)
    # A second name and no move: an attempt that is killed before its commit leaves the next one the whole file.
    try:
        os.link(partial, ctx.local_output() / name)
    except OSError:  # not every file system has second names
        shutil.copyfile(partial, ctx.local_output() / name)
    return DownloadedFile(name=name, size_bytes=size)


def _file_name(url: str, given: str | None) -> str:
    from posixpath import basename
    from urllib.parse import unquote, urlsplit

    from marin_corpus.errors import BadConfig

    name = basename(unquote(urlsplit(url).path)) if given is None else given
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise BadConfig(f"file_name={given!r} and url={url!r} give no name for the file", next="say file_name='...'")
    return name


@step
def unpack(
    archive: Ref[InputFile | DownloadedFile],
    *,
    max_members: int = 1_000_000,
    max_bytes: int = 1 << 40,
    max_ratio: float = 200.0,
    ctx: StepContext,
) -> UnpackedFiles:
    """Unpack a zip or tar archive, after a look at what it holds. Links, devices and paths that lead out are refused.

    Args:
        archive: `InputFile("data.tar.zst")`, or the step `download(...)`, or `step / "data.zip"`.
        max_members: more files and directories are refused.
        max_bytes: more bytes of content are refused.
        max_ratio: so is content that is more than this many times as large as the archive, beyond 64 MiB.
        ctx: filled in by the engine.
    """
    import shutil
    import tempfile
    from pathlib import Path

    from marin_corpus.sources.archives import UnpackLimits
    from marin_corpus.sources.archives import unpack as unpack_archive

    limits = UnpackLimits(max_members=max_members, max_bytes=max_bytes, max_ratio=max_ratio)
    # A handle is a value by now, and a path within a step's output a UPath.
    given = cast("InputFile | DownloadedFile | UPath", archive)
    if isinstance(given, InputFile):
        path = given.path
    else:
        path = given.path / given.name if isinstance(given, DownloadedFile) else given
    with tempfile.TemporaryDirectory(prefix="marin_pipe-unpack-") as folder:
        local = Path(str(path))
        if "://" in str(path):
            local = Path(folder) / path.name
            with path.open("rb") as source, local.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        done = unpack_archive(local, ctx.local_output(), limits)
    return UnpackedFiles(num_files=done.num_files, num_bytes=done.num_bytes)


def hugging_face_dataset(
    repository: str,
    *,
    revision: str,
    files: str = "**/*.parquet",
    source: str | None = None,
    format: Literal["jsonl", "parquet", "csv", "txt", "html"] | None = None,
    text_field: str = "text",
    json_fields: tuple[str, ...] = (),
    meta_fields: tuple[str, ...] = (),
    on_bad_record: Literal["error", "skip"] = "error",
    token: Secret | None = None,
) -> Step[Documents]:
    """Documents from a dataset of the Hugging Face hub, at one commit: `read_documents` of its files.

    The repository, the commit, the files and the token are checked here, before anything runs. The files are known by
    the digests that the hub has of them.

    Args:
        repository: "organisation/name".
        revision: the 40 hex digits of a commit. Branches and tags are refused: they change.
        files: which of its files to read.
        source: name of the corpus; None for the repository's.
        format: see `read_documents`, like the fields and `on_bad_record`.
        text_field: field that holds the text.
        json_fields: fields that make a JSON object instead, for conversations.
        meta_fields: further fields to keep.
        on_bad_record: "skip" leaves bad records out and counts them.
        token: `Secret("HF_TOKEN")` for a dataset that is not public.
    """
    return read_documents(
        _hub_files(repository, revision=revision, files=files, kind="dataset", token=token),
        source=repository if source is None else source,
        format=format,
        text_field=text_field,
        json_fields=json_fields,
        meta_fields=meta_fields,
        on_bad_record=on_bad_record,
        secrets=() if token is None else (token,),
    )


def tokenizer_from_hub(repository: str, *, revision: str, token: Secret | None = None) -> Step[TokenizerFiles]:
    """The tokenizer of a model on the Hugging Face hub, at one commit: `tokenizer_from_files` of its files.

    Args:
        repository: "organisation/name".
        revision: the 40 hex digits of a commit.
        token: `Secret("HF_TOKEN")` for a model that is not public.
    """
    # tokenizer.json, tokenizer_config.json, special_tokens_map.json and chat_template.jinja, but no weights.
    files = _hub_files(repository, revision=revision, files="*t[eo][km]*.j*", kind="model", token=token)
    assert isinstance(files, InputFiles), "the pattern has wildcards"
    return tokenizer_from_files(files, secrets=() if token is None else (token,))


def _hub_files(
    repository: str, *, revision: str, files: str, kind: Literal["dataset", "model"], token: Secret | None
) -> InputFile | InputFiles:
    """The files as they are now. An error of the library is one of the graph: nothing has run yet."""
    from marin_corpus.errors import CorpusError
    from marin_corpus.sources.hub import hub_url

    if token is not None:
        if token.name != _TOKEN_VARIABLE:
            raise GraphError(
                f"token={token!r}: the hub's client reads its token from {_TOKEN_VARIABLE} alone",
                next=f'export {_TOKEN_VARIABLE}="${token.name}", and say token=Secret("{_TOKEN_VARIABLE}")',
            )
        token.reveal()
    try:
        url = hub_url(repository, revision=revision, files=files, kind=kind)
        return (InputFiles(url) if any(mark in files for mark in "*?[") else InputFile(url)).resolved()
    except CorpusError as error:
        raise GraphError(error.what, why=error.why, next=error.next) from error
    except ImportError as error:
        raise GraphError(str(error)) from error
