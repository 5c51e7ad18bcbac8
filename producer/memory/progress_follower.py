"""Reads all slots of a progress topic in memory, for the view of the whole fleet."""

from __future__ import annotations

from tidegate.producer.core.events import FleetRead, ProgressReadLost, ReadInterrupted
from tidegate.producer.core.fleet import FleetProgress
from tidegate.producer.errors import ProgressLost
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.log import TOMBSTONE
from tidegate.schemas.errors import ConsumerError
from tidegate.schemas.progress import ProgressRecord


class MemoryProgressFollower:
    """Follows one epoch of a progress topic."""

    def __init__(
        self,
        broker: MemoryBroker,
        *,
        topic: str,
        slots: int,
        epoch: str,
        with_moves: bool = False,
    ) -> None:
        """Start to read."""
        self.progress = FleetProgress(epoch=epoch, topic=topic, slots=slots, with_moves=with_moves)
        self._broker = broker
        self._topic = topic
        self._positions = dict.fromkeys(range(slots), 0)
        self._has_failed = False

    def poll(self, now_us: int) -> FleetRead | ProgressReadLost | ReadInterrupted | None:
        """Read every slot to its end; return what is new."""
        if self._has_failed:
            return None
        if self.progress.wants_ends(now_us):
            self.progress.note_ends({slot: self._end(slot) for slot in self._positions}, now_us)
        try:
            for slot in self._positions:
                self._read(slot)
            return self.progress.report()
        except ProgressLost as error:
            self._has_failed = True
            return ProgressReadLost(error)
        except ConsumerError as error:
            self._has_failed = True
            return ReadInterrupted(f"topic {self._topic}", str(error))

    def _end(self, slot: int) -> int:
        log = self._broker.logs.get((self._topic, slot))
        return self._positions[slot] if log is None else log.stable_end

    def _read(self, slot: int) -> None:
        log = self._broker.logs.get((self._topic, slot))
        if log is None:
            return
        for entry in log.read(self._positions[slot]):
            record = entry.value
            if record is TOMBSTONE:
                self.progress.add(slot, entry.offset, None)
            else:
                assert isinstance(record, ProgressRecord)  # noqa: S101 - the topic holds no other
                self.progress.add(slot, entry.offset, record)
        self._positions[slot] = max(self._positions[slot], log.stable_end)
        self.progress.reach_end(slot, self._positions[slot])
