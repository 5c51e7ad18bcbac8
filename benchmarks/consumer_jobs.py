"""Counts the Spark jobs of a release: making it, writing it to both Delta sinks, its manifest.

    python -m benchmarks.consumer_jobs

Two tables, 200 changes in each release (every third one an UPDATE), local session.  Jobs are what
a small release costs; how long one takes depends on the machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.spark_consumer.batch.decoded_release import decoded_release
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS
from tidegate.spark_consumer.sinks.release_writer import write_release

RELEASES = 6
CHANGES = 200
COLUMNS = {"id": "INT64", "name": "STRING(MAX)", "amount": "INT64"}
PLAN = SimpleNamespace(query_id="bench", batch=0)


def main() -> None:
    """Write some releases and print a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        spark = new_session(folder)
        try:
            _run(spark, folder)
        finally:
            spark.stop()


def _run(spark: SparkSession, folder: str) -> None:
    gate = Storage(spark, f"{folder}/gate")
    gate.take()
    output = Storage(spark, f"{folder}/out", guard=gate)
    sinks = (DeltaChangelogSink(spark, output.root), DeltaMirrorSink(spark, output.root))
    for sink in sinks:
        sink.open(query_id="bench", release_max=-1)
    topics = topics_of()
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    print("| release | jobs | of these: counting | seconds |\n| --- | --- | --- | --- |")
    for number in range(RELEASES):
        rows = spark.createDataFrame(_rows(topics, number), ROWS_SCHEMA).coalesce(1)
        bounds = ReleaseBounds(number, number * 1_000_000, (number + 1) * 1_000_000, ())
        group = f"release {number}"
        spark.sparkContext.setJobGroup(group, group)
        began = time.perf_counter()
        counted = ReleaseRows(rows.withColumn("copies", F.lit(1)), None)
        with decoded_release(counted, bounds, plan=PLAN, topics=known) as (release, _):
            counting = _jobs(spark, group)
            for _ in write_release(release, sinks=sinks, output=output):
                pass
        seconds = time.perf_counter() - began
        print(f"| {number} | {_jobs(spark, group)} | {counting} | {seconds:.1f} |", flush=True)


def _rows(topics: list[Topic], number: int) -> list[tuple[object, ...]]:
    rows = []
    for n in range(CHANGES):
        key = {"id": number * CHANGES + n}
        mod, new = "INSERT", {"name": f"n{n}", "amount": n}
        if n % 3 == 2:
            key, mod, new = {"id": number * CHANGES}, "UPDATE", {"amount": n}
        change = Change(mod, key, new, us=number * 1_000_000 + n + 1)
        # Both tables get their own first row, so that every UPDATE finds one.
        topic = topics[0] if n % 3 == 2 or n == 0 else topics[n % 2]
        rows.append(topic.row(change, ordinal=n))
    return rows


def _jobs(spark: SparkSession, group: str) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def topics_of() -> list[Topic]:
    """Return the two tables' topics."""
    return [
        Topic("accounts", {1: COLUMNS}, ["id"]),
        Topic("ledger", {2: COLUMNS}, ["id"], key_id=101),
    ]


def new_session(folder: str) -> SparkSession:
    """Start a session as the consumer's own is."""
    parts = fetched_jvm_parts()
    if parts is None:
        sys.exit("Spark's jars are not fetched: ./dev setup")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("consumer-jobs")
    settings = {
        **DELTA_SESSION_SETTINGS,
        "spark.jars": ",".join(str(jar) for jar in parts.spark_jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.cache.maxEntries": "5000",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(Path(folder) / "warehouse"),
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
