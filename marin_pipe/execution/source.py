"""Fingerprint of the first-party code that a step's function reaches.

Code is read, never imported. Starting from the function, every name it uses is followed to the statements that define
or change it: functions, whole classes and their bases, constants, defaults, decorators, re-exports, in whatever file of
the project. Hints do not count, but they tell whose methods may be called on an argument. What cannot be followed is
listed.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin_pipe.execution.source_file import SourceFile

# Enters every digest: raise it when the normal form changes.
_FORMAT = "1"


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What a step's function reaches."""

    digest: str
    """sha256 in hex. Does not depend on modules' names: code moved unchanged has the same digest."""
    parts: Mapping[str, str]
    """`"package.module.function"` (or constant, class, `Class.method`) -> digest of its normal form."""
    untraced: tuple[str, ...]
    """What could not be followed, as `"package.module.function: getattr(model, name)"`."""
    files: Mapping[str, str]
    """Absolute path of each first-party file that was read -> sha256 of its bytes."""


_known: dict[tuple[object, ...], tuple[Fingerprint, tuple["SourceFile", ...]]] = {}


def fingerprint(functions: Sequence[Callable[..., Any] | type]) -> Fingerprint:
    """Fingerprint of the first-party code that `functions` reach. Kept until one of the files changes.

    Args:
        functions: the step's plain function, and the functions and classes that its arguments hold. They count even if
            they are not first-party.
    """
    # Imported here: 20 ms, of which `import marin_pipe` and most commands have no need.
    from marin_pipe.execution.source_file import load_file
    from marin_pipe.execution.source_trace import Trace

    roots = tuple(functions)
    known = _known.get(roots)
    if known is not None and all(os.path.exists(file.path) and load_file(file.path) is file for file in known[1]):
        return known[0]
    trace = Trace()
    for root in roots:
        trace.start(root)
    trace.follow()
    parts = trace.parts()
    by_name: dict[str, str] = {}
    for module, qualname, digest in parts:
        name = ".".join(filter(None, (module, qualname)))
        by_name[name] = _sha256(by_name[name] + digest) if name in by_name else digest
    result = Fingerprint(
        digest=_sha256("\n".join((_FORMAT, *sorted(f"{qualname} {digest}" for _, qualname, digest in parts)))),
        parts=dict(sorted(by_name.items())),
        untraced=tuple(sorted(trace.untraced)),
        files={path: file.digest for path, file in sorted(trace.resolver.files.items())},
    )
    _known[roots] = (result, (*trace.resolver.files.values(), *trace.resolver.glanced.values()))
    return result


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs between the parts of two fingerprints, for people: `["changed helpers.clean", "added ..."]`."""
    changed = [f"changed {name}" for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    removed, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    moved: list[str] = []
    for name in list(removed):
        target = next((other for other in added if new[other] == old[name] and _last(other) == _last(name)), None)
        if target is not None:
            moved.append(f"moved {name} to {target}")
            removed.remove(name)
            added.remove(target)
    return changed + moved + [f"added {name}" for name in added] + [f"removed {name}" for name in removed]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
