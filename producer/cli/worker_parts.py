"""The parts of a worker over the systems that it uses, for every command that runs a worker.

Topics and schemas exist when `prepare` returns.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import structlog

from tidegate.producer.cli.clients import open_root_slot
from tidegate.producer.cli.environment import Environment
from tidegate.producer.cli.stream_settings import filter_of, fixed_settings, form_of_output
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core.partition_index import SchedulerLimits
from tidegate.producer.core.progress_writer import HeartbeatLimits
from tidegate.producer.core.queries import QueryLimits, stall_after_us
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.schema_lookups import SchemaLookups
from tidegate.producer.errors import TopicRefused
from tidegate.producer.kafka.membership import KafkaMembership
from tidegate.producer.kafka.message_limits import KafkaMessageLimits
from tidegate.producer.kafka.progress_follower import ProgressFollower
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.kafka.topics import KafkaDataTopics, TopicDescription
from tidegate.producer.ports import StreamStartFinder
from tidegate.producer.translation.catalogues import BesideCatalogue, require_other_name
from tidegate.producer.translation.event_writer import EventForm
from tidegate.producer.translation.pipeline import POISON, SizeLimits, TranslationPipeline
from tidegate.producer.translation.subjects import register
from tidegate.producer.translation.table_evolution import (
    OTHER_ENVELOPE_HINT,
    OTHER_TIMESTAMPS_HINT,
)
from tidegate.producer.translation.table_refresh import TableRefresher
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import RESERVED_HINT
from tidegate.schemas.errors import SchemaNotKept
from tidegate.schemas.progress import (
    PROGRESS_VERSION,
    DataTopic,
    ProgressRecord,
    StreamStarted,
)
from tidegate.schemas.progress_codec import KEY_SCHEMAS, RECORD_SCHEMAS
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.tables import TableSchema

_log = structlog.get_logger()

_SETTINGS_HINTS = (OTHER_TIMESTAMPS_HINT, OTHER_ENVELOPE_HINT, RESERVED_HINT)
"""Hints of errors that affect every change of a table, not a row: nothing is parked for them."""

_LISTING_US = 120_000_000
"""Listing one folder with many files may take this long, while a query of files is silent."""

_Worker = TypeVar("_Worker", bound=Worker)


@dataclass(frozen=True, slots=True)
class Parts:
    """The result of `prepare`; its methods connect it to a worker's ports."""

    environment: Environment
    identity: StreamIdentity
    limits: KafkaMessageLimits
    plain: Translator
    """Knows the tables; translates without checking sizes or the catalogue."""
    translator: TranslationPipeline
    """Without a filter and without parking."""
    topics: KafkaDataTopics
    """Topics of later tables, which `translator` meets."""
    counts: dict[str, int]
    """The number of topic partitions that places records, for each topic except progress."""
    progress_ids: dict[int, tuple[int, int]]
    dead_letter: str
    """The dead-letter topic; empty if there is none and none is needed."""

    @property
    def config(self) -> ProducerConfig:
        """The settings."""
        return self.environment.config

    def worker(self, kind: type[_Worker]) -> _Worker:
        """Return the core of a worker with these settings."""
        config = self.config
        return kind(
            name=config.worker,
            epoch=uuid.uuid4().hex,
            identity=self.identity,
            start_ns=self.environment.source.start_ns,
            end_ns=config.end_ns,
            limits=WorkerLimits(
                commit_interval_us=config.commit_interval_ms * 1_000,
                queries=QueryLimits(
                    stall_after_us=max(
                        stall_after_us(config.heartbeat_ms),
                        0 if config.files is None else _LISTING_US,
                    ),
                    window_us=self.environment.window_us,
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

    def publisher(self, *, redrives: bool = False) -> KafkaPublisher:
        """Return the transactional producer; with `redrives` one that puts changes back."""
        config = self.config
        return KafkaPublisher(
            bootstrap_servers=config.bootstrap_servers,
            transactional_id=f"{self.environment.topics.group}-{config.worker}",
            transaction_timeout_ms=config.transaction_timeout_ms,
            progress_topic=self.environment.topics.progress,
            topic_partitions=self.counts,
            progress_schema_ids=self.progress_ids,
            options=self.environment.kafka_options,
            limits=self.limits,
            dead_letter=self.dead_letter,
            redrives=redrives,
            tombstones=config.tombstones,
        )

    def membership(self, worker: FleetWorker) -> KafkaMembership:
        """Return the worker's membership in the fleet's group; later tables are reported to it."""
        config, decoder = self.config, self._decoder()
        self.topics.on_found = worker.add_table
        self.environment.root_slot.decode_with(decoder)
        return KafkaMembership(
            bootstrap_servers=config.bootstrap_servers,
            group=self.environment.topics.group,
            worker=config.worker,
            topic=self.environment.topics.progress,
            data_topics=[topic.topic for topic in self.identity.topics],
            session_timeout_ms=config.session_timeout_ms,
            listener=worker,
            decoder=decoder,
            root_slot=self.environment.root_slot,
            open_follower=lambda epoch, with_moves: ProgressFollower(
                bootstrap_servers=config.bootstrap_servers,
                group=self.environment.topics.group,
                topic=self.environment.topics.progress,
                slots=self.identity.slots,
                epoch=epoch,
                with_moves=with_moves,
                decoder=decoder,
                options=self.environment.kafka_options,
            ),
            options=self.environment.kafka_options,
        )

    def open_stream_start(self) -> StreamStartFinder:
        """Start to search for the record that opened the epoch, unless it was read already."""
        environment = self.environment
        if environment.recorded is not None:
            return RecordedStart(environment.recorded)
        return open_root_slot(self.config, environment.registry, environment.kafka_options)

    def _decoder(self) -> ProgressDecoder:
        """Return a decoder for the worker's loop, which checks whether a record is ready."""
        own_id = self.progress_ids[PROGRESS_VERSION][1]
        lookups = SchemaLookups(self.environment.registry.schema)
        return ProgressDecoder(lookups.schema, own_ids=[own_id], has_answer=lookups.has_answer)


def prepare(environment: Environment) -> Parts:
    """Create missing topics and schemas.

    Raises ConfigError, UnreachableError and StreamChangedError: see `docs/reference/errors.md`.
    """
    config = environment.config
    registrar = make_registrar(environment)
    encodings = register_tables(environment, registrar)
    progress_ids = register_progress(environment)
    identity = _identity(environment, registrar, encodings)
    created = {topic.topic for topic in identity.topics}
    counts = {topic.topic: topic.topic_partitions for topic in identity.topics}
    dead_letter = ""
    if config.poison == "park" or environment.has_dead_letter:
        dead_letter = environment.topics.dead_letter
        described = environment.kafka.ensure_dead_letter(
            dead_letter, replication=config.replication_factor
        )
        counts[dead_letter] = described.topic_partitions
    limits = KafkaMessageLimits(
        config.bootstrap_servers,
        [environment.topics.progress, *counts],
        options=environment.kafka_options,
    )
    limits.refresh()
    plain = Translator(
        {encoding.table.name: encoding for encoding in encodings if encoding.topic in created},
        change_stream=config.change_stream,
    )
    topics = KafkaDataTopics(
        environment.kafka,
        limits,
        counts,
        topic_partitions=config.topic_partitions,
        replication=config.replication_factor,
        names=environment.topics,
    )
    catalogue = BesideCatalogue(environment.source.catalogue)
    refresher = TableRefresher(plain, catalogue, registrar, topics)
    return Parts(
        environment=environment,
        identity=identity,
        limits=limits,
        plain=plain,
        translator=TranslationPipeline(plain, refresher, SizeLimits(limits)),
        topics=topics,
        counts=counts,
        progress_ids=progress_ids,
        dead_letter=dead_letter,
    )


def make_registrar(environment: Environment) -> TableRegistrar:
    """Return the registrar of tables for the settings."""
    config, form = environment.config, form_of_output(environment.config)
    return TableRegistrar(
        environment.topics,
        environment.registry,
        config.timestamp_form,
        record_filter=filter_of(config),
        envelope=form.envelope,
        event_form=EventForm(
            prefix=config.prefix,
            project=config.project,
            instance=config.instance,
            database=config.database,
            change_stream=config.change_stream,
            value_format=form.value_format,
            key_format=form.key_format,
        ),
    )


def register_tables(environment: Environment, registrar: TableRegistrar) -> list[TableEncoding]:
    """Return the encodings of the stream's tables, which are registered; see `registered`."""
    return list(
        registered(
            registrar,
            environment.source.description.tables,
            parks=environment.config.poison == "park",
            has_begun=environment.has_begun,
        )
    )


def registered(
    registrar: TableRegistrar, tables: Iterable[TableSchema], *, parks: bool, has_begun: bool
) -> Iterator[TableEncoding]:
    """Yield the encodings of tables; with `parks` without tables whose values are never accepted.

    Such a table stays unknown, like one that is created later: its first record registers it, or is
    parked.  Raises as `TableRegistrar.register` does, also for such a table if its key is refused,
    or if the reason is the setting `timestamps` or `envelope`, or the registry itself.  In a stream
    that `has_begun` every refused table stays unknown: it was added or changed since, and the
    others continue.  A column that cannot have a field waits for a record that shows it.
    """
    for table in tables:
        try:
            yield _register(registrar, table, has_begun=has_begun)
        except POISON as error:
            if not has_begun:
                if not parks or error.hint in _SETTINGS_HINTS or isinstance(error, SchemaNotKept):
                    raise
                registrar.register_key(table)
            _log.warning("table not registered", table=table.name, error=str(error))


def _register(registrar: TableRegistrar, table: TableSchema, *, has_begun: bool) -> TableEncoding:
    if not has_begun:
        return registrar.register(table)
    require_other_name(table.name)
    return registrar.register(table, shown=())


def _identity(
    environment: Environment, registrar: TableRegistrar, encodings: list[TableEncoding]
) -> StreamIdentity:
    """Create missing topics; return the properties that must never change.

    In a stream that has begun, a topic that Kafka refuses is left out: it belongs to a later table.
    Raises StreamChangedError for another identity than the recorded one.
    """
    config, recorded = environment.config, environment.recorded
    replication = config.replication_factor
    progress = environment.kafka.ensure_progress(
        environment.topics.progress, slots=config.slots, replication=replication
    )
    topics = [encoding.topic for encoding in encodings]
    try:
        data = _ensure_data(environment, topics)
    except TopicRefused:
        if recorded is None:
            raise
        data = {}
        for topic in topics:
            try:
                data |= _ensure_data(environment, [topic])
            except TopicRefused as error:
                table = environment.topics.table(topic)
                _log.warning("table not registered", table=table, error=str(error))
    identity = StreamIdentity(
        stream=config.stream_path,
        dialect=environment.source.description.dialect,
        group=environment.topics.group,
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
        filters=environment.source.description.filters + fixed_settings(config),
        timestamps=config.timestamp_form,
    )
    if recorded is not None and isinstance(recorded.body, StreamStarted):
        identity.require(recorded.body)
    return identity


def require_topics(planned: Environment) -> None:
    """Raise the errors of `prepare` about topics that exist, or that it would create.

    `planned` creates nothing.
    """
    registrar = make_registrar(planned)
    _identity(planned, registrar, register_tables(planned, registrar))


def _ensure_data(environment: Environment, topics: Iterable[str]) -> dict[str, TopicDescription]:
    config = environment.config
    return environment.kafka.ensure_data(
        topics,
        topic_partitions=config.topic_partitions,
        replication=config.replication_factor,
        names=environment.topics,
    )


def register_progress(environment: Environment) -> dict[int, tuple[int, int]]:
    """Register missing schemas; return the progress topic's ids of keys and values, by version."""
    names, registry = environment.topics, environment.registry
    key, value = names.key_subject(names.progress), names.value_subject(names.progress)
    return {
        version: (
            register(registry, key, KEY_SCHEMAS[version]),
            register(registry, value, RECORD_SCHEMAS[version]),
        )
        for version in sorted(RECORD_SCHEMAS)
    }


class RecordedStart:
    """The result of a search whose record was read before the worker started.

    The record is committed and never changes.  The worker's comparison of topic ids finds out
    whether it belongs to the present topic, not to an earlier one of that name.
    """

    def __init__(self, record: ProgressRecord) -> None:
        self._record = record

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord, bool]:  # noqa: ARG002 - the port's signature
        """Return the record."""
        return self._record, False

    def close(self) -> None:
        """Change nothing."""
