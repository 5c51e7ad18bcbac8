"""What a small release of one table costs in each Delta and Iceberg sink, in turns.

    python -m benchmarks.consumer iceberg [--changes 500] [--rounds 10] [--keys 20000]
        [--columns 9] [--warm-up 3] [--sinks "mirror, Spark" ...]

The first release inserts the keys; each round updates some of them, as a release in memory.  CPU
seconds are those of this process and of its JVM, so that they say something on a busy machine too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import psutil
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.delta.direct.way import find_direct_way
from tidegate.spark_consumer.sinks.iceberg.catalog import IcebergPlace
from tidegate.spark_consumer.sinks.iceberg.mirror import IcebergMirrorSink
from tidegate.spark_consumer.sinks.kinds import changelog_sink, iceberg_changelog_sink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.port import CollectedTable, Release
from tidegate.spark_consumer.sinks.row_decoding import decode_rows
from tidegate.spark_consumer.spark.session import local_session


class Releases:
    """Releases of one table, each in memory and as a frame."""

    def __init__(self, spark: Any, *, columns: int) -> None:
        self.spark = spark
        self.names = [f"c{n}" for n in range(columns)]
        self.topic = Topic(
            "t", {1: {"id": "INT64", **dict.fromkeys(self.names, "STRING(MAX)")}}, ["id"]
        )

    def release(self, number: int, mod: str, keys: range) -> Release:
        """Return a release with one change of each key."""
        values = {name: f"{name} of release {number}" for name in self.names}
        changes = [
            Change(mod, {"id": key}, values, us=number * 1_000_000 + n)
            for n, key in enumerate(keys)
        ]
        rows = [self.topic.row(change, ordinal=n) for n, change in enumerate(changes)]
        columns = [field.split()[0] for field in ROWS_SCHEMA.split(", ")]
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        schemas = self.topic.topic_schemas()

        def frame() -> Any:
            made = self.spark.createDataFrame(rows, ROWS_SCHEMA)
            made = made.withColumn("release", F.lit(number).cast("long"))
            return decode_changes(made, schemas, topic=self.topic.topic)

        decoded = decode_rows(named, schemas, release=number)
        table = CollectedTable(self.spark, frame, decoded, schemas)
        ends = {"after_us": number * 1_000_000, "through_us": (number + 1) * 1_000_000}
        return Release(
            number=number, query_id="q", batch=number, rows=len(rows),
            tables={self.topic.topic: table}, **ends,
        )  # fmt: skip


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each sink."""
    parts = fetched_jvm_parts()
    if parts is None:
        sys.exit("Spark's jars are not fetched: ./dev setup")
    jars = ",".join(str(jar) for jar in (*parts.spark_jars, *parts.iceberg_jars))
    spark = local_session(master="local[2]", packages="", jars=jars, app_name="iceberg-benchmark")
    try:
        return _measured(spark, folder, options)
    finally:
        spark.stop()


def _measured(spark: Any, folder: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    def output(name: str) -> str:
        return Storage(spark, f"{folder}/{name}").root

    def direct(name: str) -> Any:
        return find_direct_way(output(name), rows_max=100_000)

    place = IcebergPlace.of(output("iceberg"), prefix="bench")
    sinks: dict[str, Any] = {
        "changelog, delta-rs": changelog_sink(spark, output("a"), direct=direct("a")),
        "changelog, Spark": changelog_sink(spark, output("b")),
        "iceberg_changelog": iceberg_changelog_sink(spark, output("iceberg"), place),
        "mirror, delta-rs": DeltaMirrorSink(spark, output("a"), direct=direct("a")),
        "mirror, Spark": DeltaMirrorSink(spark, output("b")),
        "iceberg_mirror": IcebergMirrorSink(spark, output("iceberg"), place),
    }
    sinks = {name: sinks[name] for name in options.sinks or sinks}
    made = Releases(spark, columns=options.columns)
    spent: dict[str, list[float]] = {name: [] for name in sinks}
    took: dict[str, list[float]] = {name: [] for name in sinks}
    first = made.release(0, "INSERT", range(options.keys))
    for sink in sinks.values():
        sink.open(query_id="q", release_max=-1)
        sink.write(first)
    for number in range(1, options.warm_up + options.rounds + 1):
        release = made.release(number, "UPDATE", range(options.changes))
        for name, sink in sinks.items():
            cpu, began = _cpu_seconds(), time.perf_counter()
            sink.write(release)
            if number > options.warm_up:
                spent[name].append(_cpu_seconds() - cpu)
                took[name].append(time.perf_counter() - began)
    return [
        {
            "sink": name,
            "CPU seconds": round(statistics.median(spent[name]), 3),
            "seconds": round(statistics.median(took[name]), 3),
        }
        for name in sinks
    ]


def _cpu_seconds() -> float:
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)
