"""Which resumable state a try may go on from: work of earlier tries at the same computation, and of no other.

A key says what was asked for, not what was read or which code ran. So whatever leaves state in `ctx.work` first marks
it with the seed (function, arguments and input bytes) and with the sources that took part in it.
"""

from dataclasses import dataclass

from marin_storage import Store

from marin_pipe.execution.handle import SourcePolicy
from marin_pipe.execution.layout import attempt_epoch, work_directory, work_mark_file
from marin_pipe.execution.observe import list_work, read_if_whole
from marin_pipe.execution.records import Served, WorkMark


@dataclass(frozen=True, kw_only=True)
class Resumable:
    """State that may be used."""

    directories: tuple[str, ...] = ()
    """Work directories relative to the root, newest first."""
    sources: tuple[str, ...] = ()
    """Digests of the sources that made it, sorted."""


NOTHING_TO_RESUME = Resumable()


def last_commit_epoch(commit: Served | None) -> int:
    """Epoch of the try that made the commit: what it and those before it left is used up."""
    return attempt_epoch(commit.attempt) if commit is not None and commit.kind == "built" else 0


def find_resumable(
    store: Store, directory: str, *, after_epoch: int, seed: int, source: str, policy: SourcePolicy
) -> Resumable:
    """Look through the work of a step's tries.

    Args:
        after_epoch: tries up to this epoch do not count.
        seed: of the step with its present arguments and input bytes; state made with another is of no use.
        source: digest of the present source. State that other source had part in is used unless the policy is "rerun".
    """
    directories: list[str] = []
    sources: set[str] = set()
    for name in reversed(list_work(store, directory)):
        if attempt_epoch(name) <= after_epoch:
            break
        mark: WorkMark | None = read_if_whole(store, WorkMark, work_mark_file(directory, name))
        if mark is None or mark.seed != seed or (policy == "rerun" and set(mark.sources) != {source}):
            continue
        directories.append(work_directory(directory, name))
        sources.update(mark.sources)
    return Resumable(directories=tuple(directories), sources=tuple(sorted(sources)))
