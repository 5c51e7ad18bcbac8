"""`tidegate-producer run`: makes adapters from the settings, and runs the core and its loop."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

import structlog

from tidegate.producer.accelerator import describe_accelerator
from tidegate.producer.backfill.on_demand import OnDemandStream
from tidegate.producer.backfill.requests import TableRequests
from tidegate.producer.cli.end_watch import EndWatch
from tidegate.producer.cli.environment import find_environment
from tidegate.producer.cli.stream_settings import filter_of
from tidegate.producer.cli.worker_parts import Parts, prepare
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.worker import Worker
from tidegate.producer.datastream.event_translator import EventTranslator
from tidegate.producer.datastream.stream import DatastreamFiles
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.log_lines import ParkedLog
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.kafka.backfill_topic import RequestFollower
from tidegate.producer.observation.faults import ERRORS_PATH, RetriedFaults
from tidegate.producer.observation.lineage_notes import LineageNotes
from tidegate.producer.observation.metrics import ProducerMetrics, producer_metrics
from tidegate.producer.observation.observer import Observer
from tidegate.producer.ports import ChangeStream, RecordTranslator
from tidegate.producer.spanner.catalogue import TablesAt
from tidegate.producer.spanner.table_reads import SpannerChunkReads
from tidegate.producer.translation.pipeline import Parking
from tidegate.program.memory import collect_rarely
from tidegate.program.open_lineage import RunLineage, kafka_namespace, place_of, reported
from tidegate.program.status_server import Health, serve_status

_log = structlog.get_logger()


def run(config: ProducerConfig) -> None:
    """Run one worker until SIGTERM or SIGINT, which drain it; a second signal ends it at once.

    Raises the error that stopped the worker.
    """
    structlog.contextvars.bind_contextvars(worker=config.worker, prefix=config.prefix)
    _log.info("accelerator", state=describe_accelerator())
    metrics, health, faults = producer_metrics(), Health(), RetriedFaults()
    pages = {ERRORS_PATH: faults.as_json}
    served = serve_status(config, registry=metrics.registry, health=health, pages=pages)
    with (
        ExitStack() as exits,
        served,
        reported(config, program="tidegate-producer") as lineage,
    ):
        worker = start(
            config, metrics=metrics, health=health, faults=faults, exits=exits, lineage=lineage
        )

        def on_signal(number: int, _frame: object) -> None:
            signal.signal(number, signal.SIG_DFL)
            worker.request_drain(leaves_group=config.leave_on_stop)

        watch: EndWatch | None = None
        if config.until:
            watch = EndWatch(config, partial(worker.request_drain, leaves_group=True))
            exits.callback(watch.close)
        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        collect_rarely()
        worker.run()
        if watch is not None and watch.failure is not None:
            raise watch.failure


def start(
    config: ProducerConfig,
    *,
    metrics: ProducerMetrics,
    health: Health,
    exits: ExitStack,
    faults: RetriedFaults | None = None,
    lineage: RunLineage | None = None,
) -> FleetWorker:
    """Return a worker, ready to run; topics and schemas exist when this returns.

    `exits` closes what the worker reads from; `faults` gets the faults that it retries, `lineage`
    what it reads and publishes.  Raises ConfigError and UnreachableError;
    `docs/reference/errors.md` lists them.
    """
    environment = exits.enter_context(closing(find_environment(config)))
    parts = prepare(environment)
    stream = _stream(parts, exits)
    files = stream.figures if isinstance(stream, DatastreamFiles) else None
    budget = ByteBudget(config.inflight_bytes_max, tasks=parts.environment.source.tasks)
    observe: Callable[[on.Event, Worker], None] = Observer(
        metrics,
        bytes_in_flight=lambda: budget.taken,
        health=health,
        # The owner of the files decides how long they are kept; that is unknown here.
        retention_us=environment.source.description.retention_us if files is None else math.inf,
        files=files,
        faults=faults,
        shows_details=config.metrics_details,
    )
    fleet_worker = FleetWorker(
        parts.worker(Worker),
        publisher=parts.publisher(),
        open_reader=_reader_factory(parts, stream, _translator(parts), budget),
        open_stream_start=parts.open_stream_start,
        release_budget=budget.release,
        observe=observe if lineage is None else _with_lineage(observe, lineage, parts),
    )
    fleet_worker.attach(parts.membership(fleet_worker))
    return fleet_worker


def _with_lineage(
    observe: Callable[[on.Event, Worker], None], lineage: RunLineage, parts: Parts
) -> Callable[[on.Event, Worker], None]:
    """Report a worker's run, which begins here, in addition to the other observer."""
    config = parts.config

    def source_of(table: str) -> tuple[str, str]:
        if config.files is not None:
            return place_of(config.files.location)
        return f"spanner://{config.project}:{config.instance}", f"{config.database}.{table}"

    notes = LineageNotes(
        lineage,
        encodings=parts.plain.encodings,
        source_of=source_of,
        kafka=kafka_namespace(config.bootstrap_servers),
    )
    lineage.begin()

    def observe_all(event: on.Event, worker: Worker) -> None:
        observe(event, worker)
        notes(event, worker)

    return observe_all


def _stream(parts: Parts, exits: ExitStack) -> ChangeStream:
    """Return the stream; that of Spanner also reads the tables that operators request."""
    environment, source, requests = parts.environment, parts.environment.source, TableRequests()
    if source.channels is None:
        return source.stream
    follower = RequestFollower(
        environment.topics.backfills,
        requests,
        bootstrap_servers=parts.config.bootstrap_servers,
        group=environment.topics.group,
        options=environment.kafka_options,
    )
    exits.callback(follower.close)
    follower.start()
    tables = TablesAt(source.catalogue, stream=parts.config.change_stream, tasks=source.tasks)
    reads = SpannerChunkReads(source.channels, tables, source.query_options)
    return OnDemandStream(source.stream, reads, requests)


def _translator(parts: Parts) -> RecordTranslator:
    """Return the translator of all readers."""
    chosen, parks = filter_of(parts.config), parts.config.poison == "park"
    record_filter = None if chosen.is_empty else chosen
    if parts.config.files is not None:
        return EventTranslator(
            replace(parts.translator, record_filter=record_filter),
            parks=parks,
            columns_of=parts.plain.registered_columns,
        )
    parking = None
    if parks:
        parking = Parking(
            parts.plain, parts.limits, dead_letter=parts.dead_letter, report=ParkedLog()
        )
    return replace(parts.translator, record_filter=record_filter, parking=parking)


def _reader_factory(
    parts: Parts, stream: ChangeStream, translator: RecordTranslator, budget: ByteBudget
) -> Callable[[do.StartQuery, Callable[[on.ReaderOutput], None]], PartitionReader]:
    def open_reader(
        query: do.StartQuery, deliver: Callable[[on.ReaderOutput], None]
    ) -> PartitionReader:
        return PartitionReader(
            stream.resumed(query.resumption) if isinstance(stream, DatastreamFiles) else stream,
            translator,
            token=query.token,
            query_id=query.query_id,
            start_ns=query.start_ns,
            end_ns=query.end_ns,
            heartbeat_ms=parts.config.heartbeat_ms,
            deliver=deliver,
            budget=budget,
            tasks=parts.environment.source.tasks,
            tombstones=parts.config.tombstones,
        )

    return open_reader
