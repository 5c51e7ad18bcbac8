from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.records import DataChangeRecord, PartitionEndRecord
from spanner_simulator.core.change_streams.stream_partition import RecordLog, StreamPartition
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.errors import BrokenInvariantError

RECORD = DataChangeRecord(
    10, "00000000", "1", True, "T", (), (), "INSERT", "NEW_ROW", 1, 1, "", False
)


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
