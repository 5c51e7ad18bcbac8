"""Programs with a session of their own, which tests start as processes.

`stopped` is a streaming query whose batch takes a while: `spark-submit` starts it, or Python, in a
process group that gets SIGTERM in the middle of a batch.  `cluster` makes and writes one release on
a Spark master, and prints what its changelog holds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tidegate.spark_consumer.batch.releases import decoded_release
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.sinks import append
from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.spark.requirements import is_submitted
from tidegate.spark_consumer.spark.session import (
    local_session,
    stopped_before_java,
    submitted_session,
)

BATCH_S = 4.0
CHANGES = 4_000
PLAN = SimpleNamespace(query_id="q", batch=0, sinks=("changelog",))


def stopped(folder: str, jars: str, java_options: str) -> None:
    """Run until it is stopped; say in a file what is done."""
    said, stop = Path(folder, "said"), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def say(line: str) -> None:
        with said.open("a") as file:
            file.write(f"{line}\n")

    def batch(frame, number):
        if not stop.is_set():
            say(f"begin {number}")
            time.sleep(BATCH_S)
            say(f"end {number} {frame.sparkSession.range(10).count()}")

    if is_submitted():
        spark = submitted_session(app_name="stopped")
    else:
        options = {"jars": jars, "app_name": "stopped", "java_options": java_options}
        spark = local_session(master="local[1]", packages="", **options)
    with stopped_before_java(spark, stop):
        rows = spark.readStream.format("rate").load().writeStream.foreachBatch(batch)
        query = rows.option("checkpointLocation", f"{folder}/checkpoint").start()
        stop.wait()
        while any("begin" in line for line in said.read_text().splitlines()[-1:]):
            time.sleep(0.1)
            if not query.isActive:
                say("cancelled")
                break
        spark.stop()
        say("stopped")


def cluster(master: str, folder: str, jars: str) -> None:
    """Write one release; on a cluster it has four slices."""
    from tests.spark.gate_rows import GATE_SCHEMA
    from tests.topics import Change, Topic

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
    topic, chance, rows = Topic("a", {1: {"id": "INT64"}}, ["id"]), random.Random(1), []
    for n in range(CHANGES):
        change = Change("INSERT", {"id": n}, {}, us=1 + n // 3, sequence=n % 3)
        rows += [(False, *topic.row(change, ordinal=0)[:8])] * chance.choice((1, 1, 2))
    chance.shuffle(rows)
    cuts_us = () if master.startswith("local[") else (300, 700, 1_000)
    bounds = ReleaseBounds(0, 0, CHANGES, (), cuts_us=cuts_us)
    append._ROWS_OF_SEVERAL_FILES = 1
    sink = changelog_sink(spark, f"{folder}/out")
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
    shown = [
        (one["ordinal"], one["order_key"].hex(), one["key"]["id"], one["offset"]) for one in found
    ]
    # The driver counts as one of a cluster's executors.
    answer = {"files": len(files), "executors": max(1, executors - 1), "rows": shown}
    print(json.dumps(answer))  # noqa: T201 - the answer to the test that started it


if __name__ == "__main__":
    {"stopped": stopped, "cluster": cluster}[sys.argv[1]](*sys.argv[2:])
