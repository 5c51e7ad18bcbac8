"""Builds the streaming query from the settings, and runs it.

`build_query` uses an existing session (spark-submit, a notebook).  `run` also starts one, waits for
the end that the settings name, and raises errors as they were raised inside the query.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.lineage.frontier import EndOffsets, Frontier
from tidegate.lineage.subscription import Subscription
from tidegate.program.open_lineage import RunLineage
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.status_server import Health
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.instants import NS_PER_US, US_PER_MS
from tidegate.schemas.registry import SchemaRegistry
from tidegate.spark_consumer.batch.bad_records import BadRecords
from tidegate.spark_consumer.batch.batch import Batch
from tidegate.spark_consumer.batch.batch_lineage import BatchLineage
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.batch.progress_rows import ProgressReader
from tidegate.spark_consumer.batch.schema_ids import SchemaIds
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.batch.source import kafka_rows
from tidegate.spark_consumer.batch.spark_rows import SparkRows
from tidegate.spark_consumer.checkpoint.gate_files import (
    GateFiles,
    complete_from_us,
    newest_state,
)
from tidegate.spark_consumer.checkpoint.lease import Lease
from tidegate.spark_consumer.checkpoint.offsets import end_offsets, read_offsets
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.caught_up import CaughtUp
from tidegate.spark_consumer.core.compaction import CompactionLimits
from tidegate.spark_consumer.core.files import LISTED_FOLDERS, SEGMENTS
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.core.late_writes import QueryRestarts
from tidegate.spark_consumer.core.read_limit import must_restart, offsets_per_batch
from tidegate.spark_consumer.core.retention import FirstRecord, require_kept
from tidegate.spark_consumer.core.retention import complete_from_us as first_complete_us
from tidegate.spark_consumer.core.sink_set import require_sinks
from tidegate.spark_consumer.errors import (
    ChangesExpired,
    CheckpointConflict,
)
from tidegate.spark_consumer.kafka.first_records import first_records
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.kafka.topic_ids import LiveTopicIds
from tidegate.spark_consumer.metrics import ConsumerMetrics, consumer_metrics
from tidegate.spark_consumer.sinks.delta import side_tables
from tidegate.spark_consumer.sinks.delta.direct.way import find_direct_way
from tidegate.spark_consumer.sinks.delta.maintenance import VacuumPolicy, find_maintenance
from tidegate.spark_consumer.sinks.manifest import MANIFEST_FOLDER
from tidegate.spark_consumer.sinks.port import Sink
from tidegate.spark_consumer.spark.failures import require_no_conflict, require_storage
from tidegate.spark_consumer.spark.gate_query import GateQuery
from tidegate.spark_consumer.spark.iceberg_requirements import require_iceberg
from tidegate.spark_consumer.spark.listener import MetricsListener
from tidegate.spark_consumer.spark.login_requirements import require_login
from tidegate.spark_consumer.spark.query_session import QuerySession
from tidegate.spark_consumer.spark.redaction import hide_logins
from tidegate.spark_consumer.spark.requirements import require_session
from tidegate.spark_consumer.spark.session import session_of
from tidegate.spark_consumer.spark.short_failure import with_short_failures
from tidegate.spark_consumer.spark.shutdown import stopped_before_java
from tidegate.spark_consumer.spark.sink_factory import all_names, make_sinks
from tidegate.spark_consumer.spark.standby import LeaseKeeper, wait_for_turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


_POLL_SECONDS = 1.0
_UNFINISHED_S = 3_600
"""After which a file that was not renamed is one of a write that was killed."""


def build_query(
    spark: SparkSession,
    config: ConsumerConfig,
    *,
    registry: SchemaRegistry | None = None,
    metrics: ConsumerMetrics | None = None,
    goal_us: int | None = None,
    sinks: Sequence[Sink] = (),
    query_name: str = "",
    lineage: RunLineage | None = None,
) -> GateQuery:
    """Start the query on a session; returns at once.

    `sinks` are written to after those of the settings; `lineage` reports each batch.
    `query_name` is Spark's name of the query; empty: `tidegate-<prefix>`.

    From a watermark of `goal_us` on, each batch brings the mirror up to date: the caller stops the
    query there.  None: the caller stops it at any time, and the next run merges what is left.

    Takes the checkpoint: another run that works on it stops within seconds.  Raises ConfigError if
    checkpoint or output belong to another query, or the session lacks something; a checkpoint of
    another query is left alone.  Raises CheckpointConflict if a replaced run has begun the
    checkpoint meanwhile: a second call goes on with what that has written.
    """
    require_session(spark)
    if config.has_iceberg:
        require_iceberg(spark, catalog=config.iceberg_catalog)
    require_login(spark, config)
    hide_logins(spark)
    gate, output = _folders(spark, config)
    newest = newest_state(gate)
    if newest is not None:
        require_sinks(newest, all_names(config, sinks))
    writer = gate.take()
    reads = _reads(config, newest_state(gate))
    measured = metrics or consumer_metrics()
    listener = MetricsListener(measured)
    running: list[StreamingQuery] = []
    lease = LeaseKeeper(
        Lease(gate, writer), is_running=lambda: all(query.isActive for query in running)
    )
    try:
        batch, writing = _prepare(
            spark,
            config,
            gate,
            output,
            registry=registry,
            metrics=measured,
            writer=writer,
            reads=reads,
            goal_us=goal_us,
            further=sinks,
            query_name=query_name or f"tidegate-{config.prefix}",
            lineage=lineage,
        )
        _log().info(
            "start", run=writer, output=output.root, prefix=config.prefix, changes_per_batch=reads
        )
        if config.metrics_port:
            spark.streams.addListener(listener)
        running.append(writing.start())
    except BaseException as error:
        lease.stop()
        if config.metrics_port:
            spark.streams.removeListener(listener)
        require_no_conflict(gate, error)
        require_storage(error)
        raise

    def frontier(name: str) -> Frontier | None:
        log = GateFiles(gate).frontier(name, Subscription(config.topic_names))
        return None if log is None else log.frontier

    checkpoint = Storage(spark, f"{config.checkpoint}/spark", guard=gate)
    return GateQuery(
        running[0],
        batch,
        gate,
        lease,
        frontier,
        reads,
        unlisten=lambda: spark.streams.removeListener(listener) if config.metrics_port else None,
        require_kept=lambda: require_kept(
            read_offsets(checkpoint) or {}, _kept(config), watermark_us=_watermark_us(gate)
        ),
        output=output,
    )


def _folders(spark: SparkSession, config: ConsumerConfig) -> tuple[Storage, Storage]:
    """Return gate and output.

    Raises ConfigError if the checkpoint belongs to another query, or a store cannot keep two runs
    apart.
    """
    gate = Storage(spark, f"{config.checkpoint}/gate")
    output = Storage(spark, config.output, guard=gate)
    for folder in (gate, output):
        folder.require_store()
    GateFiles(gate).require_identity(config.topic_names, output=output.root)
    return gate, output


def _prepare(
    spark: SparkSession,
    config: ConsumerConfig,
    gate: Storage,
    output: Storage,
    *,
    registry: SchemaRegistry | None,
    metrics: ConsumerMetrics,
    writer: int,
    reads: int,
    goal_us: int | None,
    further: Sequence[Sink],
    query_name: str,
    lineage: RunLineage | None,
) -> tuple[Batch, DataStreamWriter]:
    """Return what starts the query, and the function of its batches."""
    subscription = Subscription(config.topic_names)
    checkpoint = Storage(spark, f"{config.checkpoint}/spark", guard=gate)
    files = GateFiles(gate)
    before_ms = round((time.time() - _UNFINISHED_S) * 1_000)
    gate.delete_unfinished(LISTED_FOLDERS, written_before_ms=before_ms)
    output.delete_unfinished([MANIFEST_FOLDER], written_before_ms=before_ms)
    identity = files.identify(config.topic_names, output=output.root)
    log = _log().bind(query_id=identity.query_id)
    _begin(files, read_offsets(checkpoint), _kept(config), log, watermark_us=_watermark_us(gate))
    direct = find_direct_way(
        output.root,
        rows_max=config.small_release_rows_max,
        bytes_max=config.small_release_bytes_max,
        access=output.access(),
    )
    newest = newest_state(gate)
    session = QuerySession(spark, programs=[sink.name for sink in further])
    schema = session.whole_schema(config.catalog_schema)
    sinks = make_sinks(
        session.spark,
        config.model_copy(update={"catalog_schema": schema}),
        output=output,
        direct=direct,
        state=newest,
        stored=files.plan(0 if newest is None else newest.batch + 1),
        further=further,
    )
    for sink in sinks:
        sink.open(query_id=identity.query_id, release_max=files.release_max(sink.name))
    schemas = SchemaStore(gate, registry or _registry(config))
    segments = SegmentFiles(session.spark, gate.path(SEGMENTS))
    progress = ProgressReader(schemas.schema)
    late = side_tables.DeltaLateTable(output.root)
    sets_aside = config.on_bad_record == "dead_letter"
    bad = BadRecords(
        ids=SchemaIds(schemas.schema, sets_aside=sets_aside),
        table=side_tables.DeltaDeadLetters(output.root),
        sets_aside=sets_aside,
    )
    limits = Limits(
        release_rows_max=config.release_rows_max,
        release_bytes_max=config.release_bytes_max,
        small_release_rows_max=0 if direct is None else config.small_release_rows_max,
        small_release_bytes_max=config.small_release_bytes_max,
        releases_kept=config.releases_kept,
        cadence=Cadence(every_us=config.mirror_interval_ms * US_PER_MS, goal_us=goal_us),
    )

    def rows_of(frame: DataFrame) -> closing[SparkRows]:
        session.begin_batch(frame.sparkSession)
        return closing(
            SparkRows(
                frame,
                segments=segments,
                progress=progress,
                late=late,
                collects=direct is not None,
                limits=limits,
                bad=bad,
            )
        )

    topic_ids = LiveTopicIds(config.bootstrap_servers, config.kafka_client_options())
    parts = Parts(
        files=files,
        schemas=schemas,
        sinks=sinks,
        output=output,
        subscription=subscription,
        query_id=identity.query_id,
        limits=limits,
        code=version("tidegate"),
        topic_ids=topic_ids,
        close=topic_ids.close,
        writer=writer,
        first_state=files.adopted(),
        complete_from_us=complete_from_us(gate),
        late_events=side_tables.DeltaLateEvents(output.root).write,
        records_mismatches=config.on_mismatch == "record",
        settings_of=session.settings_of,
    )
    maintain = find_maintenance(
        output.root,
        sinks,
        manifests=output,
        limits=CompactionLimits(config.compact_files_min, config.target_file_bytes),
        vacuum=VacuumPolicy(
            retention_hours=config.vacuum_retention_hours, interval_ms=config.vacuum_interval_ms
        ),
        require_writer=files.require_writer,
        access=output.access(),
    )
    batch = Batch(
        parts,
        rows_of=rows_of,
        end_offsets=lambda batch: end_offsets(checkpoint, batch),
        log=log,
        metrics=metrics,
        resumes=newest_state(gate),
        maintain=maintain,
        report=None
        if lineage is None
        else BatchLineage(lineage, parts, output=output.root, brokers=config.bootstrap_servers),
    )
    rows = kafka_rows(
        spark,
        bootstrap_servers=config.bootstrap_servers,
        subscription=subscription,
        changes_per_batch_max=reads,
        options=java_options(config.given_kafka_options(), login=config.kafka_login),
    )
    writing = rows.writeStream.queryName(query_name).foreachBatch(with_short_failures(batch))
    writing = writing.option("checkpointLocation", checkpoint.root)
    if config.trigger_interval_ms:
        writing = writing.trigger(processingTime=f"{config.trigger_interval_ms} milliseconds")
    return batch, writing


def _begin(
    files: GateFiles,
    read: EndOffsets | None,
    kept: Mapping[str, Mapping[int, FirstRecord]],
    log: Any,
    *,
    watermark_us: int | None = None,
) -> None:
    """Note what is missing before the first batch; raise ChangesExpired for a later loss."""
    if read is not None:
        require_kept(read, kept, watermark_us=watermark_us)
        return
    begin_us = first_complete_us(kept, now_us=time.time_ns() // NS_PER_US)
    if (adopted := files.adopted()) is not None:  # what is missing before its end was noted then
        if begin_us is not None and begin_us > adopted.watermark_us:
            raise ChangesExpired(
                "Kafka has removed changes after the end of the adopted output",
                hint="Start with a new output and a new checkpoint",
                through_us=adopted.watermark_us,
                complete_from_us=begin_us,
            )
        return
    files.note_start(begin_us)
    if begin_us is not None:
        cut = sorted(topic for topic, of in kept.items() if any(one.offset for one in of.values()))
        log.warning("the beginning is missing", complete_from_us=begin_us, topics=cut)


def _watermark_us(gate: Storage) -> int | None:
    state = newest_state(gate)
    return None if state is None else state.watermark_us


def _kept(config: ConsumerConfig) -> dict[str, dict[int, FirstRecord]]:
    """Return what Kafka has left of the topics that the query reads."""
    subscription = Subscription(config.topic_names)
    return first_records(config.bootstrap_servers, config.kafka_client_options(), subscription)


def run(
    config: ConsumerConfig,
    *,
    stop: threading.Event,
    begun_us: int,
    metrics: ConsumerMetrics,
    health: Health,
    lineage: RunLineage | None = None,
) -> State | None:
    """Block until the end that the settings name, or until `stop` is set; return the last state.

    `begun_us` is when the run began: `until = caught-up` ends it when the watermark has passed that
    time, or when the stream has ended.  Raises the error that ended the query.
    """
    spark = session_of(config)
    with stopped_before_java(spark, stop):
        running: GateQuery | None = None
        goal = CaughtUp(begun_us, now_s=time.monotonic())
        try:
            gate, _ = _folders(spark, config)
            if not config.take_over and not wait_for_turn(gate, stop=stop, health=health):
                return None
            if lineage is not None:
                lineage.begin()
            goal.resume(newest_state(gate))  # a stream that has ended gives no further batch
            is_over, restarts = False, QueryRestarts()
            while not is_over:
                goal_us = begun_us if config.until == "caught-up" else None
                former = running
                try:
                    running = build_query(
                        spark, config, metrics=metrics, goal_us=goal_us, lineage=lineage
                    )
                    if former is not None:
                        former.lease.stop()
                    running.batch.finished = lambda state: goal.finish_batch(
                        state, now_s=time.monotonic()
                    )
                    health.set_ready()
                    is_over = _wait(
                        running,
                        stop,
                        health,
                        goal=goal if config.until == "caught-up" else None,
                        wanted=lambda: _reads(config, goal.state),
                    )
                except CheckpointConflict as conflict:
                    if not restarts.may_restart(now_s=time.monotonic()):
                        raise
                    _log().warning("a replaced run wrote late", cause=conflict.message)
                    if running is not None:
                        running.pause()
        except Exception as error:
            # The JVM may have ended in spite of its hook, in the middle of a batch.  The next run
            # repeats the batch, so this is a normal end.
            if isinstance(error, TidegateError) or not stop.wait(_POLL_SECONDS):
                raise
            _log().warning("stopped in the middle of a batch", cause=type(error).__name__)
        finally:
            if running is not None:
                running.lease.stop()
            with suppress(Exception):
                spark.stop()
        return goal.state


def _reads(config: ConsumerConfig, state: State | None) -> int:
    """Return how many changes a batch may read after a state."""
    return offsets_per_batch(
        changes_max=config.changes_per_batch_max,
        bytes_max=config.bytes_per_batch_max,
        change_bytes=0 if state is None else state.change_bytes,
    )


def _wait(
    running: GateQuery,
    stop: threading.Event,
    health: Health,
    *,
    goal: CaughtUp | None = None,
    wanted: Callable[[], int] | None = None,
) -> bool:
    """Stop the query when `stop` is set or the goal reached; raise the error that ended it.

    `wanted` says how many changes a batch should read now.  Returns False where the query was
    stopped because it reads far more or far fewer.
    """
    while running.query.isActive and running.lease.failure is None:
        if goal is not None:
            if goal.is_reached:
                stop.set()
            elif goal.is_due(now_s=time.monotonic()):
                _tell_what_it_waits_for(running, goal)
        if stop.wait(_POLL_SECONDS):
            break
        health.step()
        if wanted is not None and must_restart(running.reads, reads := wanted()):
            _log().info("changes have another size", changes_per_batch=reads, before=running.reads)
            running.pause()
            return False
    health.set_not_ready("the query has stopped")
    if stop.is_set():
        running.stop()
        return True
    if running.lease.failure is not None:
        running.stop()
        raise running.lease.failure
    failure = running.failure()
    if failure is not None:
        raise failure
    return True


def _tell_what_it_waits_for(running: GateQuery, goal: CaughtUp) -> None:
    name = None if goal.state is None else goal.state.frontier
    frontier = None if name is None else running.frontier(name)
    waiting = goal.waiting(frontier, now_s=time.monotonic(), batch_s=running.batch.batch_s)
    _log().info("not caught up", **asdict(waiting))


def _registry(config: ConsumerConfig) -> HttpSchemaRegistry:
    return HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())


def _log() -> Any:
    return structlog.get_logger("tidegate.spark_consumer")
