"""Speaking to whoever holds a step's lease: asking it to stop, and freeing the lease of one that is gone."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from marin_storage import Conflict, Store

from marin_pipe.execution.errors import Busy, ConfigurationError
from marin_pipe.execution.layout import attempt_name
from marin_pipe.execution.lease import force_release, owner_is_dead, process_start, request_cancel, this_process
from marin_pipe.execution.observe import observe, read_ended, read_lease
from marin_pipe.execution.records import Lease

CANCEL_WAIT_S = 30.0
"""A heartbeat finds the request within 10 s; a body then has some seconds to save its state."""
_LOOK_S = 0.25


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """What became of a request to stop. `lease` is the owner's as it was; None if nobody held it."""

    outcome: Literal["idle", "stopped", "finished", "failed", "gone", "asked"]
    """"finished", "failed": it came to its own end meanwhile; "gone": its process has died; "asked": no answer yet."""
    lease: Lease | None


def cancel(
    store: Store,
    directory: str,
    *,
    by: str,
    on_asked: Callable[[Lease], None] | None = None,
    wait_s: float = CANCEL_WAIT_S,
    pause: Callable[[float], None] = time.sleep,
) -> Cancelled:
    """Ask the owner of a step to stop, through its lease, and wait a while for it to do so.

    Args:
        on_asked: called with the owner's lease before the wait.
    """
    asked = request_cancel(store, directory, by=by)
    if asked is None:
        return Cancelled(outcome="idle", lease=None)
    if on_asked is not None:
        on_asked(asked)
    waited = 0.0
    while True:
        present = read_lease(store, directory)
        if present is None or present[0].owner != asked.owner:
            return Cancelled(outcome=_end_of(store, directory, asked), lease=asked)
        if owner_is_dead(present[0]):
            return Cancelled(outcome="gone", lease=asked)
        if waited >= wait_s:
            return Cancelled(outcome="asked", lease=asked)
        pause(_LOOK_S)
        waited += _LOOK_S


def _end_of(store: Store, directory: str, lease: Lease) -> Literal["stopped", "finished", "failed"]:
    """How the work under a lease ended that was given back."""
    if observe(store, directory).highest >= lease.commit:
        return "finished"
    ended = read_ended(store, directory, attempt_name(lease.epoch, lease.owner or ""))
    return "failed" if ended is not None and ended.outcome == "failed" else "stopped"


def unlock(store: Store, directory: str, *, owner: str, pause: Callable[[float], None] = time.sleep) -> Lease:
    """Free the lease of an owner that is gone. It is named by its nonce, so that one can only unlock what one saw.

    On this host its process is looked for; elsewhere its lease is watched for longer than it takes to beat.

    Raises:
        ConfigurationError: nobody, or another owner, holds the lease.
        Busy: the owner is alive.
    """
    present = read_lease(store, directory)
    if present is None or present[0].owner is None:
        raise ConfigurationError(f"{directory}: nobody holds its lease", next="nothing to do")
    lease, version = present
    if lease.owner != owner:
        raise ConfigurationError(
            f"{directory}: its lease belongs to {lease.owner}, not to {owner}",
            why=f"{lease.host}, pid {lease.pid} took it",
            next="look at `status` again",
        )
    if not owner_is_dead(lease):
        _refuse_if_alive(store, directory, lease, version, pause)
    try:
        return force_release(store, directory, owner=owner)
    except Conflict as error:
        raise Busy(
            f"{directory}: its lease changed hands meanwhile", why=str(error), next="look at `status`"
        ) from error


def _refuse_if_alive(store: Store, directory: str, lease: Lease, version: str, pause: Callable[[float], None]) -> None:
    me = this_process()
    here = (lease.host, lease.boot_id, lease.pid_namespace) == (me.host, me.boot_id, me.pid_namespace)
    alive = f"process {lease.pid} runs on this host" if here and process_start(lease.pid) is not None else ""
    waited = 0.0
    while not alive and waited < lease.ttl_s / 2:
        # An owner beats three times in this while.
        pause(_LOOK_S)
        waited += _LOOK_S
        present = read_lease(store, directory)
        if present is not None and present[1] != version:
            alive = f"its lease was renewed a moment ago ({present[0].host}, pid {present[0].pid})"
    if alive:
        raise Busy(
            f"{directory}: its owner is alive: {alive}",
            why="two owners would do the same work twice",
            next="`cancel STEP` asks it to stop",
        )
