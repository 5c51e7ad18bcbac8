"""The only wiring: settings to parts, parts to a running query.

`build_query` serves a session that somebody else owns (spark-submit, a notebook); `run` also starts
one, waits for the end that was asked for, and gives errors back as they were raised.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.schemas.errors import ConfigError, TidegateError
from tidegate.schemas.registry_http import HttpSchemaRegistry
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.adapters.kafka_options import java_options
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.core.subscription import Subscription
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.metrics import Metrics
from tidegate.spark_consumer.spark.batch import Batch, Parts
from tidegate.spark_consumer.spark.changelog_sink import DeltaChangelogSink
from tidegate.spark_consumer.spark.gate_files import GateFiles
from tidegate.spark_consumer.spark.late import LateTable
from tidegate.spark_consumer.spark.listener import MetricsListener
from tidegate.spark_consumer.spark.mirror_sink import DeltaMirrorSink
from tidegate.spark_consumer.spark.offsets import end_offsets
from tidegate.spark_consumer.spark.schema_store import SchemaStore
from tidegate.spark_consumer.spark.session import (
    is_submitted,
    local_session,
    submitted_session,
)
from tidegate.spark_consumer.spark.source import kafka_rows
from tidegate.spark_consumer.spark.storage import Storage

if TYPE_CHECKING:
    import threading

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidegate.schemas.registry import SchemaRegistry
    from tidegate.spark_consumer.config import ConsumerConfig
    from tidegate.spark_consumer.core.batch_state import State

__all__ = ["GateQuery", "build_query", "run"]

_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class GateQuery:
    """A query that runs."""

    query: StreamingQuery
    batch: Batch
    gate: Storage
    """Knows whether this run is still the one that works on the checkpoint."""

    def stop(self) -> None:
        """Let the batch that is running finish, then stop."""
        self.batch.stop()
        self.query.stop()


def build_query(
    spark: SparkSession,
    config: ConsumerConfig,
    *,
    registry: SchemaRegistry | None = None,
    metrics: Metrics | None = None,
) -> GateQuery:
    """Start the query on a session; returns at once.

    Takes the checkpoint: a run that still works on it stops at its next write.  Raises ConfigError
    if checkpoint or output belong to something else.
    """
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
    measured = metrics or Metrics()
    parts = Parts(
        files=files,
        gate=gate,
        output=output,
        schemas=SchemaStore(gate, registry or _registry(config)),
        sinks=sinks,
        late=LateTable(output.root),
        end_offsets=lambda batch: end_offsets(checkpoint, batch),
        subscription=subscription,
        identity=identity,
        limits=Limits(release_rows_max=config.release_rows_max),
        code=version("tidegate"),
        log=log,
        metrics=measured,
    )
    batch = Batch(spark, parts)
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


def run(config: ConsumerConfig, *, stop: threading.Event, begun_us: int) -> State | None:
    """Run until the end that the settings ask for, or until `stop` is set; return the last state.

    `begun_us` is when the run began: `until = caught-up` ends it when the watermark has passed
    that, or when the stream has ended.  Raises what made the query fail.
    """
    metrics = Metrics()
    if config.metrics_port:
        try:
            metrics.serve(config.metrics_port)
        except OSError as error:
            message = f"metrics_port: port {config.metrics_port} is taken"
            raise ConfigError(message, hint="Choose another, or 0 for none") from error
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
        _wait(running, stop)
    except Exception as error:
        # A signal to the whole process group stops the JVM too, in the middle of anything.  The
        # next run finds its place again, so this is an end like any other.
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
        jars=config.jars,
        app_name=app_name,
        java_options=config.java_options,
    )


def _wait(running: GateQuery, stop: threading.Event) -> None:
    """Return when the query was stopped because `stop` is set; raise what else ended it."""
    while running.query.isActive and not stop.wait(_POLL_SECONDS):
        pass
    if stop.is_set():
        running.stop()
        return
    failure = running.batch.failure or running.query.exception()
    if failure is not None:
        _require_writer(running.gate, failure)
        raise failure


def _require_writer(gate: Storage, failure: BaseException) -> None:
    """Raise WriterReplaced, where that is what is behind a failure.

    A run that was replaced while it stood still may go on in the middle of a sink's commit or of
    Spark's own log; whatever refuses it there has its own name for two runs at once.
    """
    try:
        gate.require_writer()
    except WriterReplaced as replaced:
        raise replaced from failure
    except Exception:  # noqa: BLE001 - a storage that is gone explains nothing
        return


def _registry(config: ConsumerConfig) -> HttpSchemaRegistry:
    return HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())


def _log() -> Any:
    return structlog.get_logger("tidegate.spark_consumer")
