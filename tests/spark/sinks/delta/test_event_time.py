"""Spark's own event time on the output: a watermark without delay drops nothing."""

import random

import pytest

from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RELEASES, CHANGES = 8, 12
SECOND_US = 1_000_000


@pytest.fixture
def changelog(kit):
    """A changelog's path: each release has the changes of a second, its ends included."""
    topic = kit.Topic("t", {1: {"id": "INT64"}}, ["id"])
    direct = DirectWay(DirectPlace(kit.output))
    sink = DeltaChangelogSink(kit.spark, kit.output, direct=direct)
    sink.open(query_id="query-1", release_max=-1)
    draw = random.Random(5)
    for number in range(RELEASES):
        after = number * SECOND_US
        times = [after + 1, after + SECOND_US]
        times += [after + draw.randint(1, SECOND_US) for _ in range(CHANGES - 2)]
        changes = [
            (topic, kit.Change("INSERT", {"id": n}, {"id": n}, us=us, transaction=f"{n}"))
            for n, us in enumerate(times)
        ]
        sink.write(kit.release(number, changes, small=number % 2 == 0))
    return f"{kit.output}/changelog/t"


def windows(frame):
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

    counted = frame.groupBy(F.window("commit_timestamp", "700 milliseconds")).count()
    return counted.select(F.col("window.start").alias("start"), "count")


def test_a_downstream_watermark_without_delay_gives_the_windows_of_a_batch(
    kit, changelog, tmp_path
):
    stream = (
        kit.spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .load(changelog)
        .withWatermark("commit_timestamp", "0 seconds")
    )
    query = (
        windows(stream)
        .writeStream.format("memory")
        .queryName("event_time")
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    dropped = [
        int(state["numRowsDroppedByWatermark"])
        for one in query.recentProgress
        for state in one["stateOperators"]
    ]
    assert len(dropped) >= RELEASES
    assert sum(dropped) == 0
    found = {(row["start"], row["count"]) for row in kit.spark.table("event_time").collect()}
    batch = windows(kit.spark.read.format("delta").load(changelog)).collect()
    *closed, _open = sorted((row["start"], row["count"]) for row in batch)
    assert found >= set(closed[:-1])
    assert found <= {*closed, _open}


def test_the_same_without_order_drops_rows(kit, changelog, tmp_path):
    """Otherwise the test above could not fail."""
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

    mixed = str(tmp_path / "mixed")
    rows = kit.spark.read.format("delta").load(changelog).select("commit_timestamp")
    for part in range(4):
        some = rows.where(F.abs(F.hash("commit_timestamp")) % 4 == part)
        some.coalesce(1).write.format("delta").mode("append").save(mixed)
    stream = (
        kit.spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .load(mixed)
        .withWatermark("commit_timestamp", "0 seconds")
    )
    query = (
        windows(stream)
        .writeStream.format("memory")
        .queryName("event_time_mixed")
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert any(
        int(state["numRowsDroppedByWatermark"])
        for one in query.recentProgress
        for state in one["stateOperators"]
    )
