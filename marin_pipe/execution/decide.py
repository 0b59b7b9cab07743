"""The rules of reuse, as pure functions of records: is a commit current, and what would its step's build key be."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from marin_pipe.execution.errors import IdentityConflict
from marin_pipe.execution.handle import SourcePolicy, Step
from marin_pipe.execution.identity import canonical_json
from marin_pipe.execution.layout import is_pin_address
from marin_pipe.execution.namesakes import moved
from marin_pipe.execution.records import FileEntry, InputUse, Served
from marin_pipe.execution.source import Fingerprint, changed_parts

Cause = Literal["new", "withdrawn", "damaged", "input", "source", "forced"]


@dataclass(frozen=True, kw_only=True)
class Stale:
    """A commit that may not be served, and why."""

    cause: Cause
    why: str
    inputs: tuple[str, ...] = ()
    """Directories of the inputs whose bytes changed."""


@dataclass(frozen=True, kw_only=True)
class Current:
    """A commit that is served. `notes` are what the user should know all the same."""

    notes: tuple[str, ...] = ()


def assess(
    step: Step[Any],
    commit: Served,
    *,
    input_digests: Mapping[str, str],
    source: Fingerprint,
    policy: SourcePolicy,
) -> Current | Stale:
    """Whether `commit` is current.

    Args:
        input_digests: output digests of the current commits of the inputs that have one, by step directory (or pin)
            and by key (`digests_by_key`), which an input that was renamed keeps. An input without a commit does not
            make its consumer stale, unless it was pinned when the commit was made: then it was never there.

    Raises:
        IdentityConflict: another function, with other source, made the output.
    """
    check_function(step, commit, source=source)
    record = commit.record
    changed = [use for use in record.inputs if _is_changed(use, input_digests)]
    if changed:
        names = sorted({use.name for use in changed})
        return Stale(
            cause="input",
            why=f"because of {', '.join(names)}: {'its output' if len(names) == 1 else 'their outputs'} changed",
            inputs=tuple(use.directory for use in changed),
        )
    unpinned = [use for use in record.inputs if is_pin_address(use.directory) and use.key not in input_digests]
    if unpinned:
        return Stale(
            cause="input",
            why=f"because of {unpinned[0].name}: it is no longer pinned to {unpinned[0].directory}",
            inputs=tuple(use.directory for use in unpinned),
        )
    if record.source.digest == source.digest or policy == "ignore":
        return Current()
    what = "; ".join(changed_parts(record.source.parts, source.parts)) or "source changed"
    if policy == "rerun":
        return Stale(cause="source", why=f"source changed: {what}")
    return Current(notes=(f"source changed since it was built: {what}",))


def has_moved(step: Step[Any], commit: Served) -> bool:
    """Whether the step's function, or one that its arguments name, lies in another module than when it was built."""
    record = commit.record
    return record.module != step.function.module_name or bool(moved(record.modules, step.bound.functions))


def check_function(step: Step[Any], commit: Served, *, source: Fingerprint) -> None:
    """IdentityConflict if another function, with other source, made the output or was named by its arguments.

    One that only moved is the same.
    """
    record = commit.record
    if record.source.digest == source.digest:
        return
    if record.module != step.function.module_name:
        raise IdentityConflict(
            f"step {step.name}: its output was made by {record.module}.{record.function}, not by "
            f"{step.function.module_name}.{step.function.qualname}",
            why=f"both have the identity name {record.function!r}, but their modules and their source differ",
            next='give this step an output of its own with .named("other/name"), this function a name with '
            "@step(name=...), a new identity with .versioned(...), or declare the output equivalent with `adopt`",
        )
    for name, before, now in moved(record.modules, step.bound.functions):
        raise IdentityConflict(
            f"step {step.name}: its output was made with {before}.{name} in its arguments, not with {now}.{name}",
            why=f"both are {name!r} in the key, but their modules and the step's source differ",
            next=f"rename {now}.{name}, give the step a new identity with .versioned(...), or declare the output "
            "equivalent with `adopt`",
        )


def digests_by_key(outputs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """(key, output digest) pairs as a mapping.

    Two names of one computation have one key, and bytes of their own if it depends on chance: then all their digests
    stand under the key, sorted and joined by "+".
    """
    found: dict[str, str] = {}
    for key, digest in outputs:
        known = found.setdefault(key, digest)
        if known != digest:
            found[key] = "+".join(sorted({*known.split("+"), digest}))
    return found


def is_ambiguous(digests: Mapping[str, str]) -> bool:
    """Whether the build key made from `digests` does not tell which bytes were read where: then nothing is adopted."""
    return any("+" in digest for digest in digests.values())


def _is_changed(use: InputUse, current: Mapping[str, str]) -> bool:
    digest = current.get(use.directory) or current.get(use.key)
    return digest is not None and use.output_digest != digest and use.output_digest not in digest.split("+")


def own_arguments(step: Step[Any], digests: Mapping[str, str]) -> Any:
    """The canonical arguments with every upstream key replaced by the digest of the output it stands for.

    Args:
        digests: output digest by upstream key, see `digests_by_key`.
    """
    return _replace_steps(dict(step.bound.canonical), digests)


def _replace_steps(value: Any, digests: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        if "$step" in value:
            replaced = {"$output": digests[value["$step"]]}
            if "path" in value:
                replaced["path"] = value["path"]
            return replaced
        return {name: _replace_steps(item, digests) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_steps(item, digests) for item in value]
    return value


def build_key(step: Step[Any], own: Any, *, source_digest: str) -> str:
    """sha256 of what decides the bytes of an output: function, version, `own_arguments`, source."""
    text = canonical_json(
        {"function": step.function.name, "version": step.version, "arguments": own, "source": source_digest}
    )
    return hashlib.sha256(text.encode()).hexdigest()


def seed(step: Step[Any], own: Any) -> int:
    """A 63-bit seed that changes with the function, its `own_arguments` (inputs' bytes), and with nothing else."""
    text = canonical_json({"function": step.function.name, "arguments": own})
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def output_digest(manifest: tuple[FileEntry, ...], result: Any) -> str:
    """sha256 over the data files and the returned value; logs, metrics and times do not count."""
    text = canonical_json({"files": [[f.path, f.size, f.digest] for f in manifest], "result": result})
    return hashlib.sha256(text.encode()).hexdigest()
