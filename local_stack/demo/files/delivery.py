"""How Datastream delivers events: out of order, some twice, and some files late.

Pure: events and times go in, files come out; the same seed and times give the same files.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Event = TypeVar("_Event")
_JITTER_S = 0.8
_COPY_CHANCE, _COPY_WITHIN_S = 0.05, 8.0
_FILE_HELD_CHANCE, _SURELY_HELD_EVENTS = 0.12, 5
_FILE_TWICE_CHANCE = 0.08


@dataclass(frozen=True, slots=True)
class DeliveredFile(Generic[_Event]):
    """A file to write now, in the folder of a minute since 1970."""

    folder: str
    minute: int
    events: Sequence[_Event]


@dataclass(slots=True)
class Delivery(Generic[_Event]):
    """The events that were read in the source and are in no file yet, of all folders."""

    seed: int
    hold_s: float
    """How long a file that is late is held back, at least."""
    _chance: random.Random = field(init=False)
    _waiting: defaultdict[str, list[tuple[float, _Event]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _held: list[tuple[float, DeliveredFile[_Event]]] = field(default_factory=list)

    _held_since: set[str] | None = None
    """The folders of which a file was held back since `hold_next`."""

    def __post_init__(self) -> None:
        """Seed the chance."""
        self._chance = random.Random(f"{self.seed}/delivery")  # noqa: S311 - sample data

    @property
    def is_empty(self) -> bool:
        """Whether every event is in a file."""
        return not self._held and not any(self._waiting.values())

    def add(self, folder: str, event: _Event, *, now_s: float) -> None:
        """Take an event that was read now; it comes once at least."""
        chance = self._chance
        waiting = self._waiting[folder]
        waiting.append((now_s + chance.uniform(0, _JITTER_S), event))
        if chance.random() < _COPY_CHANCE:
            waiting.append((now_s + chance.uniform(0, _COPY_WITHIN_S), event))

    def hold_next(self) -> None:
        """Hold the next file of each folder back, if it has more than a few events."""
        self._held_since = set()

    def files(self, *, now_s: float) -> list[DeliveredFile[_Event]]:
        """Return the files that are written now: one for each folder, and late ones.

        A late file is in the folder of the minute in which it would have been written.
        """
        found = [one for due_s, one in self._held if due_s <= now_s]
        self._held = [pair for pair in self._held if pair[0] > now_s]
        for folder, waiting in self._waiting.items():
            due = sorted((one for one in waiting if one[0] <= now_s), key=lambda one: one[0])
            if not due:
                continue
            self._waiting[folder] = [one for one in waiting if one[0] > now_s]
            file = DeliveredFile(folder, int(now_s // 60), [event for _, event in due])
            surely = (
                self._held_since is not None
                and folder not in self._held_since
                and len(file.events) >= _SURELY_HELD_EVENTS
            )
            if self._chance.random() < _FILE_HELD_CHANCE or surely:
                if self._held_since is not None:
                    self._held_since.add(folder)
                until_s = now_s + self._chance.uniform(self.hold_s, 1.5 * self.hold_s)
                self._held.append((until_s, file))
                continue
            found.append(file)
            if self._chance.random() < _FILE_TWICE_CHANCE:
                again = self._chance.sample(file.events, len(file.events))
                until_s = now_s + self._chance.uniform(0, _COPY_WITHIN_S)
                self._held.append((until_s, DeliveredFile(folder, file.minute, again)))
        return found
