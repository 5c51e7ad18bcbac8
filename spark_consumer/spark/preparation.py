"""Makes the batch function of a query, and what starts it, from the settings.

Each part is made once for a query: its folders are cleaned, its sinks opened, and everything that
batches work with is put together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.lineage.frontier import EndOffsets
from tidegate.lineage.subscription import Subscription
from tidegate.program.open_lineage import RunLineage
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.instants import NS_PER_US, US_PER_MS
from tidegate.schemas.registry import SchemaRegistry
from tidegate.spark_consumer.batch.bad_records import BadRecords, SchemaIds
from tidegate.spark_consumer.batch.batch import Batch
from tidegate.spark_consumer.batch.batch_lineage import BatchLineage
from tidegate.spark_consumer.batch.idle_wait import IdleWait
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.batch.progress_rows import ProgressReader
from tidegate.spark_consumer.batch.rows import kafka_rows
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.batch.spark_rows import SparkRows
from tidegate.spark_consumer.checkpoint.gate_files import (
    GateFiles,
    complete_from_us,
    newest_state,
)
from tidegate.spark_consumer.checkpoint.offsets import end_offsets, read_offsets
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.compaction import CompactionLimits
from tidegate.spark_consumer.core.file_names import LISTED_FOLDERS, SEGMENTS
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.core.retention import FirstRecord, require_kept
from tidegate.spark_consumer.core.retention import complete_from_us as first_complete_us
from tidegate.spark_consumer.errors import ChangesExpired
from tidegate.spark_consumer.kafka.data_ends import DataEnds
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.kafka.topics import LiveTopicIds, first_records
from tidegate.spark_consumer.metrics import ConsumerMetrics
from tidegate.spark_consumer.sinks.delta.direct.way import find_direct_way
from tidegate.spark_consumer.sinks.delta.maintenance import VacuumPolicy, find_maintenance
from tidegate.spark_consumer.sinks.delta.side_tables import (
    DeltaDeadLetters,
    DeltaLateEvents,
    DeltaLateTable,
)
from tidegate.spark_consumer.sinks.manifest import MANIFEST_FOLDER
from tidegate.spark_consumer.sinks.port import Sink
from tidegate.spark_consumer.spark.failures import with_short_failures
from tidegate.spark_consumer.spark.query_session import QuerySession
from tidegate.spark_consumer.spark.sink_factory import make_sinks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


_MS_PER_SECOND = 1_000
_UNFINISHED_S = 3_600
"""After which a file that was not renamed is one of a write that was killed."""


def prepare(
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
    """Return the function of the query's batches, and what starts the query."""
    checkpoint = Storage(spark, f"{config.checkpoint}/spark", guard=gate)
    files = GateFiles(gate)
    _delete_unfinished(gate, output)
    query_id = files.identify(config.topic_names, output=output.root).query_id
    log = structlog.get_logger("tidegate.spark_consumer").bind(query_id=query_id)
    read, kept = read_offsets(checkpoint), kept_records(config)
    begin(files, read, kept, log, watermark_us=watermark_us(gate))
    session = QuerySession(spark, programs=[sink.name for sink in further])
    direct = find_direct_way(
        output.root,
        rows_max=config.small_release_rows_max,
        bytes_max=config.small_release_bytes_max,
        access=output.access(),
    )
    newest = newest_state(gate)
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
        sink.open(query_id=query_id, release_max=files.release_max(sink.name))
    registry = registry or HttpSchemaRegistry(
        config.registry_url, options=config.registry_client_options()
    )
    schemas = SchemaStore(gate, registry)
    limits = _limits(config, collects=direct is not None, goal_us=goal_us)
    broker = (config.bootstrap_servers, config.kafka_client_options())
    clients = ExitStack()
    topic_ids = clients.enter_context(closing(LiveTopicIds(*broker)))
    data_ends = clients.enter_context(closing(DataEnds(*broker, Subscription(config.topic_names))))
    # A run that has an end waits for heartbeats, not for changes.
    waits = bool(config.idle_interval_ms and not config.trigger_interval_ms and goal_us is None)
    parts = Parts(
        files=files,
        schemas=schemas,
        sinks=sinks,
        output=output,
        subscription=Subscription(config.topic_names),
        query_id=query_id,
        limits=limits,
        code=version("tidegate"),
        topic_ids=topic_ids,
        close=clients.close,
        writer=writer,
        first_state=files.adopted(),
        complete_from_us=complete_from_us(gate),
        late_events=DeltaLateEvents(output.root).write,
        records_mismatches=config.on_mismatch == "record",
        settings_of=session.settings_of,
    )
    batch = Batch(
        parts,
        rows_of=_rows_of(config, session, parts, gate, output, collects=direct is not None),
        end_offsets=lambda batch: end_offsets(checkpoint, batch),
        log=log,
        metrics=metrics,
        resumes=newest_state(gate),
        maintain=_maintenance(config, parts, output),
        report=None
        if lineage is None
        else BatchLineage(lineage, parts, output=output.root, brokers=config.bootstrap_servers),
        idle_wait=IdleWait(config.idle_interval_ms / _MS_PER_SECOND, data_ends.are_past)
        if waits
        else None,
    )
    writing = _writing(spark, config, batch, reads=reads).queryName(query_name)
    return batch, writing.option("checkpointLocation", checkpoint.root)


