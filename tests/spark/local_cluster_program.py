"""Makes and writes one release on a Spark master, and prints what its changelog holds."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.spark.gate_rows import GATE_SCHEMA
from tests.topics import Change, Topic
from tidegate.spark_consumer.batch.decoded_release import decoded_release
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.sinks.delta import changelog
from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS

CHANGES = 4_000
PLAN = SimpleNamespace(query_id="q", batch=0, sinks=("changelog",))


def main(master: str, folder: str, jars: str) -> None:
    """Write one release; on a cluster it has four slices."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **DELTA_SESSION_SETTINGS,
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": f"{folder}/local",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    topic = Topic("a", {1: {"id": "INT64"}}, ["id"])
    chance = random.Random(1)
    rows = []
    for n in range(CHANGES):
        change = Change("INSERT", {"id": n}, {}, us=1 + n // 3, sequence=n % 3)
        rows += [(False, *topic.row(change, ordinal=0)[:8])] * chance.choice((1, 1, 2))
    chance.shuffle(rows)
    cuts_us = () if master.startswith("local[") else (300, 700, 1_000)
    bounds = ReleaseBounds(0, 0, CHANGES, (), cuts_us=cuts_us)
    changelog._ROWS_OF_SEVERAL_FILES = 1
    sink = changelog.DeltaChangelogSink(spark, f"{folder}/out")
    sink.open(query_id="q", release_max=0)
    fresh = spark.createDataFrame(rows, GATE_SCHEMA).repartition(3)
    made = SegmentFiles(spark, f"{folder}/segments").release(fresh, bounds, reads=())
    known = {topic.topic: topic.topic_schemas()}
    with decoded_release(made, bounds, plan=PLAN, topics=known) as (release, _):
        sink.write(release)
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    spark.stop()
    files = sorted(Path(folder, "out", "changelog", "a").glob("*.parquet"))
    # In the order of the files' names, and within a file as it stands.
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    print(  # noqa: T201 - the answer to the test that started it
        json.dumps(
            {
                "files": len(files),
                # The driver counts as one of a cluster's.
                "executors": max(1, executors - 1),
                "rows": [
                    (row["ordinal"], row["order_key"].hex(), row["key"]["id"], row["offset"])
                    for row in found
                ],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
