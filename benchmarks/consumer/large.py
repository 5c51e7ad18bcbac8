"""Throughput of large releases: the gate beside a plain unordered copy from Kafka to Delta.

Both read the same topics of a real broker in batches of the same size, decode alike, and append to
as many files.  Runs alternate in one warm session, each into an output of its own.  The first batch
of a run, which creates the tables, is left out.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pyspark import StorageLevel, inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from benchmarks.consumer.feed import Feed, KafkaFeed
from benchmarks.consumer.gate import Gate, new_session
from tidegate.lineage.subscription import Subscription
from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts
from tidegate.local_stack.parts.kafka_broker import KafkaBroker
from tidegate.local_stack.parts.ports import choose_ports
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.batch.rows import kafka_columns
from tidegate.spark_consumer.batch.source import source_options
from tidegate.spark_consumer.sinks.decoding import decode_changes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_WAIT_S = 900.0
_CHANGES_PER_BEAT = 2_500
_FILES = 2
"""Files of a single table in each batch: what two slices of the gate make."""


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each number of tables and way."""
    found = []
    with broker(folder) as bootstrap_servers:
        spark = new_session(folder)
        try:
            for tables in options.tables:
                feed = _published(bootstrap_servers, tables, options)
                found += _compared(spark, folder, bootstrap_servers, feed, options)
        finally:
            spark.stop()
    return found


@contextmanager
def broker(folder: str) -> Iterator[str]:
    """Run a broker; yields its address."""
    java = find_java()
    ports = choose_ports({"kafka_port": 0, "controller_port": 0})
    one = KafkaBroker(
        java=java,
        parts=fetch_jvm_parts(java),
        data_dir=Path(folder) / "kafka",
        port=ports["kafka_port"],
        controller_port=ports["controller_port"],
        cancelled=threading.Event(),
        is_lasting=True,
    )
    try:
        one.start()
        yield one.bootstrap_servers
    finally:
        one.stop()


def _published(bootstrap_servers: str, tables: int, options: argparse.Namespace) -> Feed:
    feed = Feed(f"copy{tables}", tables=tables, topic_partitions=6 if tables == 1 else 2)
    kafka = KafkaFeed(bootstrap_servers, feed)
    for record in feed.opening():
        kafka.send(record)
    us = 0
    for us in range(1, options.changes * options.batches + 1):
        kafka.send(feed.change(us))
        if us % _CHANGES_PER_BEAT == 0:
            kafka.send(feed.beat(us))
    kafka.send(feed.beat(us))
    kafka.flush()
    return feed


def _compared(
    spark: SparkSession,
    folder: str,
    bootstrap_servers: str,
    feed: Feed,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    ways = {"gate": _gate, "plain copy": _copy}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for run in range(options.runs + 1):
        for name, start in ways.items():
            place = f"{folder}/{feed.prefix}-{name.split()[0]}-{run}"
            rates = _run(spark, start(spark, place, bootstrap_servers, feed, options), options)
            files = len(list(Path(place).glob("out/changelog/*/*.parquet")))
            print(f"{feed.tables} tables, run {run}, {name}: {rates}, {files} files", flush=True)
            shutil.rmtree(place)
            if run:  # the first one warms the JVM
                found[name].append(rates)
    lines = []
    for name, rates in found.items():
        wall = [one for one, _ in rates]
        lines.append(
            {
                "tables": feed.tables,
                "way": name,
                "changes_per_second": round(statistics.median(wall)),
                "least": round(min(wall)),
                "most": round(max(wall)),
                "per_cpu_second": round(statistics.median(cpu for _, cpu in rates)),
            }
        )
    ratios = [g[0] / c[0] for g, c in zip(found["gate"], found["plain copy"], strict=True)]
    by_cpu = [g[1] / c[1] for g, c in zip(found["gate"], found["plain copy"], strict=True)]
    lines[0]["ratios"] = [round(one, 2) for one in ratios]
    lines[0]["ratio"] = round(statistics.median(ratios), 2)
    lines[0]["ratio_by_cpu"] = round(statistics.median(by_cpu), 2)
    return lines


def _run(spark: SparkSession, query: Any, options: argparse.Namespace) -> tuple[float, float]:
    """Return the changes a second, and a CPU second of Spark, of all batches but the first."""
    give_up_at = time.monotonic() + _WAIT_S
    cpu_at: dict[int, float] = {}
    try:
        while True:
            progress = [one for one in query.recentProgress if one["numInputRows"]]
            cpu_at.setdefault(len(progress), _cpu_seconds(spark))
            if len(progress) >= options.batches:
                break
            if query.exception() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(query.exception() or "the query does not come to its end")
            time.sleep(0.05)
    finally:
        query.stop()
    measured = progress[1 : options.batches]
    seconds = sum(one["durationMs"]["triggerExecution"] for one in measured) / 1000
    changes = options.changes * len(measured)
    cpu = cpu_at[options.batches] - cpu_at[1]
    return round(changes / seconds, 1), round(changes / cpu, 1)


def _cpu_seconds(spark: SparkSession) -> float:
    jvm: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - the same
    times = [psutil.Process(pid).cpu_times() for pid in (jvm.pid, psutil.Process().pid)]
    return sum(one.user + one.system for one in times)


def _gate(
    spark: SparkSession, place: str, bootstrap_servers: str, feed: Feed, options: argparse.Namespace
) -> Any:
    gate = Gate(spark, place, feed)
    return gate.start(bootstrap_servers, changes_per_batch_max=options.changes)


def _copy(
    spark: SparkSession, place: str, bootstrap_servers: str, feed: Feed, options: argparse.Namespace
) -> Any:
    """Start a query that decodes each batch and appends it as it comes."""
    pattern = Subscription(TopicNames(feed.prefix)).data_pattern
    reader = spark.readStream.format("kafka").options(**source_options(bootstrap_servers, {}))
    reader = reader.option("subscribePattern", pattern)
    data = reader.option("maxOffsetsPerTrigger", options.changes).load().coalesce(_FILES)
    rows = kafka_columns(data, is_progress=False)

    def copy(frame: DataFrame, batch: int) -> None:
        known = {one.topic: one.topic_schemas() for one in feed.topics}
        rows = frame.withColumns({"release": F.lit(batch), "ordinal": F.col("offset")})
        # Several tables read the batch several times.
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK) if len(known) > 1 else rows

        def write(topic: str) -> None:
            schemas = known[topic]
            changes = decode_changes(kept, schemas, topic=topic)
            changes = changes if len(known) == 1 else changes.coalesce(1)
            writer = changes.write.format("delta").mode("append")
            writer = writer.option("txnAppId", "copy").option("txnVersion", batch)
            writer.save(f"{place}/out/changelog/{schemas.table}")

        target: Any = inheritable_thread_target(frame.sparkSession)
        with ThreadPoolExecutor(_FILES) as pool:
            for done in [pool.submit(target(write), topic) for topic in known]:
                done.result()
        kept.unpersist()

    writing = rows.writeStream.foreachBatch(copy)
    return writing.option("checkpointLocation", f"{place}/spark").start()
