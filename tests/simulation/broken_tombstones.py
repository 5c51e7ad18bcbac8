"""Publishers that are broken on purpose: where tombstones stand, and what counts them."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core import stream_partition
from tidegate.producer.memory.log import TOMBSTONE
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import MOD_DELETE

__all__ = ["BROKEN_TOMBSTONES"]

_begin = MemoryPublisher.begin
_counted = stream_partition.counted
_enqueue = MemoryPublisher._enqueue
_publish_change = MemoryPublisher._publish_change


def _in_front(self: Any, message: Any, record: Any, slot: int) -> None:
    before = len(self._queue)
    _publish_change(self, message, record, slot)
    self._queue[before:] = self._queue[before:][::-1]


def _of_each_change(self: Any, message: Any, record: Any, slot: int) -> None:
    _publish_change(self, message._replace(mod=MOD_DELETE), record, slot)


def _hold_back(self: Any, queued: Any) -> None:
    """Keep the tombstones of data topics for the next transaction."""
    if queued.value is TOMBSTONE and queued.place[0] != self._progress_topic:
        self.held_back = [*getattr(self, "held_back", ()), queued]
    else:
        _enqueue(self, queued)


def _begin_with_what_was_held_back(self: Any, metadata: Any) -> Any:
    outcome = _begin(self, metadata)
    for queued in self.__dict__.pop("held_back", ()) if outcome is None else ():
        _enqueue(self, queued)
    return outcome


def _count_tombstones(records: list[Any], totals: Any, checksums: Any) -> Any:
    deletes = [
        record._replace(messages=deleted)
        for record in records
        if (deleted := tuple(one for one in record.messages if one.mod == MOD_DELETE))
    ]
    return _counted([*records, *deletes], totals, checksums)


BROKEN_TOMBSTONES = (
    Mutant(
        "a tombstone in front of its DELETE",
        "tombstones",
        ((MemoryPublisher, "_publish_change", _in_front),),
    ),
    Mutant(
        "a tombstone in the transaction after that of its DELETE",
        "tombstones",
        (
            (MemoryPublisher, "_enqueue", _hold_back),
            (MemoryPublisher, "begin", _begin_with_what_was_held_back),
        ),
    ),
    Mutant(
        "a tombstone behind each change",
        "tombstones",
        ((MemoryPublisher, "_publish_change", _of_each_change),),
    ),
    Mutant(
        "a tombstone counted as a change",
        "completeness",
        ((stream_partition, "counted", _count_tombstones),),
    ),
)
