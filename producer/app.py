"""The only wiring: settings to adapters to the core and its loop.

Everything is looked at before anything is made: settings that cannot work end here with one clear
error, and neither topics nor schemas nor a group membership are left behind.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from tidegate.producer.adapters.change_encoder import TableRegistrar
from tidegate.producer.adapters.kafka_publisher import KafkaPublisher
from tidegate.producer.adapters.kafka_slots import KafkaSlots, StreamStartFinder
from tidegate.producer.adapters.kafka_topics import KafkaTopics
from tidegate.producer.adapters.spanner_catalogue import SpannerCatalogue
from tidegate.producer.adapters.spanner_channel import SpannerChannels
from tidegate.producer.adapters.spanner_stream import SpannerChangeStream
from tidegate.producer.adapters.table_refresh import TableRefreshFromCatalogue
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.translate import Translator
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.fleet_worker import FleetWorker
from tidegate.producer.driver.partition_reader import ByteBudget, PartitionReader
from tidegate.producer.driver.translation import LearningTranslator
from tidegate.producer.errors import StreamChangedError
from tidegate.producer.metrics import ProducerMetrics
from tidegate.producer.observer import Observer
from tidegate.producer.validate import validate_stream
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.progress import DataTopic, ProgressRecord, StreamStarted
from tidegate.schemas.progress_codec import KEY_SCHEMA, RECORD_SCHEMA
from tidegate.schemas.registry_http import HttpSchemaRegistry
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.config import ProducerConfig
    from tidegate.producer.core import effects as do
    from tidegate.producer.core import events as on
    from tidegate.producer.core.stream_description import StreamDescription
    from tidegate.producer.core.translate import TableEncoding

__all__ = ["check", "start"]

_SEARCH_PATIENCE_S = 30.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """Everything that was found to be there."""

    topics: TopicNames
    kafka: KafkaTopics
    registry: HttpSchemaRegistry
    catalogue: SpannerCatalogue
    stream: SpannerChangeStream
    description: StreamDescription
    recorded: ProgressRecord | None
    """The `StreamStarted` of the topics' epoch, if they exist and it was begun."""


def check(config: ProducerConfig) -> list[str]:
    """Return what `start` would work with; raises what it would raise; changes nothing."""
    found = _look(config)
    tables = ", ".join(table.name for table in found.description.tables)
    begun = "not begun yet" if found.recorded is None else f"epoch {found.recorded.epoch}"
    return [
        f"Spanner: {config.stream_path}, {found.description.dialect}, watches {tables}",
        f"Kafka: {config.bootstrap_servers}, progress topic {found.topics.progress}, {begun}",
        f"registry: {config.registry_url}",
    ]


def start(config: ProducerConfig) -> FleetWorker:
    """Return a worker, ready to run; topics and schemas exist when this returns.

    Raises ConfigError and UnreachableError; `docs/operations.md` lists them.
    """
    structlog.contextvars.bind_contextvars(worker=config.worker, prefix=config.prefix)
    found = _look(config)
    metrics = _metrics(config)
    registrar = TableRegistrar(found.topics, found.registry)
    encodings = [registrar.register(table) for table in found.description.tables]
    identity = _identity(config, found, registrar, encodings)
    if found.recorded is not None and isinstance(found.recorded.body, StreamStarted):
        identity.require(found.recorded.body)
    worker = Worker(
        name=config.worker,
        epoch=uuid.uuid4().hex,
        identity=identity,
        start_ns=None if config.start == "now" else config.start_ns(),
        end_ns=config.end_ns,
        limits=WorkerLimits(commit_interval_us=config.commit_interval_ms * 1_000),
    )
    budget = ByteBudget(config.inflight_bytes_max)
    fleet_worker = FleetWorker(
        worker,
        publisher=_publisher(config, found),
        open_reader=_reader_factory(config, found, registrar, encodings, budget),
        open_stream_start=lambda: _stream_start_finder(config, found.topics),
        release_budget=budget.release,
        observe=Observer(metrics, bytes_in_flight=lambda: budget.taken),
    )
    fleet_worker.attach(
        KafkaSlots(
            bootstrap_servers=config.bootstrap_servers,
            group=found.topics.group,
            worker=config.worker,
            topic=found.topics.progress,
            session_timeout_ms=config.session_timeout_ms,
            listener=fleet_worker,
            slots=config.slots,
            on_orphans=lambda: metrics.count("tidegate_producer_orphan_rounds"),
            options=config.kafka_client_options(),
        )
    )
    return fleet_worker


def _look(config: ProducerConfig) -> _Surroundings:
    """Find everything that must be there; changes nothing."""
    names = TopicNames(config.prefix)
    kafka = KafkaTopics(config.bootstrap_servers, options=config.kafka_client_options())
    kafka.require_broker()
    registry = HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())
    registry.require_reachable()
    recorded = _recorded_start(config, kafka, names)
    channels = SpannerChannels(
        database=config.database_path,
        emulator_host=config.emulator_host,
        database_role=config.database_role,
    )
    catalogue = SpannerCatalogue(channels)
    stream = SpannerChangeStream(channels, config.change_stream)
    now_ns = time.time_ns()
    begins_now = recorded is not None or config.start == "now"
    description = validate_stream(
        catalogue,
        stream,
        name=config.change_stream,
        start_ns=now_ns if begins_now else config.start_ns(),
        now_ns=now_ns,
    )
    return _Surroundings(names, kafka, registry, catalogue, stream, description, recorded)


