"""Which items of the initial query's answer count; how a worker uses it: `test_stream_opening`."""

from tidegate.producer.core.initial_query import names_partitions
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    FilesClosedRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionStartRecord,
)


def test_only_names_of_stream_partitions_count():
    assert names_partitions(ChildPartitionsRecord(5, "0", ()))
    assert names_partitions(PartitionStartRecord(5, "0", ("a",)))
    for item in (
        HeartbeatRecord(5),
        PartitionEndRecord(5, "0"),
        PublishableRecord(5, "tx", "0", (), filtered=1),
        FilesClosedRecord(0, ()),
    ):
        assert not names_partitions(item)
