"""The step of its cycle that a program is in, from its log.

Producer and consumer log a JSON line `{"event": "step", "step": …}` at debug level when a step
begins.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TAIL_BYTES = 65_536
_POLL_S = 0.002
NO_STEP = "start"
"""The step of a program that has not logged one yet."""


def step_of(line: bytes) -> str | None:
    """Return the step that a log line begins, or None for any other line."""
    if b'"step"' not in line:
        return None
    try:
        entry = json.loads(line[line.index(b"{") :])
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("event") != "step":
        return None
    return str(entry.get("step"))


def last_step(log: Path, *, since: int = 0) -> str:
    """Return the last step in a log after byte `since`; "start" if there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(since, size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return NO_STEP
    return next((step for line in reversed(lines) if (step := step_of(line))), NO_STEP)


@dataclass(slots=True)
class StepFollower:
    """Reads the step lines that are added to a log after byte `position`."""

    log: Path
    position: int
    _rest: bytes = b""

    @classmethod
    def at_end(cls, log: Path) -> StepFollower:
        """Return a follower of the lines that are written from now on."""
        return cls(log, log.stat().st_size if log.exists() else 0)

    def new_steps(self) -> list[str]:
        """Return the steps begun since the last call."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as file:
            file.seek(self.position)
            added = file.read()
        self.position += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        return [step for line in lines if (step := step_of(line))]


def wait_for_step(
    follower: StepFollower,
    *,
    accept: Callable[[str], bool],
    go_on: Callable[[], bool],
    deadline_s: float,
) -> bool:
    """Return True when an accepted step begins; False at the deadline or when `go_on` is."""
    end = time.monotonic() + deadline_s
    while go_on() and time.monotonic() < end:
        if any(accept(step) for step in follower.new_steps()):
            return True
        time.sleep(_POLL_S)
    return False
