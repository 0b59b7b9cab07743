"""What this machine has, and who may use it at the moment."""

import glob
import os
from dataclasses import dataclass

from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.resources import CPU, GPU, TPU, Resource


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Resources of one host. `tpu` is the slice type the host belongs to, if any."""

    cpus: float
    memory_bytes: int
    gpus: tuple[int, ...] = ()
    gpu_kind: str = ""
    tpu: str | None = None


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a piece of work may use until it is given back."""

    ask: Resource
    devices: tuple[int, ...] = ()


def local_capacity() -> Capacity:
    """Cores this process may run on, memory within its cgroup, and accelerators by their device files."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus = sorted(int(path[len("/dev/nvidia") :]) for path in glob.glob("/dev/nvidia[0-9]*"))
    return Capacity(
        cpus=cpus,
        memory_bytes=_memory_bytes(),
        gpus=tuple(gpus),
        gpu_kind=_gpu_kind() if gpus else "",
        tpu=os.environ.get("TPU_ACCELERATOR_TYPE") or os.environ.get("ACCELERATOR_TYPE"),
    )


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            limit = file.read().strip()
    except OSError:
        # No cgroup limits here: the physical memory counts.
        return total
    return total if limit == "max" else min(total, int(limit))


def _gpu_kind() -> str:
    """Model names of the GPUs as the driver tells them ("NVIDIA H100 80GB HBM3"); empty if it does not."""
    names: set[str] = set()
    for path in glob.glob("/proc/driver/nvidia/gpus/*/information"):
        with open(path) as file:
            names.update(line.split(":", 1)[1].strip() for line in file if line.startswith("Model:"))
    return ", ".join(sorted(names))


class Pool:
    """Hands out a host's resources. Not thread-safe: the scheduler's loop owns it."""

    def __init__(self, capacity: Capacity):
        self.capacity = capacity
        self._cpus = capacity.cpus
        self._memory = capacity.memory_bytes
        self._gpus = list(capacity.gpus)
        self._tpu_free = capacity.tpu is not None

    def choose(self, asks: tuple[Resource, ...], *, step: str) -> Resource:
        """The first of the alternatives that this host could ever grant; ConfigurationError if there is none."""
        problems = []
        for ask in asks:
            problem = self._problem(ask)
            if problem is None:
                return ask
            problems.append(f"{ask}: {problem}")
        raise ConfigurationError(
            f"step {step} asks for what this machine does not have: {'; '.join(problems)}",
            next="run it where the resource exists, or ask for something else with .on(...)",
        )

    def _problem(self, ask: Resource) -> str | None:
        has = self.capacity
        if ask.memory_bytes > has.memory_bytes:
            return f"memory is {has.memory_bytes / 2**30:.1f} GiB"
        if isinstance(ask, CPU):
            return None if ask.count <= has.cpus else f"there are {has.cpus:g} cores"
        if isinstance(ask, GPU):
            if ask.count > len(has.gpus):
                return f"there are {len(has.gpus)} GPUs"
            if ask.kind is not None and ask.kind.lower() not in has.gpu_kind.lower():
                return f"the GPUs are {has.gpu_kind or 'of unknown kind'}"
            return None if ask.cpus <= has.cpus else f"there are {has.cpus:g} cores"
        return None if ask.kind == has.tpu else f"the TPU slice is {has.tpu or 'absent'}"

    def take(self, ask: Resource) -> Grant | None:
        """Reserve `ask`, or None if it does not fit at the moment."""
        cpus = _cpus(ask)
        gpus = ask.count if isinstance(ask, GPU) else 0
        if cpus > self._cpus or ask.memory_bytes > self._memory or gpus > len(self._gpus):
            return None
        if isinstance(ask, TPU):
            if not self._tpu_free:
                return None
            self._tpu_free = False
        self._cpus -= cpus
        self._memory -= ask.memory_bytes
        devices, self._gpus = tuple(self._gpus[:gpus]), self._gpus[gpus:]
        return Grant(ask=ask, devices=devices)

    def give(self, grant: Grant) -> None:
        """Return what `take` reserved."""
        self._cpus += _cpus(grant.ask)
        self._memory += grant.ask.memory_bytes
        self._gpus = sorted([*self._gpus, *grant.devices])
        if isinstance(grant.ask, TPU):
            self._tpu_free = True


def _cpus(ask: Resource) -> float:
    if isinstance(ask, CPU):
        return ask.count
    return ask.cpus if isinstance(ask, GPU) else 0.0
