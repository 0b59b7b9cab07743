"""Starts launches of `drivers.py` and looks at what they do."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

DRIVERS = Path(__file__).with_name("drivers.py")
DEADLINE_S = 60.0
"""For what must happen: only a failing test waits so long."""

Value = TypeVar("Value")


def eventually(look: Callable[[], Value], *, what: str) -> Value:
    """The first true value of `look`, asked every 10 ms."""
    give_up_at = time.monotonic() + DEADLINE_S
    while True:
        value = look()
        if value:
            return value
        assert time.monotonic() < give_up_at, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.01)


@dataclass
class Driver:
    """A launch in a process of its own."""

    process: subprocess.Popen[str]

    def end(self, *, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """Its report, once it has ended by itself; `exit_code` and `output` are the process's own."""
        output, _ = self.process.communicate(timeout=timeout_s)
        report: dict[str, Any] = next(
            (json.loads(line) for line in reversed(output.splitlines()) if line.startswith("{")), {}
        )
        return {**report, "exit_code": self.process.returncode, "output": output}

    def send(self, number: signal.Signals) -> None:
        """To the driver alone, not to its workers."""
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Launching:
    """Makes drivers over one root, and ends those that a test leaves behind."""

    def __init__(self, directory: Path):
        self.root = directory / "root"
        self.url = str(self.root)
        """What drivers are told; a test may choose another store."""
        self.side = directory / "side.txt"
        self.directory = directory
        self._started: list[Driver] = []

    def start(self, command: str, *arguments: object) -> Driver:
        """`python drivers.py COMMAND ROOT --side SIDE ARGUMENTS`."""
        line = [sys.executable, str(DRIVERS), command, self.url, "--side", str(self.side), *map(str, arguments)]
        process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A Ctrl-C at the terminal of whoever runs the tests is none for the drivers.
            start_new_session=True,
        )
        driver = Driver(process)
        self._started.append(driver)
        return driver

    def side_lines(self) -> list[str]:
        return self.side.read_text().splitlines() if self.side.exists() else []

    def wait_for_line(self, beginning: str, *, count: int = 1) -> str:
        """The `count`-th line of the side file that begins so, once it is there."""

        def look() -> str | None:
            found = [line for line in self.side_lines() if line.startswith(beginning)]
            return found[count - 1] if len(found) >= count else None

        return str(eventually(look, what=f"line {count} of {beginning!r}"))

    def lease(self, step: str) -> dict[str, Any]:
        """The lease of the one step of this name, as stored."""
        (path,) = self.root.glob(f"{step}-*/lease.json")
        body: dict[str, Any] = json.loads(path.read_text())
        return body

    def ended(self, step: str) -> dict[str, dict[str, Any]]:
        """What each attempt at the steps of this name said when it ended, by attempt."""
        found = sorted(self.root.glob(f"{step}-*/attempts/*/ended.json"))
        return {path.parent.name: json.loads(path.read_text()) for path in found}

    def close(self) -> None:
        for driver in self._started:
            if driver.process.returncode is None:
                driver.kill()