def _recorded_start(
    config: ProducerConfig, kafka: KafkaTopics, names: TopicNames
) -> ProgressRecord | None:
    """Return the record that began the epoch; raises StreamChangedError if it is another's."""
    existing = kafka.describe([names.progress])
    if not existing:
        return None
    if existing[names.progress].topic_partitions != config.slots:
        slots = existing[names.progress].topic_partitions
        message = f"slots: topic {names.progress} has {slots}, the setting says {config.slots}"
        raise ConfigError(message, hint="Set it to the topic's number; it can never change")
    finder = _stream_start_finder(config, names)
    give_up_at = time.monotonic() + _SEARCH_PATIENCE_S
    try:
        record, at_end = finder.poll(_POLL_S)
        while record is None and not at_end:
            if time.monotonic() > give_up_at:
                message = "the progress topic cannot be read to its end"
                hint = "A transaction may be open in it; it ends by itself after its time-out"
                raise UnreachableError(message, hint=hint, topic=names.progress)
            record, at_end = finder.poll(_POLL_S)
    finally:
        finder.close()
    if (
        record is not None
        and isinstance(record.body, StreamStarted)
        and record.body.stream != config.stream_path
    ):
        difference = f"stream: recorded {record.body.stream}, now {config.stream_path}"
        raise StreamChangedError([difference])
    return record


def _identity(
    config: ProducerConfig,
    found: _Surroundings,
    registrar: TableRegistrar,
    encodings: list[TableEncoding],
) -> StreamIdentity:
    """Make what topics lack, and return what must not change from now on."""
    replication = config.replication_factor
    progress = found.kafka.ensure_progress(
        found.topics.progress, slots=config.slots, replication=replication
    )
    data = found.kafka.ensure_data(
        [encoding.topic for encoding in encodings],
        topic_partitions=config.topic_partitions,
        replication=replication,
    )
    return StreamIdentity(
        stream=config.stream_path,
        dialect=found.description.dialect,
        group=found.topics.group,
        slots=config.slots,
        progress_topic_id=progress.topic_id,
        topics=tuple(
            DataTopic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                topic_partitions=topic.topic_partitions,
                key_schema_id=registrar.key_schema_id(topic.topic),
            )
            for _, topic in sorted(data.items())
        ),
        filters=found.description.filters,
    )


def _publisher(config: ProducerConfig, found: _Surroundings) -> KafkaPublisher:
    progress = found.topics.progress
    key_id = found.registry.register(found.topics.key_subject(progress), KEY_SCHEMA)
    record_id = found.registry.register(found.topics.value_subject(progress), RECORD_SCHEMA)
    return KafkaPublisher(
        bootstrap_servers=config.bootstrap_servers,
        transactional_id=f"{found.topics.group}-{config.worker}",
        transaction_timeout_ms=config.transaction_timeout_ms,
        progress_topic=progress,
        key_schema_id=key_id,
        record_schema_id=record_id,
        options=config.kafka_client_options(),
    )


def _reader_factory(
    config: ProducerConfig,
    found: _Surroundings,
    registrar: TableRegistrar,
    encodings: list[TableEncoding],
    budget: ByteBudget,
) -> Callable[[do.StartQuery, Callable[[on.ReaderOutput], None]], PartitionReader]:
    known = {encoding.table.name: encoding for encoding in encodings}
    translator = LearningTranslator(
        Translator(known, change_stream=config.change_stream),
        TableRefreshFromCatalogue(found.catalogue, registrar),
    )

    def open_reader(
        query: do.StartQuery, deliver: Callable[[on.ReaderOutput], None]
    ) -> PartitionReader:
        return PartitionReader(
            found.stream,
            translator,
            token=query.token,
            query_id=query.query_id,
            start_ns=query.start_ns,
            heartbeat_ms=config.heartbeat_ms,
            deliver=deliver,
            budget=budget,
        )

    return open_reader


def _stream_start_finder(config: ProducerConfig, names: TopicNames) -> StreamStartFinder:
    return StreamStartFinder(
        bootstrap_servers=config.bootstrap_servers,
        group=names.group,
        topic=names.progress,
        root_slot=slot_of(ROOT_TOKEN, config.slots),
        options=config.kafka_client_options(),
    )


def _metrics(config: ProducerConfig) -> ProducerMetrics:
    metrics = ProducerMetrics()
    if config.metrics_port:
        try:
            metrics.serve(config.metrics_port)
        except OSError as error:
            message = f"metrics_port: port {config.metrics_port} is taken"
            raise ConfigError(message, hint="Choose another, or 0 for none") from error
    return metrics
