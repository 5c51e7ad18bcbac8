from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.records import (
    Child,
    ChildPartitionsRecord,
    HeartbeatRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.stream_query import (
    PartitionQuery,
    Position,
    Step,
    initial_rows,
    without_ending,
)
from spanner_simulator.core.rows.mutations import Write
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.errors import Code, SpannerError

HEARTBEAT_US = 1_000


def rows_of(partition, step: Step) -> list[StreamRow]:
    """Everything that a step sends."""
    return [*partition.records.span(step.data.start, step.data.stop), *step.rows]


def insert(bank, key: int) -> int:
    return bank.commit(Write("insert", "Accounts", ("Id",), ([str(key)],)))


def query(bank, partition, **options) -> PartitionQuery:
    options.setdefault("start_ns", partition.start_us * 1000)
    options.setdefault("end_ns", None)
    options.setdefault("opened_at_us", bank.now_us)
    return PartitionQuery(partition, bank.database.clock, heartbeat_us=HEARTBEAT_US, **options)


@pytest.fixture
def partition(bank):
    """The stream partition of all accounts."""
    return bank.database.streams.state("Bank").partitions.live[0]


def test_the_initial_query_names_what_was_active_at_its_start(bank) -> None:
    partitions = bank.database.streams.state("Bank").partitions
    old = [one.token for one in partitions.live]
    start_ns = bank.now_us * 1000 + 7
    bank.tick()
    bank.database.streams.split("Bank", now_us=bank.now_us)
    rows = initial_rows(partitions, start_ns)
    assert rows == [
        ChildPartitionsRecord(start_ns, sequence, (Child(token, ()),))
        for sequence, token in zip(("00000000", "00000001"), old, strict=True)
    ]
    assert len(initial_rows(partitions, bank.now_us * 1000)) == 3


def test_data_comes_at_once_and_in_order_from_the_start_inclusive(bank, partition) -> None:
    times = [insert(bank, key) for key in (3, 1, 2)]
    for beyond_ns, expected in ((0, times[1:]), (1, times[2:])):
        reader = query(bank, partition, start_ns=times[1] * 1000 + beyond_ns)
        rows = rows_of(partition, reader.poll(bank.now_us))
        assert [row.commit_timestamp_us for row in rows] == expected


def test_a_heartbeat_comes_after_silence_and_closes_its_time(bank, partition) -> None:
    reader = query(bank, partition)
    early = reader.poll(bank.tick(HEARTBEAT_US - 1))
    due = reader.poll(bank.tick(1))
    assert early.rows == []
    assert early.wake_at_us == bank.now_us
    assert due.rows == [HeartbeatRecord(bank.now_us * 1000)]
    bank.now_us -= 100
    assert insert(bank, 1) > due.rows[0].timestamp_ns // 1000


def test_a_heartbeat_is_never_behind_a_record_that_is_ahead_of_the_clock(make_bank) -> None:
    bank = make_bank()
    bank.ddl("CREATE CHANGE STREAM M FOR ALL OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')")
    bank.tick()
    one, other = bank.database.streams.state("M").partitions.live[:2]
    reader = query(bank, one)
    now_us = bank.tick(HEARTBEAT_US)
    # A strong read has promised this very instant, so that the turn has to come after it.
    bank.database.clock.read_now_us(now_us)
    bank.database.streams.move_keys("M", now_us=now_us, source=one.token, destination=other.token)
    (moved,) = rows_of(one, reader.poll(now_us))
    silence = query(bank, one, resume=reader.position, opened_at_us=now_us - HEARTBEAT_US)
    (heartbeat,) = rows_of(one, silence.poll(now_us))
    assert moved.commit_timestamp_us == now_us + 1
    assert heartbeat == HeartbeatRecord((now_us + 1) * 1000)


def test_a_heartbeat_never_speaks_for_what_is_behind_the_end(bank, partition) -> None:
    now_us = bank.tick(HEARTBEAT_US)
    end_us = now_us + 1
    reader = query(bank, partition, end_ns=end_us * 1000, opened_at_us=now_us - HEARTBEAT_US)
    bank.database.clock.close(end_us)
    write = Write("insert", "Accounts", ("Id",), (["1"],))
    ahead_us = bank.database.commit(bank.database.begin(), [write], now_us=now_us)
    (heartbeat,) = rows_of(partition, reader.poll(now_us))
    assert ahead_us == end_us + 1
    assert heartbeat == HeartbeatRecord(end_us * 1000)


def test_data_puts_the_heartbeat_off(bank, partition) -> None:
    reader = query(bank, partition)
    bank.tick(HEARTBEAT_US)
    insert(bank, 1)
    assert len(reader.poll(bank.now_us).data) == 1
    assert reader.poll(bank.tick(HEARTBEAT_US - 1)).rows == []
    assert isinstance(reader.poll(bank.tick(1)).rows[0], HeartbeatRecord)


def test_the_end_of_a_life_brings_all_children_after_all_data(bank, partition) -> None:
    reader = query(bank, partition)
    at = insert(bank, 1)
    children = bank.database.streams.split("Bank", now_us=bank.now_us, token=partition.token)
    step = reader.poll(bank.now_us)
    assert step.is_finished
    assert step.rows == [
        ChildPartitionsRecord(
            children[0].start_us * 1000,
            "00000000",
            tuple(Child(one.token, (partition.token,)) for one in children),
        )
    ]
    assert [row.commit_timestamp_us for row in rows_of(partition, step)[:1]] == [at]
    assert at < children[0].start_us


def test_children_may_come_one_by_one(bank, partition) -> None:
    bank.tick()
    children = bank.database.streams.split("Bank", now_us=bank.now_us, token=partition.token)
    step = query(bank, partition, separate_children=True).poll(bank.now_us)
    assert [(row.record_sequence, row.children[0].token) for row in step.rows] == [
        ("00000000", children[0].token),
        ("00000001", children[1].token),
    ]


def test_an_end_is_inclusive_and_waited_for(bank, partition) -> None:
    end_us = bank.now_us + 50
    reader = query(bank, partition, end_ns=end_us * 1000 + 999)
    bank.now_us = end_us - 10
    at = insert(bank, 1)
    bank.tick(1)
    late = insert(bank, 2)
    before = reader.poll(end_us - 1)
    after = reader.poll(end_us)
    assert (at, late) == (end_us, end_us + 11)
    assert [row.commit_timestamp_us for row in rows_of(partition, before)] == [end_us]
    assert (before.is_finished, before.wake_at_us) == (False, end_us)
    assert (after.rows, after.is_finished) == ([], True)


def test_a_bounded_query_without_any_row_ends_with_one_heartbeat_that_closes_its_end(
    bank, partition
) -> None:
    end_us = bank.now_us + 5
    step = query(bank, partition, end_ns=end_us * 1000 + 1).poll(bank.tick())
    bank.now_us -= 30
    assert (step.rows, step.is_finished) == ([HeartbeatRecord(end_us * 1000 + 1)], True)
    assert insert(bank, 1) > end_us


def test_a_life_that_ends_after_the_query_brings_no_children(bank, partition) -> None:
    end_us = bank.now_us
    bank.tick()
    bank.database.streams.move("Bank", now_us=bank.now_us, token=partition.token)
    step = query(bank, partition, end_ns=end_us * 1000).poll(bank.tick())
    assert [type(row) for row in step.rows] == [HeartbeatRecord]
    assert step.is_finished


def test_a_start_in_the_future_is_waited_for(bank, partition) -> None:
    start_us = bank.now_us + 500
    step = query(bank, partition, start_ns=start_us * 1000).poll(bank.now_us)
    assert (step.rows, step.is_finished, step.wake_at_us) == ([], False, start_us)


def test_every_position_resumes_right_after_its_row(bank, partition) -> None:
    for key in (1, 2, 3):
        insert(bank, key)
    bank.database.streams.split("Bank", now_us=bank.tick(), token=partition.token)
    rows = rows_of(partition, query(bank, partition, separate_children=True).poll(bank.now_us))
    position = Position(0, 0, 0)
    for index, row in enumerate(rows):
        position = position.after(row)
        reader = query(bank, partition, separate_children=True, resume=position)
        assert rows_of(partition, reader.poll(bank.now_us)) == rows[index + 1 :]
    assert position.serial == len(rows) == 5


def test_a_backlog_is_served_in_slices(bank, partition) -> None:
    for key in range(1, 13):
        insert(bank, key)
    reader = query(bank, partition)
    first, second, third = (reader.poll(bank.now_us, data_max=10) for _ in range(3))
    assert [len(one.data) for one in (first, second, third)] == [10, 2, 0]
    assert first.wake_at_us == bank.now_us


def test_an_ending_is_hidden_but_what_happened_in_the_life_is_not(make_bank) -> None:
    bank = make_bank()
    bank.ddl("CREATE CHANGE STREAM M FOR ALL OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')")
    bank.tick()
    streams = bank.database.streams
    one, other = streams.state("M").partitions.live[:2]
    streams.move_keys("M", now_us=bank.tick(), source=one.token, destination=other.token)
    alive = query(bank, one, end_ns=bank.now_us * 1000).poll(bank.tick())
    streams.merge("M", now_us=bank.tick(), tokens=[one.token, other.token])
    ended = query(bank, other, end_ns=bank.now_us * 1000).poll(bank.tick())
    assert len(without_ending(one, alive).data) == len(alive.data) == 1
    assert (len(without_ending(other, ended).data), len(ended.data)) == (1, 3)


def test_what_has_expired_unread_ends_the_query_with_its_start_and_where_records_begin(
    bank, partition
) -> None:
    times = [insert(bank, key) for key in (1, 2)]
    reader = query(bank, partition)
    assert len(reader.poll(bank.now_us, data_max=1, earliest_us=times[0]).data) == 1
    earliest_us = times[1] + 1
    for forgotten in (False, True):
        if forgotten:
            partition.records.forget_before(earliest_us)
        with pytest.raises(SpannerError, match="too far in the past") as caught:
            reader.poll(bank.now_us, earliest_us=earliest_us)
        assert caught.value.code is Code.OUT_OF_RANGE
        for named_us in (partition.start_us, earliest_us):
            assert format_us(named_us).removesuffix("Z") in caught.value.message


def test_a_stream_partition_that_has_expired_is_over_even_when_all_was_read(
    bank, partition
) -> None:
    reader = query(bank, partition)
    reader.poll(bank.now_us)
    (child,) = bank.database.streams.move("Bank", now_us=bank.tick(), token=partition.token)
    assert not query(bank, child).poll(bank.now_us, earliest_us=child.start_us + 1).is_finished
    with pytest.raises(SpannerError, match="no longer valid"):
        reader.poll(bank.now_us, earliest_us=child.start_us + 1)
