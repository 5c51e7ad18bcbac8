from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.records import DataChangeRecord
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.errors import BrokenInvariantError

RECORD = DataChangeRecord(
    10, "00000000", "1", True, "T", (), (), "INSERT", "NEW_ROW", 1, 1, "", False
)


def test_it_holds_the_keys_of_all_its_ranges() -> None:
    one = StreamPartition("t", (KeyRange(b"b", b"c"), KeyRange(b"g", None)), start_us=5)

    assert (one.low, one.high) == (b"b", None)
    assert [one.holds(key) for key in (b"a", b"b", b"c", b"g", b"z")] == [
        False,
        True,
        False,
        True,
        True,
    ]


def test_one_without_keys_holds_nothing() -> None:
    one = StreamPartition("t", (), start_us=5)

    assert (one.low, one.high, one.holds(b"")) == (b"", b"", False)


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
