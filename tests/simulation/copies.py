"""Records that are in a data topic twice: by a tool that copies topics at least once."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from tidegate.producer.memory.log import TOMBSTONE

if TYPE_CHECKING:
    from tests.simulation.world import World
    from tidegate.producer.memory.log import Entry, Log

__all__ = ["Copies"]

_DAMAGED = 0.15
"""Part of the seeds whose copies have other content."""
_RECENT = 5


class Copies:
    """Adds copies of recent records; in some seeds they are not what they copy."""

    def __init__(self, world: World, seed: int) -> None:
        """Add nothing yet."""
        self._world = world
        self._added: list[Entry] = []
        self.are_damaged = Random(f"copies {seed}").random() < _DAMAGED

    def __contains__(self, entry: Entry) -> bool:
        """Whether a record was added here."""
        return any(entry is copy for copy in self._added)

    def add(self) -> None:
        """Append one of the youngest records of a topic partition a second time."""
        world = self._world
        topic = world.random.choice(world.data_topics)
        log = world.broker.logs.get((topic, world.random.randrange(world.weather.topic_partitions)))
        read = log.read(0) if log is not None else ()
        entries = [entry for entry in read if entry.value is not TOMBSTONE]
        if log is None or not entries:
            return
        entry = world.random.choice(entries[-_RECENT:])
        if self.are_damaged and world.ground.keeps_data:  # or else the original may be gone
            log, entry = self._damaged(log.place[0], entry, entries)
        log.append(entry.key, entry.value, None)
        self._added.append(log.entries[-1])

    def _damaged(self, topic: str, entry: Entry, entries: list[Entry]) -> tuple[Log, Entry]:
        """Return a record with the order key of one change and the content of another."""
        world = self._world
        meant: Any = entry.value
        other: Any = world.random.choice(entries[-_RECENT:]).value
        if other.value != meant.value:
            world.tell("consumer", "fault", "a copy with other content")
            entry = replace(entry, value=meant._replace(key=other.key, value=other.value))
        number = world.random.randrange(world.weather.topic_partitions)
        return world.broker.logs[topic, number], entry
