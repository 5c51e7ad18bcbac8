"""Damage to the files of waiting changes: what somebody, or a storage, does to a segment.

A seed has one such fault at most, drawn from a generator of its own.  A gate that reads what is
damaged has to stop with an error that names the segment, and no restart helps.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.gate_rows import Segments

__all__ = ["DAMAGES", "Damage"]

DAMAGES = ("deleted", "emptied", "halved", "swapped", "changed")
_CHANCE = 0.12
_STEPS_MAX = 400


class Damage:
    """The damage of one seed, done once, between two steps of a consumer."""

    def __init__(self, seed: int, tell: Callable[[str], None]) -> None:
        self._random = random = Random(f"damage {seed}")
        self._kind = random.choice(DAMAGES) if random.random() < _CHANCE else ""
        self._due = random.randint(1, _STEPS_MAX)
        self._tell = tell
        self.is_done = False

    def step(self, segments: Segments) -> None:
        """Do what is due, once there is a segment to damage."""
        self._due -= 1
        names = sorted(name for name, rows in segments.items() if rows)
        if not self._kind or self.is_done or self._due > 0 or not names:
            return
        name = self._random.choice(names)
        rows = segments[name]
        match self._kind:
            case "deleted":
                del segments[name]
            case "emptied":
                segments[name] = []
            case "halved":
                segments[name] = rows[: len(rows) // 2]
            case "swapped":
                others = [one for one in names if segments[one] != rows]
                if not others:
                    return
                # Of the same size, if there is one: then no count shows it.
                other = min(others, key=lambda one: abs(len(segments[one]) - len(rows)))
                segments[name], segments[other] = segments[other], rows
            case "changed":
                segments[name] = [*rows[:-1], rows[0]]
                if len(rows) == 1:
                    return
        self.is_done = True
        self._tell(f"segment {self._kind}")
