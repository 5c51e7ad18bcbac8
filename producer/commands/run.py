"""`tidegate-producer run`: settings to adapters to the core and its loop."""

from __future__ import annotations

import signal
import uuid
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import structlog

from tidegate.producer.commands.environment import find_environment, open_stream_start
from tidegate.producer.core.heartbeat import HeartbeatLimits
from tidegate.producer.core.queries import QueryLimits
from tidegate.producer.core.query_scheduler import SchedulerLimits
from tidegate.producer.core.stall_watch import stall_after_us
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.kafka.membership import KafkaMembership
from tidegate.producer.kafka.message_limits import KafkaMessageLimits
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.kafka.topics import KafkaDataTopics
from tidegate.producer.metrics import producer_metrics
from tidegate.producer.observer import Observer
from tidegate.producer.translation.limited import LimitedTranslator
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.subjects import register
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.program.garbage import collect_rarely
from tidegate.program.health import Health
from tidegate.program.status_server import serve_status
from tidegate.schemas.progress import PROGRESS_VERSION, DataTopic, StreamStarted
from tidegate.schemas.progress_codec import KEY_SCHEMAS, RECORD_SCHEMAS
from tidegate.schemas.progress_decoder import ProgressDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.producer.commands.environment import Environment
    from tidegate.producer.config import ProducerConfig
    from tidegate.producer.core import effects as do
    from tidegate.producer.core import events as on
    from tidegate.producer.metrics import ProducerMetrics
    from tidegate.producer.ports import RecordTranslator
    from tidegate.producer.translation.translator import TableEncoding

__all__ = ["run", "start"]


def run(config: ProducerConfig) -> None:
    """Run one worker until SIGTERM or SIGINT, which drain it; a second signal ends it at once.

    Raises what stopped the worker.
    """
    structlog.contextvars.bind_contextvars(worker=config.worker, prefix=config.prefix)
    metrics, health = producer_metrics(), Health()
    with ExitStack() as exits, serve_status(config, registry=metrics.registry, health=health):
        worker = start(config, metrics=metrics, health=health, exits=exits)

        def on_signal(number: int, _frame: object) -> None:
            signal.signal(number, signal.SIG_DFL)
            worker.request_drain()

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        collect_rarely()
        worker.run()


def start(
    config: ProducerConfig, *, metrics: ProducerMetrics, health: Health, exits: ExitStack
) -> FleetWorker:
    """Return a worker, ready to run; topics and schemas exist when this returns.

    `exits` closes what the worker reads from.  Raises ConfigError and UnreachableError;
    `docs/operations.md` lists them.
    """
    found = exits.enter_context(closing(find_environment(config)))
    registrar = TableRegistrar(found.topics, found.registry)
    encodings = [registrar.register(table) for table in found.description.tables]
    progress_ids = _register_progress(found)
    identity = _identity(config, found, registrar, encodings)
    if found.recorded is not None and isinstance(found.recorded.body, StreamStarted):
        identity.require(found.recorded.body)
    limits = _limits(config, found, encodings)
    counts = {topic.topic: topic.topic_partitions for topic in identity.topics}
    worker = Worker(
        name=config.worker,
        epoch=uuid.uuid4().hex,
        identity=identity,
        start_ns=None if config.start == "now" else config.start_ns(),
        end_ns=config.end_ns,
        limits=WorkerLimits(
            commit_interval_us=config.commit_interval_ms * 1_000,
            queries=QueryLimits(
                stall_after_us=stall_after_us(config.heartbeat_ms),
                scheduler=SchedulerLimits(
                    open_max=config.open_queries_max, drift_us_max=config.drift_ms_max * 1_000
                ),
            ),
            heartbeats=HeartbeatLimits(
                version=config.progress_version,
                history_minutes=config.progress_history_hours * 60,
            ),
        ),
    )
    budget = ByteBudget(config.inflight_bytes_max, tasks=found.tasks)
    translator = LimitedTranslator(
        _translator(config, found, registrar, encodings, limits, counts=counts), limits
    )
    decoder = ProgressDecoder(found.registry.schema, own_ids=[progress_ids[PROGRESS_VERSION][1]])
    fleet_worker = FleetWorker(
        worker,
        publisher=_publisher(config, found, counts, limits, progress_ids),
        open_reader=_reader_factory(config, found, translator, budget),
        open_stream_start=lambda: open_stream_start(
            config, found.topics, decoder, found.kafka_options
        ),
        release_budget=budget.release,
        observe=Observer(metrics, bytes_in_flight=lambda: budget.taken, health=health),
    )
    fleet_worker.attach(
        KafkaMembership(
            bootstrap_servers=config.bootstrap_servers,
            group=found.topics.group,
            worker=config.worker,
            topic=found.topics.progress,
            data_topics=[topic.topic for topic in identity.topics],
            session_timeout_ms=config.session_timeout_ms,
            listener=fleet_worker,
            decoder=decoder,
            options=found.kafka_options,
        )
    )
    return fleet_worker


def _identity(
    config: ProducerConfig,
    found: Environment,
    registrar: TableRegistrar,
    encodings: list[TableEncoding],
) -> StreamIdentity:
    """Create the topics that are missing; return what must never change."""
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


def _limits(
    config: ProducerConfig, found: Environment, encodings: list[TableEncoding]
) -> KafkaMessageLimits:
    """Return how large a message each topic takes, read just now."""
    limits = KafkaMessageLimits(
        config.bootstrap_servers,
        [found.topics.progress, *(encoding.topic for encoding in encodings)],
        options=found.kafka_options,
    )
    limits.refresh()
    return limits


def _register_progress(found: Environment) -> dict[int, tuple[int, int]]:
    """Return the schema ids of the progress topic's keys and values, by version."""
    names, registry = found.topics, found.registry
    key, value = names.key_subject(names.progress), names.value_subject(names.progress)
    return {
        version: (
            register(registry, key, KEY_SCHEMAS[version]),
            register(registry, value, RECORD_SCHEMAS[version]),
        )
        for version in sorted(RECORD_SCHEMAS)
    }


def _publisher(
    config: ProducerConfig,
    found: Environment,
    counts: dict[str, int],
    limits: KafkaMessageLimits,
    progress_ids: Mapping[int, tuple[int, int]],
) -> KafkaPublisher:
    return KafkaPublisher(
        bootstrap_servers=config.bootstrap_servers,
        transactional_id=f"{found.topics.group}-{config.worker}",
        transaction_timeout_ms=config.transaction_timeout_ms,
        progress_topic=found.topics.progress,
        topic_partitions=counts,
        progress_schema_ids=progress_ids,
        options=found.kafka_options,
        limits=limits,
    )


def _translator(
    config: ProducerConfig,
    found: Environment,
    registrar: TableRegistrar,
    encodings: list[TableEncoding],
    limits: KafkaMessageLimits,
    *,
    counts: dict[str, int],
) -> RefreshingTranslator:
    known = {encoding.table.name: encoding for encoding in encodings}
    topics = KafkaDataTopics(
        found.kafka,
        limits,
        counts,
        topic_partitions=config.topic_partitions,
        replication=config.replication_factor,
    )
    return RefreshingTranslator(
        Translator(known, change_stream=config.change_stream), found.catalogue, registrar, topics
    )


def _reader_factory(
    config: ProducerConfig, found: Environment, translator: RecordTranslator, budget: ByteBudget
) -> Callable[[do.StartQuery, Callable[[on.ReaderOutput], None]], PartitionReader]:
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
            tasks=found.tasks,
        )

    return open_reader
