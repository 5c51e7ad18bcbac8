"""What each sink adds to a release: all of them in one query, each step timed.

A warm session and a real broker; two tables have changes.  Small releases are collected and written
without Spark, large ones by Spark.  A mirror is merged with every release here, in place of every
ten seconds, so its figures are those of one merge.  The function counts what it gets.
Sinks by key have a query of their own: what they take is kept by Spark in any size of batch.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.consumer.feed import Feed, Record
from benchmarks.consumer.gate import Gate, Steps, delta, new_session
from benchmarks.consumer.large import broker
from tests.spark.gate_rows import GATE_SCHEMA
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.sinks.datastream.file_bytes import FileFormat
from tidegate.spark_consumer.sinks.datastream.open_files import FileLimits
from tidegate.spark_consumer.sinks.datastream.sink import DatastreamFilesSink, FileSettings
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.changelog_by_key import DeltaChangelogByKeySink
from tidegate.spark_consumer.sinks.delta.history_sink import DeltaHistorySink
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.delta.mirror_by_key import DeltaMirrorByKeySink
from tidegate.spark_consumer.sinks.delta.transactions_sink import DeltaTransactionsSink
from tidegate.spark_consumer.sinks.function import FunctionSink
from tidegate.spark_consumer.sinks.kafka.kafka_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink, TopicOrder
from tidegate.spark_consumer.sinks.parquet import ParquetSink
from tidegate.spark_consumer.sinks.parquet_by_key import ParquetByKeySink
from tidegate.spark_consumer.sinks.parquet_transactions import ParquetTransactionsSink

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

_TABLES = 2
_WARM_UP = 3
_FILES = FileSettings(FileFormat.AVRO, FileLimits(rows_max=100_000, bytes_max=16 * 1024**2))
_STREAM = "projects/p/instances/i/databases/d/changeStreams/everything"
GATE_COLUMNS = {
    "is_progress": pa.bool_(),
    "topic": pa.string(),
    "topic_partition": pa.int32(),
    "offset": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "order_key": pa.binary(),
    "mod": pa.string(),
    "origin": pa.int64(),
}


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each sink and size of release."""
    with broker(folder) as bootstrap_servers:
        spark = new_session(folder)
        try:
            return [
                line
                for changes, collects in ((options.small, True), (options.large, False))
                for line in (
                    *_at(spark, f"{folder}/{changes}", changes, options, collects=collects,
                         sinks=_sinks(bootstrap_servers, changes, collects=collects)),
                    *_at(spark, f"{folder}/by_key/{changes}", changes, options, collects=collects,
                         sinks=_BY_KEY),
                )
            ]  # fmt: skip
        finally:
            spark.stop()
            shutil.rmtree(folder, ignore_errors=True)


class _CpuSteps(Steps):
    """Notes the CPU seconds of each step too, those of Spark's JVM among them."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu: dict[str, float] = {}
        self._at = ("", 0.0)

    def debug(self, event: str, *, step: str = "", **fields: object) -> None:
        super().debug(event, step=step, **fields)
        name, before = self._at
        now = _cpu_seconds()
        if name:
            self.cpu[name] = self.cpu.get(name, 0.0) + now - before
        self._at = (step if event == "step" else "", now)

    info = warning = debug

    def forget(self) -> None:
        """Begin a new round."""
        self.seconds.clear()
        self.cpu.clear()


def _sinks(
    bootstrap_servers: str, changes: int, *, collects: bool
) -> tuple[Callable[[Gate], Any], ...]:
    """Return what makes the sinks of releases; tables of Iceberg have a benchmark of their own."""

    def topic(gate: Gate) -> OrderedTopicSink:
        output = KafkaOutputTopic(
            f"ordered{changes}", bootstrap_servers=bootstrap_servers, options={}, topic_partitions=1
        )
        names = TopicNames(gate.feed.prefix)
        return OrderedTopicSink(
            output, names=names, order=TopicOrder.TOTAL, first_release=0,
            require_writer=gate.output.require_writer,
        )  # fmt: skip

    def counting(gate: Gate) -> FunctionSink:
        return FunctionSink(lambda frame, _: frame.count(), spark=gate.spark)

    return (
        delta(DeltaChangelogSink),
        delta(DeltaMirrorSink),
        delta(DeltaHistorySink),
        lambda gate: ParquetSink(gate.spark, gate.output, is_direct=collects),
        lambda gate: DatastreamFilesSink(gate.output, _FILES, stream=lambda: _STREAM),
        topic,
        counting,
        lambda gate: DeltaTransactionsSink(gate.spark, gate.output.root),
        lambda gate: ParquetTransactionsSink(gate.output),
    )


_BY_KEY: tuple[Callable[[Gate], Any], ...] = (
    lambda gate: DeltaChangelogByKeySink(gate.spark, gate.output.root),
    lambda gate: DeltaMirrorByKeySink(gate.spark, gate.output.root),
    lambda gate: ParquetByKeySink(gate.spark, gate.output),
)
_PREFIXES = ("sink-", "hand-over-")


def _at(
    spark: SparkSession,
    folder: str,
    changes: int,
    options: argparse.Namespace,
    *,
    sinks: tuple[Callable[[Gate], Any], ...],
    collects: bool,
) -> list[dict[str, Any]]:
    feed = Feed(f"sinks{changes}", tables=_TABLES, topic_partitions=2)
    gate = Gate(spark, folder, feed, sinks=sinks, collects=collects)
    steps = gate.steps = _CpuSteps()
    ends: dict[int, Any] = {}
    batch = gate.batch(lambda number: ends[number])
    rows: list[Record] = list(feed.opening())
    found: dict[str, list[tuple[float, float]]] = {}
    us = 0
    for number in range(_WARM_UP + options.rounds):
        for _ in range(changes):
            us += 1
            rows.append(feed.change(us))
        rows.append(feed.beat(us))
        frame = _frame(spark, rows, f"{folder}/rows/{number}.parquet")
        rows = []
        ends[number] = {one: dict(of) for one, of in feed.ends.items()}
        steps.forget()
        batch(frame, number)
        if number >= _WARM_UP:
            for sink in {_sink_of(name) for name in steps.seconds} - {""}:
                names = [name for name in steps.seconds if _sink_of(name) == sink]
                taken = sum(steps.seconds[one] for one in names)
                found.setdefault(sink, []).append((taken, sum(steps.cpu[one] for one in names)))
    return [
        {
            "sink": name,
            "changes": changes,
            "release": "small" if collects else "large",
            "seconds": round(statistics.median(one for one, _ in taken), 3),
            "most": round(max(one for one, _ in taken), 3),
            "cpu_seconds": round(statistics.median(cpu for _, cpu in taken), 3),
        }
        for name, taken in sorted(found.items())
    ]


def _sink_of(step: str) -> str:
    """Return the sink of a step, "" for any other step; one by key has two."""
    return next((step.removeprefix(one) for one in _PREFIXES if step.startswith(one)), "")


def _frame(spark: SparkSession, rows: list[Record], path: str) -> DataFrame:
    """Return the records as rows of a batch, from a Parquet file."""
    columns = [list(column) for column in zip(*(one.row for one in rows), strict=True)]
    table = pa.table(
        {
            name: pa.array([bytes(v) if isinstance(v, bytearray) else v for v in column], kind)
            for (name, kind), column in zip(GATE_COLUMNS.items(), columns, strict=True)
        }
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return spark.read.schema(GATE_SCHEMA).parquet(path)


def _cpu_seconds() -> float:
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)
