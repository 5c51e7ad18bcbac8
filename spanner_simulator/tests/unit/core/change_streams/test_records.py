from __future__ import annotations

from spanner_simulator.core.change_streams.records import (
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)


def test_records_of_a_turn_have_a_place_in_commit_order() -> None:
    records = [
        PartitionStartRecord(7_999, "0-0", ("child",)),
        PartitionEventRecord(7, "0-1", "parent", move_out_destinations=("child",)),
        PartitionEndRecord(7, "0-2", "parent"),
    ]

    assert [record.commit_timestamp_us for record in records] == [7, 7, 7]
