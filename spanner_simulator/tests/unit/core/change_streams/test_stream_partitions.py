from __future__ import annotations

import random

import pytest

from spanner_simulator.core.change_streams.records import PartitionEndRecord
from spanner_simulator.core.change_streams.stream_partition import RecordLog, StreamPartition
from spanner_simulator.core.change_streams.stream_partitions import StreamPartitions
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.errors import BrokenInvariantError, Code, SpannerError
from unit.conftest import data_record

RECORD = data_record()


def test_it_holds_the_keys_of_all_its_ranges() -> None:
    one = StreamPartition("t", (KeyRange(b"b", b"c"), KeyRange(b"g", None)), start_us=5)
    empty = StreamPartition("t", (), start_us=5)
    assert (one.low, one.high, empty.low, empty.high) == (b"b", None, b"", b"")
    assert [key for key in b"abcgz" if one.holds(bytes([key]))] == [*b"bgz"]
    assert not empty.holds(b"")


def test_it_takes_records_while_it_lives() -> None:
    one = StreamPartition("t", (KeyRange(b"", None),), start_us=5)
    with pytest.raises(BrokenInvariantError):
        one.append(RECORD._replace(commit_timestamp_us=4))
    one.append(RECORD)
    one.end_us = 11
    assert not one.is_live
    with pytest.raises(BrokenInvariantError):
        one.append(RECORD._replace(commit_timestamp_us=12))
    assert list(one.records) == [RECORD]


def log_of(*times_us: int) -> RecordLog:
    log = RecordLog()
    for at_us in times_us:
        log.append(PartitionEndRecord(at_us, "", ""))
    return log


def test_indexes_count_from_the_first_record_and_outlive_it() -> None:
    log = log_of(10, 10, 20, 30)
    assert [log.index_at(at_us) for at_us in (0, 10, 11, 20, 31)] == [0, 0, 2, 2, 4]
    assert log.forget_before(20) == 2
    assert (log.first, log.end, len(log), log.last_us) == (2, 4, 2, 30)
    assert [log.index_at(at_us) for at_us in (0, 20, 30, 31)] == [2, 2, 3, 4]
    assert [one.commit_timestamp_us for one in log.span(3, 4)] == [30]
    assert [one.commit_timestamp_us for one in log] == [20, 30]
    assert log[2].commit_timestamp_us == 20
    assert (log.forget_before(31), log.forget_before(31)) == (2, 0)
    assert (log.first, log.end, log.last_us) == (4, 4, None)


def test_what_is_not_held_is_no_record() -> None:
    log = log_of(10, 10, 20, 30)
    log.forget_before(20)
    for index in (1, 4, -1):
        with pytest.raises(IndexError):
            log[index]
    for first, last in ((1, 3), (3, 5)):
        with pytest.raises(BrokenInvariantError):
            log.span(first, last)


@pytest.fixture
def partitions() -> StreamPartitions:
    return StreamPartitions(random.Random(1), [b"g", b"p"], start_us=5)


def test_a_split_ends_the_parent_where_the_children_start(partitions: StreamPartitions) -> None:
    parent = partitions.live[1]
    parent.recent_keys.extend([b"h", b"k", b"n"])
    left, right = partitions.split(parent, b"k", at_us=20)
    assert (parent.end_us, parent.children) == (20, (left, right))
    assert (left.low, left.high, right.low, right.high) == (b"g", b"k", b"k", b"p")
    assert left.start_us == right.start_us == 20
    assert left.parents == right.parents == (parent.token,)
    assert (list(left.recent_keys), list(right.recent_keys)) == ([b"h"], [b"k", b"n"])
    assert not parent.recent_keys
    assert partitions.locate(b"k") is right


def test_a_move_keeps_the_keys(partitions: StreamPartitions) -> None:
    parent = partitions.live[2]
    (child,) = partitions.move(parent, at_us=20)
    assert (child.low, child.high, child.parents) == (b"p", None, (parent.token,))
    assert partitions.active_at(19_999) == partitions.active_at(5_000)
    assert child in partitions.active_at(20_000)
    assert parent not in partitions.active_at(20_000)


def test_what_cannot_be_is_refused(partitions: StreamPartitions) -> None:
    first, second, third = partitions.live
    for act in (
        lambda: partitions.split(second, b"g", at_us=20),
        lambda: partitions.split(second, b"p", at_us=20),
        lambda: partitions.merge([first, third], at_us=20),
        lambda: partitions.merge([first], at_us=20),
    ):
        with pytest.raises(SpannerError) as caught:
            act()
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_only_live_ones_are_found_by_token(partitions: StreamPartitions) -> None:
    parent = partitions.live[0]
    partitions.move(parent, at_us=20)
    with pytest.raises(SpannerError, match="has ended already"):
        partitions.find_live(parent.token)
    with pytest.raises(SpannerError, match="No stream partition"):
        partitions.find_live("nope")


def test_keys_that_move_have_one_holder_and_take_their_history_along() -> None:
    partitions = StreamPartitions(random.Random(1), [b"m"], start_us=5, is_mutable=True)
    source, destination = partitions.live
    source.recent_keys.extend([b"a", b"d", b"k"])
    partitions.move_keys(source, destination, KeyRange(b"c", b"f"), at_us=20)
    assert source.ranges == (KeyRange(b"", b"c"), KeyRange(b"f", b"m"))
    assert destination.ranges == (KeyRange(b"c", b"f"), KeyRange(b"m", None))
    assert [partitions.locate(key) for key in (b"b", b"c", b"f", b"m")] == [
        source,
        destination,
        source,
        destination,
    ]
    assert (list(source.recent_keys), list(destination.recent_keys)) == ([b"a", b"k"], [b"d"])


def test_keys_that_the_source_does_not_hold_cannot_move() -> None:
    partitions = StreamPartitions(random.Random(1), [b"m"], start_us=5, is_mutable=True)
    one, other = partitions.live
    for source, destination, keys in (
        (one, other, KeyRange(b"m", None)),
        (one, one, KeyRange(b"", None)),
    ):
        with pytest.raises(SpannerError, match="keys that the first of them holds") as caught:
            partitions.move_keys(source, destination, keys, at_us=20)
        assert caught.value.code is Code.INVALID_ARGUMENT
    assert [len(one.records) for one in partitions.live] == [0, 0]
