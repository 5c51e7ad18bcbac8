"""What a query returned, compared with an instant; times are compared in microseconds."""

from __future__ import annotations

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
from tidegate.schemas.instants import NS_PER_US

Item: TypeAlias = PublishableRecord | HeartbeatRecord | LineageRecord


def lies_past(item: Item, end_ns: int) -> bool:
    """Whether nothing at or before `end_ns` (inclusive) can follow an item."""
    match item:
        case PublishableRecord():
            return item.commit_timestamp_us > end_ns // NS_PER_US
        case HeartbeatRecord():
            # Records of the heartbeat's own instant may still follow.
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

    Other moves of that instant do not: a source may wait for them.
    """
    is_passive = isinstance(item, PartitionEventRecord | HeartbeatRecord)
    return not is_passive or lies_past(item, at_us * NS_PER_US)