def _delete_unfinished(gate: Storage, output: Storage) -> None:
    """Delete the files that killed writes have left."""
    before_ms = round((time.time() - _UNFINISHED_S) * 1_000)
    gate.delete_unfinished(LISTED_FOLDERS, written_before_ms=before_ms)
    output.delete_unfinished([MANIFEST_FOLDER], written_before_ms=before_ms)


def _limits(config: ConsumerConfig, *, collects: bool, goal_us: int | None) -> Limits:
    """Return the limits of a query; `collects` says whether small releases are collected."""
    return Limits(
        release_rows_max=config.release_rows_max,
        release_bytes_max=config.release_bytes_max,
        small_release_rows_max=config.small_release_rows_max if collects else 0,
        small_release_bytes_max=config.small_release_bytes_max,
        releases_kept=config.releases_kept,
        cadence=Cadence(every_us=config.mirror_interval_ms * US_PER_MS, goal_us=goal_us),
    )


def _rows_of(
    config: ConsumerConfig,
    session: QuerySession,
    parts: Parts,
    gate: Storage,
    output: Storage,
    *,
    collects: bool,
) -> Callable[[DataFrame], closing[SparkRows]]:
    """Return what wraps the frame of a batch."""
    segments = SegmentFiles(session.spark, gate.path(SEGMENTS))
    progress = ProgressReader(parts.schemas.schema)
    late = DeltaLateTable(output.root)
    sets_aside = config.on_bad_record == "dead_letter"
    bad = BadRecords(
        ids=SchemaIds(parts.schemas.schema, sets_aside=sets_aside),
        table=DeltaDeadLetters(output.root),
        sets_aside=sets_aside,
    )

    def rows_of(frame: DataFrame) -> closing[SparkRows]:
        session.begin_batch(frame.sparkSession)
        return closing(
            SparkRows(
                frame,
                segments=segments,
                progress=progress,
                late=late,
                collects=collects,
                limits=parts.limits,
                bad=bad,
            )
        )

    return rows_of


def _maintenance(
    config: ConsumerConfig, parts: Parts, output: Storage
) -> Callable[[], None] | None:
    """Return what keeps the tables' files in order after a batch, if something does."""
    return find_maintenance(
        output.root,
        parts.sinks,
        manifests=output,
        limits=CompactionLimits(config.compact_files_min, config.target_file_bytes),
        vacuum=VacuumPolicy(
            retention_hours=config.vacuum_retention_hours, interval_ms=config.vacuum_interval_ms
        ),
        require_writer=parts.files.require_writer,
        access=output.access(),
    )


def _writing(
    spark: SparkSession, config: ConsumerConfig, batch: Batch, *, reads: int
) -> DataStreamWriter:
    """Return what starts the query; a batch reads up to `reads` changes."""
    rows = kafka_rows(
        spark,
        bootstrap_servers=config.bootstrap_servers,
        subscription=Subscription(config.topic_names),
        changes_per_batch_max=reads,
        options=java_options(config.given_kafka_options(), login=config.kafka_login),
    )
    writing = rows.writeStream.foreachBatch(with_short_failures(batch))
    if config.trigger_interval_ms:
        writing = writing.trigger(processingTime=f"{config.trigger_interval_ms} milliseconds")
    return writing


def begin(
    files: GateFiles,
    read: EndOffsets | None,
    kept: Mapping[str, Mapping[int, FirstRecord]],
    log: Any,
    *,
    watermark_us: int | None = None,
) -> None:
    """Record the changes that are missing at the start; raise ChangesExpired for a later loss."""
    if read is not None:
        require_kept(read, kept, watermark_us=watermark_us)
        return
    begin_us = first_complete_us(kept, now_us=time.time_ns() // NS_PER_US)
    adopted = files.adopted()
    if adopted is not None:
        # The adoption has recorded the changes that are missing before the output's end.
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
        cut = sorted(
            topic
            for topic, partitions in kept.items()
            if any(first.offset for first in partitions.values())
        )
        log.warning("the beginning is missing", complete_from_us=begin_us, topics=cut)


def watermark_us(gate: Storage) -> int | None:
    """Return the watermark of the newest state; None before the first batch."""
    state = newest_state(gate)
    return None if state is None else state.watermark_us


def kept_records(config: ConsumerConfig) -> dict[str, dict[int, FirstRecord]]:
    """Return the first kept records of the topics that the query reads."""
    subscription = Subscription(config.topic_names)
    return first_records(config.bootstrap_servers, config.kafka_client_options(), subscription)
