"""A release for the sinks: counted in one job, each table decoded, bounds checked."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.batch.decoded_release import decoded_release
from tidegate.spark_consumer.batch.release_order import in_order
from tidegate.spark_consumer.batch.rows import CHANGE_SCHEMA
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.row_sums import ReleaseCount

pytestmark = pytest.mark.spark

PLAN = SimpleNamespace(query_id="q", batch=7, sinks=("a", "b"))
BOUNDS = ReleaseBounds(3, 0, 2_000, ())


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


def opened(rows, topics, bounds=BOUNDS, conflicts=()):
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    place = F.struct("topic", "topic_partition", "offset")
    is_conflict = F.col("order_key").isin(*conflicts) if conflicts else F.lit(False)
    known_copies = {"copies": F.lit(2), "is_conflict": is_conflict, "last": place}
    counted = ReleaseRows(rows.withColumns(known_copies), None)
    return decoded_release(counted, bounds, plan=PLAN, topics=known)


def test_every_known_table_is_there_with_its_rows_and_its_count(spark, topics):
    a, b, _ = topics
    rows = rows_of(spark, (a, 1_000), (b, 1_001), (a, 1_002))
    with opened(rows, topics) as (release, count):
        assert count == ReleaseCount(3, 6, origins=count.origins)
        sums = [(topic, one.mods, one.value_bytes) for (_, topic), one in count.origins.items()]
        bytes_of = {topic: 0 for topic, _, _ in sums}
        for row in rows.collect():
            bytes_of[row["topic"]] += len(row["value"])
        assert sorted(sums) == [
            ("bank.a", 2, bytes_of["bank.a"]),
            ("bank.b", 1, bytes_of["bank.b"]),
        ]
        assert (release.number, release.batch, release.rows) == (3, 7, 3)
        found = {
            topic: (one.rows, [row["key"]["id"] for row in one.frame.collect()])
            for topic, one in release.tables.items()
        }
    assert found == {"bank.a": (2, [0, 2]), "bank.b": (1, [1]), "bank.c": (0, [])}


def test_counting_is_one_job_and_a_table_that_is_read_twice_is_decoded_once(spark, topics):
    a, *_ = topics
    context = spark.sparkContext
    context.setJobGroup("release", "jobs of one release")
    try:
        with opened(rows_of(spark, (a, 1_000)), topics) as (release, _):
            assert len(context.statusTracker().getJobIdsForGroup("release")) == 1
            frame = release.tables["bank.a"].frame
            frame.collect()
            plan = frame._jdf.queryExecution().executedPlan().toString()
            assert "InMemoryTableScan" in plan.splitlines()[0] + plan.splitlines()[1]
            assert frame.is_cached
        assert not frame.is_cached
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_source_records_are_read_slice_by_slice_and_only_for_those_who_ask(spark):
    """The driver holds one slice at a time: a job for each, when the reader has come to it."""
    topics = [Topic(name, {n: {"id": "INT64"}}, ["id"]) for n, name in enumerate("ab", 1)]
    times = random.Random(1).sample(range(1, 91), k=90)
    records = [
        topics[us % 2].row(Change("UPDATE", {"id": us}, {}, us=us), ordinal=0)[:-1] for us in times
    ]
    frame = spark.createDataFrame([*records, records[0]], CHANGE_SCHEMA).repartition(4)
    bounds = ReleaseBounds(3, 0, 2_000, (), cuts_us=(30, 60))
    made = ReleaseRows(in_order(frame, bounds), None)
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    context = spark.sparkContext
    context.setJobGroup("records", "source records")

    def jobs():
        context._jsc.sc().listenerBus().waitUntilEmpty()
        return len(context.statusTracker().getJobIdsForGroup("records"))

    try:
        with decoded_release(made, bounds, plan=PLAN, topics=known) as (release, _):
            assert jobs() == 1
            found = release.source_records()
            first = [next(found) for _ in range(30)]
            assert jobs() == 2
            rest = list(found)
            assert jobs() == 4
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert [one.ordinal for one in first + rest] == list(range(90))
    given = {bytes(row[5]): (row[0], bytes(row[3]), bytes(row[4]), "U") for row in records}
    assert sorted(given) == [one.order_key for one in first + rest]
    assert [given[one.order_key] for one in first + rest] == [
        (one.topic, one.key, one.value, one.mod) for one in first + rest
    ]


@pytest.mark.parametrize("us", [0, 2_001])
def test_rows_outside_of_the_bounds_are_refused(spark, topics, us):
    rows = rows_of(spark, (topics[0], us))
    with pytest.raises(InvariantViolation, match="bounds"), opened(rows, topics):
        pass


def test_ordinals_with_a_gap_are_refused(spark, topics):
    rows = rows_of(spark, (topics[0], 1), (topics[0], 2)).where("place = 1")
    with pytest.raises(InvariantViolation, match="dense"), opened(rows, topics):
        pass


def test_the_first_of_the_conflicts_is_named(spark, topics):
    a, b, _ = topics
    rows = rows_of(spark, (a, 1_000), (b, 1_001), (a, 1_002))
    keys = [row.order_key for row in rows.collect()][1:]
    with opened(rows, topics, conflicts=keys) as (_, count):
        conflict = count.conflict
    assert (conflict.changes, conflict.commit_timestamp_us) == (2, 1_001)
    assert conflict.first.startswith("bank.b/")
