"""Waiting changes as files, and releases made from them."""

from __future__ import annotations

import pytest

from tests.spark.gate_rows import change, commit_times_us
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.core.batch_state import Segment
from tidegate.spark_consumer.core.plan import Compaction, ReleaseBounds

pytestmark = pytest.mark.spark


def test_segments_give_back_what_is_released_in_order_and_once(spark, rows, storage):
    files = SegmentFiles(spark, storage.path("segments"))
    files.store(rows(*(change(us, us) for us in (30, 12, 45, 99))), Segment("a", 12, 45, 3, (45,)))
    files.store(rows(*(change(us, us) for us in (20, 99))), Segment("b", 20, 20, 1, (20,)))
    fresh = rows(change(15, 1), change(12, 500), change(44, 2), (True, *change(13)[1:]))
    released = files.release(fresh, ReleaseBounds(0, 11, 30, ("a", "b"))).collect()
    assert [(int.from_bytes(row.order_key[:8], "big"), row.offset) for row in released] == [
        (12, 12),
        (15, 1),
        (20, 20),
        (30, 30),
    ]
    assert [row.ordinal for row in released] == [0, 1, 2, 3]


def test_a_segment_of_an_older_program_lacks_the_origin(spark, rows, storage):
    files = SegmentFiles(spark, storage.path("segments"))
    older = rows(change(20)).drop("is_progress", "origin")
    older.write.parquet(storage.path("segments/a"))
    released = files.release(rows(change(15)), ReleaseBounds(0, 11, 30, ("a",))).collect()
    assert [(row.offset, row.origin) for row in released] == [(0, 7), (0, None)]


def test_one_sort_makes_a_release(spark, rows, storage):
    """Fixed cost decides: no shuffle, and the aggregation's sort is the release's order."""
    files = SegmentFiles(spark, storage.path("segments"))
    released = files.release(rows(change(15)).coalesce(2), ReleaseBounds(0, 11, 30, ()))
    plan = released._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan
    assert plan.count("Sort [") == 1


def test_joined_segments_leave_behind_what_is_released(spark, rows, storage):
    files = SegmentFiles(spark, storage.path("segments"))
    files.store(rows(change(12), change(30)), Segment("a", 12, 30, 2, (30,)))
    files.store(rows(change(20)), Segment("b", 20, 20, 1, (20,)))
    files.join(Compaction(("a", "b"), Segment("c", 12, 30, 3, (30,))), after_us=12)
    assert commit_times_us(files.release(rows(), ReleaseBounds(0, -1, 50, ("c",)))) == [20, 30]


def test_a_segment_that_is_stored_again_keeps_its_files_and_counts_once(
    spark, rows, storage, tmp_path
):
    """A paused run may repeat the batch of its successor, which may be reading the segment."""
    files = SegmentFiles(spark, storage.path("segments"))
    segment = Segment("a", 12, 30, 2, (30,))
    folder = tmp_path / "gate" / "segments" / "a"
    files.store(rows(change(12), change(30)), segment)
    before = set(folder.glob("*.parquet"))
    files.store(rows(change(12), change(30)), segment)
    assert before < set(folder.glob("*.parquet"))
    released = files.release(rows(), ReleaseBounds(0, -1, 50, ("a",)))
    assert commit_times_us(released) == [12, 30]
