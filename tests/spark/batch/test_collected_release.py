"""A small release: collected in one job, decoded in the driver, bounds checked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F  # noqa: N812

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.batch.collected_release import collected_release
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.row_sums import ReleaseCount

pytestmark = pytest.mark.spark

PLAN = SimpleNamespace(query_id="q", batch=7, sinks=("a", "b"))
BOUNDS = ReleaseBounds(3, 0, 2_000, (), is_small=True)


@pytest.fixture
def topics():
    return [
        Topic("a", {1: {"id": "INT64"}}, ["id"]),
        Topic("b", {2: {"id": "INT64"}}, ["id"], key_id=101),
        Topic("c", {3: {"id": "INT64"}}, ["id"], key_id=102),
    ]


def rows_of(spark, *changes):
    rows = [
        topic.row(Change("INSERT", {"id": n}, {}, us=us), ordinal=n)
        for n, (topic, us) in enumerate(changes)
    ]
    frame = spark.createDataFrame(rows, ROWS_SCHEMA).coalesce(1).withColumn("slice", F.lit(0))
    return frame.withColumnRenamed("ordinal", "place")


def collected(rows, topics, conflicts=()):
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    place = F.struct("topic", "topic_partition", "offset")
    is_conflict = F.col("order_key").isin(*conflicts) if conflicts else F.lit(False)
    known_copies = {"copies": F.lit(2), "is_conflict": is_conflict, "last": place}
    counted = ReleaseRows(rows.withColumns(known_copies), None)
    return collected_release(counted, BOUNDS, plan=PLAN, topics=known)


def test_the_first_of_the_conflicts_is_named(spark, topics):
    a, b, _ = topics
    rows = rows_of(spark, (a, 1_000), (b, 1_001), (a, 1_002))
    keys = [row["order_key"] for row in rows.collect()[1:]]
    _, count = collected(rows, topics, conflicts=keys)
    conflict = count.conflict
    assert (conflict.changes, conflict.commit_timestamp_us) == (2, 1_001)
    assert conflict.first == conflict.last == "bank.b/0/1"


def test_every_known_table_is_there_in_one_job_and_as_a_frame_too(spark, topics):
    a, b, _ = topics
    context = spark.sparkContext
    context.setJobGroup("small release", "jobs of one release")
    try:
        rows = rows_of(spark, (a, 1_000), (b, 1_001), (a, 1_002))
        release, count = collected(rows, topics)
        assert count == ReleaseCount(3, 6)
        assert len(context.statusTracker().getJobIdsForGroup("small release")) == 1
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert (release.number, release.batch, release.rows) == (3, 7, 3)
    found = {
        topic: (one.rows, [change["ordinal"] for change in one.changes])
        for topic, one in release.tables.items()
    }
    assert found == {"bank.a": (2, [0, 2]), "bank.b": (1, [1]), "bank.c": (0, [])}
    for one in release.tables.values():
        assert one.frame.schema.fieldNames() == one.schema.fieldNames()
        assert one.frame.count() == one.rows
        assert one.frame is one.frame


def test_a_topic_of_tombstones_only_counts_and_has_no_table(spark, topics):
    a, b, _ = topics
    release, count = collected(rows_of(spark, (a, 1_000), (b, 1_001)), [a])
    assert count == ReleaseCount(2, 4)
    assert (release.rows, list(release.tables)) == (2, ["bank.a"])


@pytest.mark.parametrize("us", [0, 2_001])
def test_rows_outside_of_the_bounds_are_refused(spark, topics, us):
    with pytest.raises(InvariantViolation, match="bounds"):
        collected(rows_of(spark, (topics[0], us)), topics)


def test_ordinals_with_a_gap_are_refused(spark, topics):
    rows = rows_of(spark, (topics[0], 1), (topics[0], 2)).where("place = 1")
    with pytest.raises(InvariantViolation, match="dense"):
        collected(rows, topics)
