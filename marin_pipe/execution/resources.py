"""What a step asks of the machine it runs on. Resources bear no identity."""

import re
from dataclasses import dataclass

_SIZE = re.compile(r"^\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)\s*$")
_UNITS = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


def parse_size(text: str) -> int:
    """Bytes in `"4GiB"` or `"500 MB"`."""
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"memory={text!r} must be a number and a unit such as '4GiB' or '500MB'")
    return int(float(match["number"]) * _UNITS[match["unit"]])


def memory_bytes(memory: str | None) -> int:
    """Bytes of a resource's `memory`; 0 if it asks for none. Raises ValueError for another form."""
    return 0 if memory is None else parse_size(memory)


@dataclass(frozen=True)
class CPU:
    """`count` cores and, if given, `memory` (such as "4GiB") on one host."""

    count: float = 1
    memory: str | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"CPU(count={self.count}) must not be negative")
        memory_bytes(self.memory)

    @property
    def memory_bytes(self) -> int:
        return memory_bytes(self.memory)


@dataclass(frozen=True)
class GPU:
    """`count` GPUs of a `kind` ("H100"; None for any) on one host, with `cpus` cores and `memory`."""

    kind: str | None = None
    count: int = 1
    cpus: float = 1
    memory: str | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"GPU(count={self.count}) must be at least 1")
        memory_bytes(self.memory)

    @property
    def memory_bytes(self) -> int:
        return memory_bytes(self.memory)


@dataclass(frozen=True)
class TPU:
    """A TPU slice by its type name ("v5p-64")."""

    kind: str
    memory: str | None = None

    def __post_init__(self) -> None:
        if not re.match(r"^v[0-9]+[a-z]*-[0-9]+$", self.kind):
            raise ValueError(f"TPU({self.kind!r}) must name a slice type such as 'v5p-64'")
        memory_bytes(self.memory)

    @property
    def memory_bytes(self) -> int:
        return memory_bytes(self.memory)


Resource = CPU | GPU | TPU
