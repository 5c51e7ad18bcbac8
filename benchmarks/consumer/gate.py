"""The gate as `spark.query` builds it, with sinks and limits of a benchmark's choice."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.lineage.subscription import Subscription
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.batch.batch import Batch
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.batch.progress_rows import ProgressReader
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.batch.source import kafka_rows
from tidegate.spark_consumer.batch.spark_rows import SparkRows
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.offsets import end_offsets
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.files import SEGMENTS
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.metrics import consumer_metrics
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.late import DeltaLateTable
from tidegate.spark_consumer.spark.session import local_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.consumer.feed import Feed

QUERY_ID = "bench"


class Steps:
    """Stands for the log: notes how long each step of a batch takes, in seconds by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._step = ""
        self._since = 0.0

    def debug(self, event: str, *, step: str = "", **_: object) -> None:
        """Note that a step begins, or, with any other line, that the last one has ended."""
        now = time.perf_counter()
        if self._step:
            self._add(self._step, now - self._since)
        self._step, self._since = step if event == "step" else "", now

    info = warning = debug

    def timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method, noted under a name of its own beside the step that calls it."""

        def call(**arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(**arguments)
            finally:
                self._add(name, time.perf_counter() - began)

        return call

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


class Gate:
    """A checkpoint and an output below a folder, and the batches that write to them."""

    def __init__(
        self,
        spark: SparkSession,
        folder: str,
        feed: Feed,
        *,
        sinks: Sequence[Callable[[Gate], Any]] | None = None,
        limits: Limits | None = None,
        collects: bool = True,
    ) -> None:
        """`sinks` make those of the gate; None: the changelog alone."""
        self.spark, self.folder, self.feed = spark, folder, feed
        self.steps = Steps()
        self.collects = collects
        self.limits = limits or Limits(
            small_release_rows_max=10_000 if collects else 0,
            small_release_bytes_max=16 * 1024**2,
        )
        self.gate = Storage(spark, f"{folder}/gate")
        self.writer = self.gate.take()
        self.output = Storage(spark, f"{folder}/out", guard=self.gate)
        self.direct = DirectWay(DirectPlace(f"{folder}/out")) if collects else None
        self.sinks = [make(self) for make in sinks or (delta(DeltaChangelogSink),)]
        for one in self.sinks:
            one.open(query_id=QUERY_ID, release_max=-1)

    def batch(self, ends: Callable[[int], Any]) -> Batch:
        """Return the function of the batches; `ends` returns where each one ends."""
        segments = SegmentFiles(self.spark, self.gate.path(SEGMENTS))
        registry: Any = self.feed
        schemas = SchemaStore(self.gate, registry)
        progress = ProgressReader(schemas.schema)
        late = DeltaLateTable(self.output.root)
        parts = Parts(
            files=GateFiles(self.gate),
            schemas=schemas,
            sinks=self.sinks,
            output=self.output,
            subscription=Subscription(TopicNames(self.feed.prefix)),
            query_id=QUERY_ID,
            limits=self.limits,
            code="bench",
            topic_ids=lambda _topics: {},
            writer=self.writer,
        )
        log: Any = self.steps

        def rows_of(frame: DataFrame) -> closing[SparkRows]:
            rows = SparkRows(
                frame,
                segments=segments,
                progress=progress,
                late=late,
                collects=self.collects,
                limits=self.limits,
            )
            for name in ("read_progress", "count_changes"):
                setattr(rows, name, self.steps.timed(name, getattr(rows, name)))
            return closing(rows)

        return Batch(
            parts,
            rows_of=rows_of,
            end_offsets=ends,
            log=log,
            metrics=consumer_metrics(),
        )

    def start(self, bootstrap_servers: str, *, changes_per_batch_max: int) -> Any:
        """Start the query on Kafka; returns Spark's handle."""
        checkpoint = Storage(self.spark, f"{self.folder}/spark", guard=self.gate)
        rows = kafka_rows(
            self.spark,
            bootstrap_servers=bootstrap_servers,
            subscription=Subscription(TopicNames(self.feed.prefix)),
            changes_per_batch_max=changes_per_batch_max,
        )
        batch = self.batch(lambda number: end_offsets(checkpoint, number))
        writing = rows.writeStream.foreachBatch(batch)
        return writing.option("checkpointLocation", checkpoint.root).start()


def delta(sink: Callable[..., Any]) -> Callable[[Gate], Any]:
    """Return what makes a sink of Delta tables for a gate."""
    return lambda gate: sink(gate.spark, gate.output.root, direct=gate.direct)


def new_session(folder: str) -> SparkSession:
    """Start a session as the consumer's own is, with two cores."""
    parts = fetched_jvm_parts()
    if parts is None:
        sys.exit("Spark's jars are not fetched: ./dev setup")
    os.environ["SPARK_LOCAL_DIRS"] = str(Path(folder) / "local")
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--driver-memory 3g pyspark-shell"
    return local_session(
        master="local[2]",
        packages="",
        jars=",".join(str(jar) for jar in parts.spark_jars),
        app_name="consumer-benchmark",
    )


def jobs_of(spark: SparkSession, group: str) -> int:
    """Return how many Spark jobs have run in a job group."""
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def compilations(spark: SparkSession) -> int:
    """Return how often Spark has compiled generated code."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - pyspark has no way of its own
    metrics = jvm.org.apache.spark.metrics.source.CodegenMetrics
    return int(metrics.METRIC_COMPILATION_TIME().getCount())
