"""What parents, children and living neighbours tell their readers of a turn."""

from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.records import (
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.rows.mutations import Write


@pytest.fixture
def mutable(make_bank):
    """A bank with a stream of mutable key ranges: one stream partition has all accounts."""
    bank = make_bank()
    bank.ddl("CREATE CHANGE STREAM M FOR ALL OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')")
    bank.tick()
    return bank


def records(one: StreamPartition) -> list[object]:
    return list(one.records)


def numbers(one: StreamPartition) -> list[str]:
    return [record.record_sequence.split("-")[1] for record in one.records]


def test_a_split_parent_names_its_children_hands_over_and_ends(mutable) -> None:
    parent = mutable.database.streams.state("M").partitions.live[0]
    children = mutable.database.streams.split("M", now_us=mutable.tick(), token=parent.token)
    at_us = children[0].start_us
    tokens = tuple(child.token for child in children)
    order = parent.records[0].record_sequence.split("-")[0]
    assert records(parent) == [
        PartitionStartRecord(at_us * 1000, f"{order}-00000000", (tokens[0],)),
        PartitionStartRecord(at_us * 1000, f"{order}-00000001", (tokens[1],)),
        PartitionEventRecord(
            at_us, f"{order}-00000002", parent.token, move_out_destinations=tokens
        ),
        PartitionEndRecord(at_us, f"{order}-00000003", parent.token),
    ]
    for child in children:
        assert records(child) == [
            PartitionEventRecord(
                at_us, f"{order}-00000000", child.token, move_in_sources=(parent.token,)
            )
        ]


def test_of_merging_parents_only_the_first_names_the_child(mutable) -> None:
    first, second = mutable.database.streams.state("M").partitions.live
    (child,) = mutable.database.streams.merge("M", now_us=mutable.tick())
    assert [type(one) for one in first.records] == [
        PartitionStartRecord,
        PartitionEventRecord,
        PartitionEndRecord,
    ]
    assert [type(one) for one in second.records] == [PartitionEventRecord, PartitionEndRecord]
    assert [one.move_in_sources for one in child.records] == [(first.token, second.token)]
    assert (numbers(first), numbers(second)) == (
        ["00000000", "00000001", "00000002"],
        ["00000000", "00000001"],
    )


def test_keys_move_between_the_living_and_later_changes_follow_them(mutable) -> None:
    database = mutable.database
    source, destination = database.streams.state("M").partitions.live
    mutable.commit(Write("insert", "Accounts", ("Id",), (["5"],)))
    database.streams.move_keys(
        "M",
        now_us=mutable.tick(),
        source=source.token,
        destination=destination.token,
        table="Accounts",
        first_key=["5"],
        last_key=["9"],
    )
    mutable.commit(*(Write("insert_or_update", "Accounts", ("Id",), ([key],)) for key in "459"))

    kinds = [[type(one).__name__ for one in each.records] for each in (source, destination)]
    assert kinds == [
        ["DataChangeRecord", "PartitionEventRecord", "DataChangeRecord"],
        ["PartitionEventRecord", "DataChangeRecord"],
    ]
    assert source.records[1].move_out_destinations == (destination.token,)
    assert destination.records[0].move_in_sources == (source.token,)
    assert [mod.keys["Id"] for mod in source.records[2].mods] == ["4"]
    assert [mod.keys["Id"] for mod in destination.records[1].mods] == ["9"]
    assert source.is_live
    sequences = [one.record_sequence for one in (source.records[1], source.records[2])]
    assert sequences == sorted(sequences)


def test_no_two_turns_have_one_time(mutable) -> None:
    now_us = mutable.tick()
    for _ in range(4):
        mutable.database.streams.move("M", now_us=now_us)
    times = [
        record.commit_timestamp_us
        for one in mutable.database.streams.state("M").partitions.by_token.values()
        for record in one.records
        if isinstance(record, PartitionEventRecord) and record.move_in_sources
    ]
    assert len(set(times)) == len(times) == 4
