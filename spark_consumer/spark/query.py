"""Builds the streaming query from the settings, and runs it.

`build_query` uses an existing session (spark-submit, a notebook).  `run` also starts one, waits for
the end that the settings name, and raises errors as they were raised inside the query.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.lineage.subscription import Subscription
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.errors import TidegateError
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
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.metrics import ConsumerMetrics, consumer_metrics
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.late import DeltaLateTable
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.spark.listener import MetricsListener
from tidegate.spark_consumer.spark.requirements import is_submitted, require_data_sources
from tidegate.spark_consumer.spark.session import local_session, submitted_session

if TYPE_CHECKING:
    import threading

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidegate.program.health import Health
    from tidegate.schemas.registry import SchemaRegistry
    from tidegate.spark_consumer.config import ConsumerConfig
    from tidegate.spark_consumer.core.batch_state import State

__all__ = ["GateQuery", "build_query", "run"]

_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class GateQuery:
    """A running query."""

    query: StreamingQuery
    batch: Batch
    gate: Storage
    """The gate's folder: its `require_writer` says whether another run has taken the checkpoint."""

    def stop(self) -> None:
        """Let the running batch finish, then stop."""
        self.batch.stop()
        self.query.stop()


def build_query(
    spark: SparkSession,
    config: ConsumerConfig,
    *,
    registry: SchemaRegistry | None = None,
    metrics: ConsumerMetrics | None = None,
) -> GateQuery:
    """Start the query on a session; returns at once.

    Takes the checkpoint: another run that works on it stops at its next write.  Raises ConfigError
    if checkpoint or output belong to another query, or the session lacks a data source.
    """
    require_data_sources(spark)
    subscription = Subscription(TopicNames(config.prefix))
    gate = Storage(spark, f"{config.checkpoint}/gate")
    options = java_options(config.kafka_client_options())
    writer = gate.take()
    output = Storage(spark, config.output, guard=gate)
    checkpoint = Storage(spark, f"{config.checkpoint}/spark", guard=gate)
    files = GateFiles(gate)
    identity = files.identify(prefix=config.prefix, output=output.root)
    sinks = (DeltaChangelogSink(spark, output.root), DeltaMirrorSink(spark, output.root))
    release_max = files.release_max()
    for sink in sinks:
        sink.open(query_id=identity.query_id, release_max=release_max)
    log = _log().bind(query_id=identity.query_id)
    measured = metrics or consumer_metrics()
    schemas = SchemaStore(gate, registry or _registry(config))
    segments = SegmentFiles(spark, gate.path(SEGMENTS))
    progress = ProgressReader(schemas.schema)
    late = DeltaLateTable(output.root)

    def rows_of(frame: DataFrame) -> closing[SparkRows]:
        return closing(SparkRows(frame, segments=segments, progress=progress, late=late))

    parts = Parts(
        files=files,
        schemas=schemas,
        sinks=sinks,
        output=output,
        subscription=subscription,
        query_id=identity.query_id,
        limits=Limits(release_rows_max=config.release_rows_max),
        code=version("tidegate"),
    )
    batch = Batch(
        parts,
        rows_of=rows_of,
        end_offsets=lambda batch: end_offsets(checkpoint, batch),
        log=log,
        metrics=measured,
    )
    rows = kafka_rows(
        spark,
        bootstrap_servers=config.bootstrap_servers,
        subscription=subscription,
        changes_per_batch_max=config.changes_per_batch_max,
        options=options,
    )
    writing = rows.writeStream.queryName(f"tidegate-{config.prefix}").foreachBatch(batch)
    writing = writing.option("checkpointLocation", checkpoint.root)
    if config.trigger_interval_ms:
        writing = writing.trigger(processingTime=f"{config.trigger_interval_ms} milliseconds")
    if config.metrics_port:
        spark.streams.addListener(MetricsListener(measured))
    log.info("start", writer=writer, output=output.root, prefix=config.prefix)
    return GateQuery(writing.start(), batch, gate)


def run(
    config: ConsumerConfig,
    *,
    stop: threading.Event,
    begun_us: int,
    metrics: ConsumerMetrics,
    health: Health,
) -> State | None:
    """Block until the end that the settings name, or until `stop` is set; return the last state.

    `begun_us` is when the run began: `until = caught-up` ends it when the watermark has passed that
    time, or when the stream has ended.  Raises the error that ended the query.
    """
    spark = _session(config)
    last: list[State] = []
    try:
        running = build_query(spark, config, metrics=metrics)

        def finished(state: State) -> None:
            last[:] = [state]
            is_caught_up = state.watermark_us >= begun_us or state.stream_has_ended
            if config.until == "caught-up" and is_caught_up:
                stop.set()

        running.batch.finished = finished
        health.set_ready()
        _wait(running, stop, health)
    except Exception as error:
        # A signal to the whole process group also stops the JVM, in the middle of a batch.  The
        # next run repeats the batch, so this is a normal end.
        if isinstance(error, TidegateError) or not stop.wait(_POLL_SECONDS):
            raise
        _log().warning("stopped in the middle of a batch", cause=type(error).__name__)
    finally:
        with suppress(Exception):
            spark.stop()
    return last[0] if last else None


def _session(config: ConsumerConfig) -> SparkSession:
    app_name = f"tidegate-{config.prefix}"
    if is_submitted():
        return submitted_session(app_name=app_name)
    return local_session(
        master=config.master,
        packages=config.packages,
        jars=config.jars,
        app_name=app_name,
        java_options=config.java_options,
    )


def _wait(running: GateQuery, stop: threading.Event, health: Health) -> None:
    """Stop the query when `stop` is set; raise the error if it ends by itself."""
    while running.query.isActive and not stop.wait(_POLL_SECONDS):
        health.step()
    health.set_not_ready("the query has stopped")
    if stop.is_set():
        running.stop()
        return
    failure = running.batch.failure or running.query.exception()
    if failure is not None:
        _require_writer(running.gate, failure)
        raise failure


def _require_writer(gate: Storage, failure: BaseException) -> None:
    """Raise WriterReplaced if that is the cause of a failure.

    A run that was replaced while it was paused may continue in the middle of a sink's commit or of
    a write to Spark's own log; the error there has another name.
    """
    try:
        gate.require_writer()
    except WriterReplaced as replaced:
        raise replaced from failure
    except Exception:  # noqa: BLE001 - without storage the first failure is all there is to report
        return


def _registry(config: ConsumerConfig) -> HttpSchemaRegistry:
    return HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())


def _log() -> Any:
    return structlog.get_logger("tidegate.spark_consumer")
