"""What lies past an instant, to the microsecond."""

from __future__ import annotations

import pytest

from tidegate.producer.core.item_times import lies_past, waits_for_move_ins
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)

END_US = 1_000


def items(at_us):
    at_ns = at_us * 1000
    return [
        PublishableRecord(at_us, "t", "0", ()),
        HeartbeatRecord(at_ns),
        ChildPartitionsRecord(at_ns, "0", ()),
        PartitionStartRecord(at_ns, "0", ("t",)),
        PartitionEndRecord(at_ns, "0"),
        PartitionEventRecord(at_ns, "0", ()),
    ]


@pytest.mark.parametrize("rest_ns", [0, 999])
def test_the_end_is_inclusive_for_each_kind(rest_ns):
    end_ns = END_US * 1000 + rest_ns
    assert not any(lies_past(item, end_ns) for item in items(END_US))
    assert all(lies_past(item, end_ns) for item in items(END_US + 1))


def test_only_moves_and_heartbeats_of_the_instant_wait_for_no_move_in():
    waiting = [type(item) for item in items(END_US) if waits_for_move_ins(item, END_US)]
    assert waiting == [
        PublishableRecord, ChildPartitionsRecord, PartitionStartRecord, PartitionEndRecord
    ]  # fmt: skip
    assert all(waits_for_move_ins(item, END_US) for item in items(END_US + 1))
