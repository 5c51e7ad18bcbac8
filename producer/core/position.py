"""The read or published position of a stream partition, and the sources that it waits for.

Times are compared in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    FilesClosedRecord,
    HeartbeatRecord,
    LineageRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.order_key import sequence_pair
from tidegate.schemas.progress import MOVE_OUTS, STARTS


@dataclass(frozen=True, slots=True)
class Position:
    """Everything with a commit timestamp <= `watermark_us`, and what `boundary` covers after it."""

    watermark_us: int
    boundary: dict[str, str] = field(default_factory=dict)
    """server transaction id -> highest record sequence; all at one commit time, watermark + 1.

    `STARTS` and `MOVE_OUTS` are the ids of records without a transaction.
    """

    def with_record(self, record: PublishableRecord) -> Position:
        """Return the position after one more record; others may follow at its commit time."""
        return self._with(
            record.commit_timestamp_us, record.server_transaction_id, record.record_sequence
        )

    def with_start(self, start: PartitionStartRecord) -> Position:
        """Return the position after a start record."""
        return self._with(start.start_ns // NS_PER_US, STARTS, start.record_sequence)

    def with_move(self, event: PartitionEventRecord) -> Position:
        """Return the position after keys moved; a move-out that it contains does not change it.

        A move-in is met again if it is read again.
        """
        at_us = event.commit_timestamp_ns // NS_PER_US
        if not event.destinations:
            return self.through(at_us - 1)
        if self._covers(at_us, MOVE_OUTS, event.record_sequence):
            return self
        return self._with(at_us, MOVE_OUTS, event.record_sequence)

    def with_heartbeat(self, timestamp_us: int) -> Position:
        """Return the position after a heartbeat: more records may follow at its instant."""
        return self.through(timestamp_us - 1)

    def with_closed(self, record: FilesClosedRecord) -> Position:
        """Return the position without files that are not listed again; for files only."""
        raise InvariantViolation(
            "files were closed in a stream partition that reads none", files=len(record.files)
        )

    @property
    def resumption(self) -> Mapping[str, str]:
        """The records that a query from here reads again and does not return; see `StartQuery`."""
        return {}

    def through(self, at_us: int) -> Position:
        """Return the position after the end of an instant."""
        return Position(at_us) if at_us > self.watermark_us else self

    def covers(self, record: PublishableRecord) -> bool:
        """Whether a record is already contained."""
        return self._covers(
            record.commit_timestamp_us, record.server_transaction_id, record.record_sequence
        )

    def covers_start(self, start: PartitionStartRecord) -> bool:
        """Whether a start record is already contained."""
        return self._covers(start.start_ns // NS_PER_US, STARTS, start.record_sequence)

    def _with(self, at_us: int, transaction: str, sequence: str) -> Position:
        kept = self.boundary if at_us - 1 == self.watermark_us else {}
        return Position(at_us - 1, {**kept, transaction: sequence})

    def _covers(self, at_us: int, transaction: str, sequence: str) -> bool:
        if at_us != self.watermark_us + 1:
            return at_us <= self.watermark_us
        highest = self.boundary.get(transaction)
        return highest is not None and sequence_pair(sequence) <= sequence_pair(highest)


Item: TypeAlias = PublishableRecord | HeartbeatRecord | LineageRecord


def lies_past(item: Item, end_ns: int) -> bool:
    """Whether nothing at or before `end_ns` (inclusive) can follow an item."""
    match item:
        case PublishableRecord():
            return item.commit_timestamp_us > end_ns // NS_PER_US
        case HeartbeatRecord():
            # More records may follow at the heartbeat's instant.
            return item.timestamp_ns // NS_PER_US > end_ns // NS_PER_US
        case PartitionEventRecord():
            return item.commit_timestamp_ns // NS_PER_US > end_ns // NS_PER_US
        case PartitionEndRecord():
            return item.end_ns // NS_PER_US > end_ns // NS_PER_US
        case ChildPartitionsRecord() | PartitionStartRecord():
            return item.start_ns > end_ns
        case FilesClosedRecord():
            return False


def waits_for_move_ins(item: Item, at_us: int) -> bool:
    """Whether an item that follows move-ins of an instant has to wait for their sources.

    Other moves of that instant do not wait: a source may be waiting for them.
    """
    is_passive = isinstance(item, PartitionEventRecord | HeartbeatRecord)
    return not is_passive or lies_past(item, at_us * NS_PER_US)


@dataclass(slots=True)
class MoveIns:
    """The newest move-ins of one stream partition, all of one instant (MUTABLE_KEY_RANGE).

    A stream partition that returns a move-in at T publishes no later item before each source has
    published everything before its move-out at T, so that the changes of a key keep their order.
    It returns its query meanwhile, because its sources may need one.

    A source is done when it has published through T, or up to its own move-out of that instant,
    which its position then contains.  So two stream partitions that exchange keys at one instant do
    not wait for each other, and the one with the lowest T waits for none that waits.
    """

    at_us: int = -1
    waits_for: set[str] = field(default_factory=set)
    """Sources that are not known to have published up to their move-out."""
    _published: set[str] = field(default_factory=set)

    def add(self, at_us: int, sources: Iterable[str]) -> list[tuple[str, int]]:
        """Add a move-in; return (source, time) of the sources to ask about."""
        if at_us != self.at_us:
            self.at_us, self.waits_for, self._published = at_us, set(), set()
        present = self.waits_for | self._published
        new = [source for source in sources if source not in present]
        self.waits_for.update(new)
        return [(source, at_us) for source in new]

    def publish(self, source: str, at_us: int) -> bool:
        """Record that a source has published up to a move; return whether it was the last one."""
        if at_us != self.at_us or source not in self.waits_for:
            return False
        self.waits_for.remove(source)
        self._published.add(source)
        return not self.waits_for
