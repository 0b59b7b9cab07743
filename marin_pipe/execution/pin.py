"""Pinned steps: served from an output directory named by URL instead of running."""

import os

from marin_storage import Store, open_store

from marin_pipe.execution import decide
from marin_pipe.execution.errors import ConfigurationError, RecordError
from marin_pipe.execution.handle import Pin, Step
from marin_pipe.execution.layout import STEP_DIRECTORY, join_url, step_directory
from marin_pipe.execution.markers import Artifact
from marin_pipe.execution.observe import data_directory, observe
from marin_pipe.execution.records import Built, FileEntry, Provenance, Record, Served


def resolve_pin(step: Step[object], pin: Pin) -> tuple[Served, str]:
    """The commit and the data URL a pin stands for.

    The URL is an output directory of any root (its current commit is served), or a plain directory of files for a
    step whose result has no fields.

    Raises:
        ConfigurationError: nothing is there to serve, or its result is not what the step returns.
    """
    address = pin_address(pin)
    base, _, last = address.rpartition("/")
    if STEP_DIRECTORY.match(last):
        commit, data = _output(step, pin, base, last)
    else:
        store = open_store(address)
        commit, data = _plain_directory(step, pin, store), store.url
    _check_kind(step, pin, commit, data)
    return commit, data


def _output(step: Step[object], pin: Pin, base: str, last: str) -> tuple[Served, str]:
    store = open_store(base)
    commit = observe(store, last).served()
    if commit is None:
        raise ConfigurationError(
            f"step {step.name} is pinned to {pin.url}, which has no commit to serve",
            next="pin it to an output that `marin-pipe ls` shows, or remove .pinned_to(...)",
        )
    if commit.kind == "built":
        return commit, join_url(store.url, data_directory(last, commit))
    # An adopted output lies in a directory of another step, named from the root: a name may have several parts.
    own = step_directory(commit.record.name, commit.record.key)
    root = store if own == last else open_store(f"{base}/{last}".removesuffix(f"/{own}"))
    return commit, join_url(root.url, data_directory(last, commit))


def _check_kind(step: Step[object], pin: Pin, commit: Served, data: str) -> None:
    # Loading knows pins, so it cannot be imported before them.
    from marin_pipe.execution.load import revive

    try:
        annotation = step.function.hints.get("return")
        revive(commit.record.result, annotation, data_url=data, where=pin.url, step=step.name)
    except RecordError as error:
        raise ConfigurationError(
            f"step {step.name} is pinned to {pin.url}, whose result is not what {step.function.name} returns",
            why=error.what,
            next="pin it to an output of the same kind, or remove .pinned_to(...)",
        ) from error


def _plain_directory(step: Step[object], pin: Pin, store: Store) -> Built:
    files = store.list_files("")
    if not files:
        raise ConfigurationError(
            f"step {step.name} is pinned to {pin.url}, where there are no files",
            next="correct the URL, or remove .pinned_to(...)",
        )
    declared = step.function.hints.get("return")
    artifact = declared if isinstance(declared, type) and issubclass(declared, Artifact) else None
    if artifact is not None and any(field.is_required() for field in artifact.model_fields.values()):
        raise ConfigurationError(
            f"step {step.name} is pinned to {pin.url}, a plain directory, but returns {artifact.__name__}",
            why="the directory has no commit that holds the result's fields",
            next="pin it to an output directory made by marin_pipe",
        )
    digests = store.map(lambda entry: store.digest(entry.key), files)
    manifest = tuple(
        FileEntry(path=entry.key, size=entry.size_bytes, digest=digest)
        for entry, digest in zip(files, digests, strict=True)
    )
    result: dict[str, object] | None = {} if artifact is not None else None
    record = Record(
        name=step.name,
        function=step.function.name,
        module=step.function.module_name,
        version=step.version,
        key=step.key,
        arguments=dict(step.bound.canonical),
        result=result,
        build_key="",
        resources="",
        provenance=Provenance(
            run="",
            experiment=None,
            host="",
            user="",
            argv=(),
            python="",
            git_commit=None,
            git_dirty_digest=None,
            packages="",
        ),
    )
    return Built(
        number=1,
        attempt="",
        owner="",
        output_digest=decide.output_digest(manifest, result),
        record=record,
        manifest=manifest,
    )


def pin_address(pin: Pin) -> str:
    """Where a pin points, as records keep it: a URL or an absolute path, whatever the working directory is later."""
    return pin.url.rstrip("/") if "://" in pin.url else os.path.abspath(os.path.expanduser(pin.url))
