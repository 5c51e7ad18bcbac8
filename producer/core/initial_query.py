"""What counts in the answer to the initial query: the stream partitions that it names.

The query runs in no slot and before there is an epoch, so nothing else of it can be published.
"""

from __future__ import annotations

from tidegate.producer.core.item_times import Item
from tidegate.producer.errors import InitialQueryChange
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.schemas.instants import NS_PER_US


def names_partitions(item: Item) -> bool:
    """Whether an item of the initial query names stream partitions; any other moves nothing.

    A heartbeat would move the start of the next attempt, whose stream partitions begin there.
    Raises InitialQueryChange for a change that is to be published, and for a move of keys.
    """
    if isinstance(item, PublishableRecord) and (item.messages or item.parked):
        topics = {one.topic for one in item.messages} | {one.topic for one in item.parked}
        raise InitialQueryChange(
            commit_timestamp_us=item.commit_timestamp_us,
            server_transaction_id=item.server_transaction_id,
            record_sequence=item.record_sequence,
            topics=sorted(topics),
        )
    if isinstance(item, PartitionEventRecord):
        raise InitialQueryChange(
            commit_timestamp_us=item.commit_timestamp_ns // NS_PER_US,
            record_sequence=item.record_sequence,
        )
    return isinstance(item, ChildPartitionsRecord | PartitionStartRecord)
