"""How far a stream partition is read or published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    FilesClosedRecord,
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

    Under `STARTS` and `MOVE_OUTS` those of records that have no transaction.
    """

    def with_record(self, record: PublishableRecord) -> Position:
        """Return the position after one more record: others at its commit time may follow it."""
        return self._with(
            record.commit_timestamp_us, record.server_transaction_id, record.record_sequence
        )

    def with_start(self, start: PartitionStartRecord) -> Position:
        """Return the position after a start record."""
        return self._with(start.start_ns // NS_PER_US, STARTS, start.record_sequence)

    def with_move(self, event: PartitionEventRecord) -> Position:
        """Return the position after keys moved; a move-in is met again if it is read again.

        That is this one if it contains the move-out already.
        """
        at_us = event.commit_timestamp_ns // NS_PER_US
        if not event.destinations:
            return self.through(at_us - 1)
        if self._covers(at_us, MOVE_OUTS, event.record_sequence):
            return self
        return self._with(at_us, MOVE_OUTS, event.record_sequence)

    def with_heartbeat(self, timestamp_us: int) -> Position:
        """Return the position after a heartbeat: the instant itself may still bring records."""
        return self.through(timestamp_us - 1)

    def with_closed(self, record: FilesClosedRecord) -> Position:
        """Return the position without files that are not met again; only where files are read."""
        raise InvariantViolation(
            "files were closed in a stream partition that reads none", files=len(record.files)
        )

    @property
    def resumption(self) -> Mapping[str, str]:
        """What a query that starts here has to know of what was returned before."""
        return {}

    def through(self, at_us: int) -> Position:
        """Return the position when all of an instant was returned."""
        return Position(at_us) if at_us > self.watermark_us else self

    def covers(self, record: PublishableRecord) -> bool:
        """Whether a record is contained already."""
        return self._covers(
            record.commit_timestamp_us, record.server_transaction_id, record.record_sequence
        )

    def covers_start(self, start: PartitionStartRecord) -> bool:
        """Whether a start record is contained already."""
        return self._covers(start.start_ns // NS_PER_US, STARTS, start.record_sequence)

    def _with(self, at_us: int, transaction: str, sequence: str) -> Position:
        kept = self.boundary if at_us - 1 == self.watermark_us else {}
        return Position(at_us - 1, {**kept, transaction: sequence})

    def _covers(self, at_us: int, transaction: str, sequence: str) -> bool:
        if at_us != self.watermark_us + 1:
            return at_us <= self.watermark_us
        highest = self.boundary.get(transaction)
        return highest is not None and sequence_pair(sequence) <= sequence_pair(highest)
