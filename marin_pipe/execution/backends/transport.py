"""How a step travels to a process: frames over a private socket between two processes of ours, never stored.

The outer frame names only classes of this package, so that a worker can say which user module failed to import.
What the user made (arguments, annotations, exception classes) is one nested pickle in which every upstream step is a
`Placeholder`: the graph behind it does not travel.
"""

import array
import copyreg
import io
import os
import pickle
import socket
import struct
import sys
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_pipe.execution.backends.base import Task
from marin_pipe.execution.binding import Placeholder
from marin_pipe.execution.errors import ConfigurationError, GraphError
from marin_pipe.execution.handle import Step, StepPath
from marin_pipe.execution.inputs import InputFile, InputFiles
from marin_pipe.execution.resources import Resource
from marin_pipe.execution.step import Location

_HEADER = struct.Struct("<Q")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class InputData:
    """A `LoadedInput` without its annotation, in plain values."""

    data_url: str
    result: Any
    manifest: tuple[tuple[str, int, str], ...]
    """(path, size in bytes, digest)."""
    rebuild: str


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A task, ready to travel. Without slots, which would make its pickling slower."""

    name: str
    location: Location
    main: Location | None
    """The driver's script, if the function or the content refers to it."""
    content: bytes
    root: str
    directory: str
    attempt: str
    earlier_work: tuple[str, ...]
    inputs: Mapping[str, InputData]
    resources: Resource
    seed: int
    work_mark: bytes
    source_files: Mapping[str, str]
    verify: str
    cwd: str


@dataclass(frozen=True, slots=True)
class Content:
    """What the user made."""

    arguments: dict[str, Any]
    """With a `Placeholder` where an upstream step stood."""
    files: tuple[InputFile | InputFiles, ...]
    annotations: dict[str, Any]
    """The upstream functions' return annotations by step directory."""
    retry_on: tuple[type[BaseException], ...]


def _reduce_step(step: Step[Any]) -> tuple[Any, ...]:
    return Placeholder, (step.directory,)


def _reduce_path(path: StepPath) -> tuple[Any, ...]:
    return Placeholder, (path.step.directory, path.path)


_DISPATCH: ChainMap[Any, Any] = ChainMap({Step: _reduce_step, StepPath: _reduce_path}, copyreg.dispatch_table)


def prepare(task: Task) -> Invocation:
    """Pack a task. GraphError if an argument cannot travel to another process, ConfigurationError without a place."""
    step = task.step
    content = (
        dict(step.bound.arguments),
        tuple(file for _, file in step.bound.files),
        {directory: loaded.annotation for directory, loaded in task.inputs.items()},
        step.options.retry.on,
    )
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.dispatch_table = _DISPATCH
    try:
        pickler.dump(content)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise GraphError(
            f"step {step.name}: its arguments cannot travel to another process: {error}",
            next="pass plain data, dataclasses, models, or functions and classes at the top level of a module",
        ) from error
    data = buffer.getvalue()
    # A library's step may have arguments whose classes the script defines.
    needs_main = step.function.module == "__main__" or b"__main__" in data
    return Invocation(
        name=step.name,
        location=step.function.location,
        main=main_location() if needs_main else None,
        content=data,
        root=task.root,
        directory=task.directory,
        attempt=task.attempt,
        earlier_work=task.earlier_work,
        inputs={
            directory: InputData(
                loaded.data_url,
                loaded.result,
                tuple((entry.path, entry.size, entry.digest) for entry in loaded.manifest),
                loaded.rebuild,
            )
            for directory, loaded in task.inputs.items()
        },
        resources=task.resources,
        seed=task.seed,
        work_mark=task.work_mark,
        source_files=dict(task.source_files),
        verify=task.verify,
        cwd=_working_directory(),
    )


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise ConfigurationError(
            "the working directory of the launch was removed",
            why="steps run in it, and relative paths are looked up there",
            next="change to a directory that exists and run again",
        ) from None


def unpack(data: bytes) -> Content:
    """Build the user's objects anew: no object of the driver is shared with a body."""
    return Content(*pickle.loads(data))  # noqa: S301  # nosec B301


def main_location() -> Location | None:
    """Where this process's main module can be imported from; None in an interactive session."""
    module = sys.modules.get("__main__")
    spec = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None)
    if spec is None and file is None:
        return None
    return Location(module=spec.name if spec else None, file=os.path.abspath(file) if file else "", qualname="")


def send_frame(channel: socket.socket, value: Any, *, descriptor: int | None = None) -> None:
    """Send one object, and with it an open file."""
    data = pickle.dumps(value, protocol=5)
    data = _HEADER.pack(len(data)) + data
    if descriptor is None:
        channel.sendall(data)
        return
    sent = channel.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
    if sent < len(data):
        channel.sendall(memoryview(data)[sent:])


def receive_frame(channel: socket.socket) -> tuple[Any, int | None]:
    """The next object and the file that came with it. EOFError when the other end is gone."""
    data, descriptors, _, _ = socket.recv_fds(channel, _CHUNK, 1, _RECEIVE_FLAGS)
    descriptor = descriptors[0] if descriptors else None
    if len(data) < _HEADER.size:
        data += _receive(channel, _HEADER.size - len(data))
    size = _HEADER.size + _HEADER.unpack_from(data)[0]
    if len(data) < size:
        data += _receive(channel, size - len(data))
    return pickle.loads(memoryview(data)[_HEADER.size : size]), descriptor  # noqa: S301  # nosec B301


_RECEIVE_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def _receive(channel: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = channel.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return bytes(buffer)
