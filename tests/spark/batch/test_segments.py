"""Waiting changes as files, and releases made from them."""

from __future__ import annotations

import shutil

import pytest

from tests.spark.gate_rows import change, commit_times_us
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.core.batch_state import Segment
from tidegate.spark_consumer.core.conservation import reads_of
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.row_sums import RowSum, SegmentRead
from tidegate.spark_consumer.errors import SegmentDamaged

pytestmark = pytest.mark.spark


@pytest.fixture
def files(spark, storage):
    return SegmentFiles(spark, storage.path("segments"))


@pytest.fixture
def store(files, rows):
    """Write a segment of changes at these times; return it as it was written."""

    def store(name, *times_us, quantiles_us=()):
        low, high = min(times_us), max(times_us)
        planned = Segment(name, low, high, len(times_us), (*quantiles_us, high))
        return planned.written(files.store(rows(*(change(us, us) for us in times_us)), planned))

    return store


def released(files, rows, segments, *, after_us=-1, through_us=50):
    reads = reads_of(segments, after_us=after_us, through_us=through_us)
    bounds = ReleaseBounds(0, after_us, through_us, tuple(s.name for s in segments))
    return files.release(rows, bounds, reads=reads)


def test_segments_give_back_what_is_released_in_order_and_once(files, store, rows):
    segments = store("a/1", 30, 12, 45), store("b/1", 20)
    fresh = rows(change(15, 1), change(12, 500), change(44, 2), (True, *change(13)[1:]))
    found = released(files, fresh, segments, after_us=11, through_us=30)
    kept = found.frame.collect()
    assert [(int.from_bytes(row.order_key[:8], "big"), row.offset) for row in kept] == [
        (12, 12),
        (15, 1),
        (20, 20),
        (30, 30),
    ]
    assert [row.place for row in kept] == [0, 1, 2, 3]
    assert [row.copies for row in kept] == [2, 1, 1, 1]
    # The part that ends at 45 was read, and is not due.
    waiting, due = found.waiting
    assert (waiting.rows, due) == (4, 3)


def test_a_batch_in_a_session_of_its_own_is_counted_too(files, store, rows):
    """As every micro-batch of a stream is: Spark gives it a copy of the query's session."""
    segments = (store("a/1", 30, 12),)
    fresh = rows(change(15, 1))
    other = fresh.sparkSession.newSession()
    copied = other.createDataFrame(fresh.collect(), fresh.schema)
    found = released(files, copied, segments)
    assert len(found.frame.collect()) == 3
    waiting, due = found.waiting
    assert (waiting.rows, due) == (2, 2)


def test_records_with_one_order_key_and_other_content_are_no_copies(files, store, rows):
    segments = (store("a/1", 12),)
    copy, other_topic = change(12, 500), change(13, 2, topic="bank.b")
    other_value = (*change(14, 9)[:5], bytearray(b"x"), *change(14, 9)[6:])
    fresh = rows(copy, change(13, 1), other_topic, change(14, 8), other_value, change(15, 3))
    found = released(files, fresh, segments).frame.collect()
    assert [(row.copies, row.is_conflict) for row in found] == [
        (2, False), (2, True), (2, True), (1, False)
    ]  # fmt: skip
    assert [tuple(row.last) for row in found][1:3] == [("bank.b", 0, 2), ("bank.a", 0, 9)]


def test_a_segment_of_an_older_program_lacks_the_origin_and_is_not_counted(files, storage, rows):
    older = rows(change(20)).drop("is_progress", "origin")
    older.write.parquet(storage.path("segments/a"))
    segment = Segment("a", 20, 20, 1, (20,))
    found = released(files, rows(change(15)), [segment], after_us=11, through_us=30)
    kept = found.frame.collect()
    assert [(row.offset, row.origin) for row in kept] == [(0, 7), (0, None)]
    assert found.waiting == (RowSum(0, 0), 1)


def test_each_part_is_counted_as_it_is_written_and_found_as_it_is_read(files, store, rows):
    segment = store("a/1", *range(10, 50), quantiles_us=range(12, 50, 4))
    assert [part.rows for part in segment.parts] == [3, *[4] * 9, 1]
    assert sum(part.rows for part in segment.parts) == 40
    (read,) = reads_of([segment], after_us=15, through_us=22)
    assert (read.after_us, read.through_us, read.expected.rows) == (12, 24, 12)
    assert files.inspect([read]) == (read.expected,)
    found = released(files, rows(), [segment], after_us=15, through_us=22)
    assert commit_times_us(found.frame) == list(range(16, 23))
    assert found.waiting == (read.expected, 7)


def test_joined_segments_leave_behind_what_is_released(files, store, rows):
    segments = store("a/1", 12, 30), store("b/1", 20)
    reads = reads_of(segments, after_us=12, through_us=30)
    planned = Segment("c/1", 12, 30, 3, (20, 30))
    sums, read = files.join(planned, reads=reads, after_us=12)
    assert [one.rows for one in sums] == [1, 1]
    assert read.rows == 3
    found = released(files, rows(), [planned.written(sums)])
    assert commit_times_us(found.frame) == [20, 30]
    assert found.waiting[0] == sums[0] + sums[1]


def test_a_paused_run_overwrites_nothing_of_its_successor(files, store, rows, tmp_path):
    """It may repeat the batch of its successor, which may be reading the segment."""
    planned = Segment("a/2", 12, 30, 2, (30,))
    whole = planned.written(files.store(rows(change(12), change(30)), planned))
    folder = tmp_path / "gate" / "segments" / "a"
    before = {path: path.read_bytes() for path in folder.glob("2/*.parquet")}
    store("a/1", 12)
    assert {path: path.read_bytes() for path in folder.glob("2/*.parquet")} == before
    assert commit_times_us(released(files, rows(), [whole]).frame) == [12, 30]


def test_a_segment_that_cannot_be_read_is_named_and_other_failures_are_not_hidden(
    files, store, rows, tmp_path
):
    segments = store("a/1", 12), store("b/1", 20)
    reads = reads_of(segments, after_us=-1, through_us=50)
    with pytest.raises(ValueError, match="another"), files.readable(reads):
        raise ValueError("another")
    shutil.rmtree(tmp_path / "gate" / "segments" / "b")
    with pytest.raises(SegmentDamaged, match="segment='b/1'"), files.readable(reads):
        released(files, rows(), segments).frame.collect()
    assert files.inspect(reads)[1] is None
    assert files.inspect([SegmentRead("a/1", -1, 50, None)])[0].rows == 1
