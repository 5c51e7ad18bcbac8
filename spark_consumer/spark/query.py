"""Builds the streaming query from the settings, and runs it.

`build_query` uses an existing session (spark-submit, a notebook).  `run` also starts one, waits for
the end that the settings name, and raises errors as they were raised inside the query.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.lineage.frontier import Frontier
from tidegate.lineage.subscription import Subscription
from tidegate.program.open_lineage import RunLineage
from tidegate.program.status_server import Health
from tidegate.schemas.errors import TidegateError, UnreachableError
from tidegate.schemas.registry import SchemaRegistry
from tidegate.spark_consumer.checkpoint.gate_files import (
    GateFiles,
    newest_state,
)
from tidegate.spark_consumer.checkpoint.offsets import read_offsets
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.checkpoint.writers import Lease
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.limits import must_restart, offsets_per_batch
from tidegate.spark_consumer.core.retention import require_kept
from tidegate.spark_consumer.core.runs import CaughtUp, QueryRestarts
from tidegate.spark_consumer.core.sink_set import require_sinks
from tidegate.spark_consumer.errors import CheckpointConflict, ReportFailed
from tidegate.spark_consumer.metrics import ConsumerMetrics, consumer_metrics
from tidegate.spark_consumer.sinks.port import Sink
from tidegate.spark_consumer.spark.failures import (
    require_no_conflict,
    require_storage,
)
from tidegate.spark_consumer.spark.gate_query import GateQuery, MetricsListener
from tidegate.spark_consumer.spark.preparation import kept_records, prepare, watermark_us
from tidegate.spark_consumer.spark.requirements import (
    hide_logins,
    require_iceberg,
    require_login,
    require_session,
)
from tidegate.spark_consumer.spark.session import session_of, stopped_before_java
from tidegate.spark_consumer.spark.sink_factory import all_names
from tidegate.spark_consumer.spark.standby import LeaseKeeper, wait_for_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidegate.spark_consumer.batch.batch import Batch


_POLL_SECONDS = 1.0
_ABSENCES_MAX = 40
_ABSENCE_PAUSE_S = 5.0
"""Pause before the query starts again: `_ABSENCES_MAX` of them last for three minutes or more."""


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

    From a watermark of `goal_us` on, each batch brings the mirror up to date, since the caller
    stops the query there.  None: the caller stops it at any time, and the next run merges the
    remaining releases.

    Takes the checkpoint over: another run that works on it stops within seconds.  Raises
    ConfigError if checkpoint or output belong to another query, or the session lacks something; a
    checkpoint of another query is left alone.  Raises CheckpointConflict if a replaced run has
    begun the checkpoint in the meantime: a second call continues with its files.
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
    batch: Batch | None = None
    try:
        batch, writing = prepare(
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
        listener.idle_s = batch.idle_s
        _log().info(
            "start", run=writer, output=output.root, prefix=config.prefix, changes_per_batch=reads
        )
        if config.metrics_port:
            spark.streams.addListener(listener)
        running.append(writing.start())
    except BaseException as error:
        if batch is not None:
            batch.close()
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
            read_offsets(checkpoint) or {}, kept_records(config), watermark_us=watermark_us(gate)
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
            is_over, is_resuming, restarts = False, False, QueryRestarts()
            absences = QueryRestarts(restarts_max=_ABSENCES_MAX)
            while not is_over:
                goal_us = begun_us if config.until == "caught-up" else None
                former = running
                try:
                    # A run that stood by may have taken the checkpoint during the pause.
                    if is_resuming and not wait_for_turn(gate, stop=stop, health=health):
                        break
                    is_resuming = False
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
                except (CheckpointConflict, ReportFailed) as fault:
                    if not restarts.may_restart(now_s=time.monotonic()):
                        raise
                    if isinstance(fault, CheckpointConflict):
                        _log().warning("a replaced run wrote late", cause=fault.message)
                    else:
                        _log().warning("Spark failed after a repeated batch", cause=fault.message)
                    if running is not None:
                        running.pause()
                except UnreachableError as fault:
                    # At the start the settings may be wrong.
                    if running is None or not absences.may_restart(now_s=time.monotonic()):
                        raise
                    _log().warning("a service does not answer", cause=str(fault))
                    running.pause()
                    running.lease.stop()
                    is_over, is_resuming = stop.wait(_ABSENCE_PAUSE_S), True
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


def _log() -> Any:
    return structlog.get_logger("tidegate.spark_consumer")
