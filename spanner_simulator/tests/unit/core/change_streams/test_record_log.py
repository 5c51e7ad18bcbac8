from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.record_log import RecordLog
from spanner_simulator.core.change_streams.records import PartitionEndRecord
from spanner_simulator.errors import BrokenInvariantError


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


@pytest.mark.parametrize("index", [1, 4, -1])
def test_what_is_not_held_is_no_record(index: int) -> None:
    log = log_of(10, 10, 20, 30)
    log.forget_before(20)

    with pytest.raises(IndexError):
        log[index]


def test_everything_may_be_forgotten() -> None:
    log = log_of(10)

    assert log.forget_before(11) == 1
    assert log.forget_before(11) == 0
    assert (log.first, log.end, log.last_us) == (1, 1, None)


@pytest.mark.parametrize(("first", "last"), [(1, 3), (3, 5)])
def test_a_span_never_has_other_records_than_were_asked_for(first: int, last: int) -> None:
    log = log_of(10, 10, 20, 30)
    log.forget_before(20)

    with pytest.raises(BrokenInvariantError):
        log.span(first, last)
