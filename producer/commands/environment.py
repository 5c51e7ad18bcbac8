"""What a worker needs from outside, checked before anything is created.

Settings that cannot work end here with one clear error; no topic, schema or group membership is
left behind.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidegate.producer.backfill.read_partition import is_of_backfill
from tidegate.producer.backfill.stream import BackfillStream
from tidegate.producer.commands.files_source import NoChannels, open_files
from tidegate.producer.config import listed
from tidegate.producer.core.stream_identity import require_settings
from tidegate.producer.driver.tasks import TaskThread
from tidegate.producer.kafka.message_limits import PROGRESS_BYTES_MIN, KafkaMessageLimits
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.topics import KafkaTopics, PlannedTopics
from tidegate.producer.record_filter import MOD_TYPES, RecordFilter
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import WINDOW_US, form_of
from tidegate.producer.spanner.query_options import QueryOptions
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.spanner.table_reads import SpannerTableReads
from tidegate.producer.spanner.tables_at import TablesAt
from tidegate.producer.spanner.validate import validate_stream
from tidegate.producer.translation.beside_tables import require_other_names
from tidegate.producer.translation.filtering import FilteredCatalogue
from tidegate.producer.translation.planned_registry import PlannedRegistry
from tidegate.program.kafka_clients import list_topics, require_own_prefix
from tidegate.program.kafka_log import KafkaClientLog
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.stream_start import recorded_filters
from tidegate.schemas.change_schema import RESERVED_HINT
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError
from tidegate.schemas.flat_schema import reserved_names
from tidegate.schemas.output_form import Envelope, OutputForm, ValueFormat
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.topics import TopicNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.producer.config import ProducerConfig
    from tidegate.producer.description import StreamDescription
    from tidegate.producer.ports import Catalogue, ChangeStream
    from tidegate.schemas.registry import SchemaRegistry

__all__ = [
    "Environment",
    "backfill_tables",
    "filter_of",
    "find_environment",
    "fixed_settings",
    "form_of_output",
    "open_root_slot",
    "recorded_start",
    "require_backfill",
]

_SEARCH_PATIENCE_S = 30.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Environment:
    """Clients of everything that a worker uses, each of which has answered."""

    topics: TopicNames
    kafka: KafkaTopics
    kafka_options: Mapping[str, Any]
    """Further options of every Kafka client, with the log that their lines go to."""
    registry: SchemaRegistry
    catalogue: Catalogue
    stream: ChangeStream
    channels: SpannerChannels | NoChannels
    tasks: TaskThread
    """What queries of the stream are read by."""
    description: StreamDescription
    root_slot: RootSlotReader
    """Has read up to `recorded`, and goes on with the records of later tables."""
    recorded: ProgressRecord | None
    """The `StreamStarted` of the topics' epoch; None before the stream's first start."""
    has_dead_letter: bool
    """Whether the dead-letter topic exists: then there may be parked keys, whatever `poison` is."""
    query_options: QueryOptions = field(default_factory=QueryOptions)
    """What queries and reads say of themselves to Spanner."""

    @property
    def window_us(self) -> int | None:
        """How long the interval of one query is; None where queries have no end."""
        return WINDOW_US if self.description.has_key_moves else None

    def planned(self, config: ProducerConfig) -> Environment:
        """Return the same with clients that create no topic and register no schema."""
        return replace(
            self,
            kafka=PlannedTopics(config.bootstrap_servers, options=self.kafka_options),
            registry=PlannedRegistry(self.registry),
        )

    def close(self) -> None:
        """End the connections to Spanner, what was read from them, and the root's slot."""
        self.channels.close()
        self.tasks.close()
        self.root_slot.close()


def filter_of(config: ProducerConfig) -> RecordFilter:
    """Return what the settings leave out of the stream."""
    chosen = {one.upper() for one in listed(config.mod_types)}
    return RecordFilter(
        tables=listed(config.tables),
        tables_left_out=listed(config.tables_left_out),
        columns_left_out=listed(config.columns_left_out),
        mod_types=tuple(one for one in MOD_TYPES if one in chosen),
        tags_left_out=listed(config.tags_left_out, separator=";"),
        system_transactions_left_out=config.system_transactions_left_out,
    )


def form_of_output(config: ProducerConfig) -> OutputForm:
    """Return the form in which the settings publish changes."""
    return OutputForm(
        tombstones=config.tombstones,
        envelope=Envelope(config.envelope),
        value_format=ValueFormat(config.value_format),
    )


def fixed_settings(config: ProducerConfig) -> tuple[str, ...]:
    """Return the settings that are fixed for an epoch, as `StreamStarted.filters` has them."""
    of_output = form_of_output(config).described + config.topic_names.recorded
    return filter_of(config).described + of_output


def find_environment(config: ProducerConfig) -> Environment:
    """Connect to Kafka, the registry and Spanner; changes nothing, blocks for seconds at most.

    The caller closes what is returned.

    Raises ConfigError, UnreachableError or StreamChangedError for the first thing that cannot work.
    """
    names = config.topic_names
    options = {**config.kafka_client_options(), "logger": KafkaClientLog()}
    visible = list_topics(config.bootstrap_servers, options)
    require_own_prefix(names, visible)
    has_dead_letter = names.dead_letter in visible
    if has_dead_letter and config.progress_version == 1:
        message = f"progress_version 1 cannot record parked keys, and {names.dead_letter} exists"
        hint = (
            "Use progress_version 2; or, if no change is parked (tidegate-producer redrive "
            "--dry-run), delete the topic"
        )
        raise ConfigError(message, hint=hint)
    kafka = KafkaTopics(config.bootstrap_servers, options=options)
    registry = HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())
    registry.require_reachable()
    with ExitStack() as exits:
        root_slot = open_root_slot(config, names, registry, options)
        exits.callback(root_slot.close)
        recorded = recorded_start(config, kafka, names, root_slot, options)
        if recorded is None:
            require_unclaimed(config, visible, registry, options)
        else:
            require_backfill(config, recorded)
        if config.files is not None:
            tasks = TaskThread()
            exits.callback(tasks.close)
            opened = open_files(config, config.files, tasks=tasks)
            exits.pop_all()
            return Environment(
                topics=names,
                kafka=kafka,
                kafka_options=options,
                registry=registry,
                catalogue=opened.catalogue,
                stream=opened.stream,
                channels=NoChannels(),
                tasks=tasks,
                description=opened.description,
                root_slot=root_slot,
                recorded=recorded,
                has_dead_letter=has_dead_letter,
            )
        channels = SpannerChannels(
            database=config.database_path,
            emulator_host=config.emulator_host,
            database_role=config.database_role,
            endpoint=config.spanner_endpoint,
            credentials_file=str(config.credentials_file or ""),
        )
        catalogue: Catalogue = SpannerCatalogue(channels)
        record_filter = filter_of(config)
        if not record_filter.is_empty:
            catalogue = FilteredCatalogue(catalogue, record_filter, is_new=recorded is None)
        now_ns = time.time_ns()
        starts_now = recorded is not None or config.start == "now"
        tasks = TaskThread()
        exits.callback(tasks.close)
        exits.callback(channels.close)
        query_options = QueryOptions(
            priority=config.rpc_priority.upper(),
            tag=config.request_tag,
            replicas=config.replicas,
        )
        description, stream = validate_stream(
            catalogue,
            lambda described: SpannerChangeStream(
                channels,
                form_of(described.dialect, described.partition_mode, described.name),
                query_options,
            ),
            run_task=tasks.run,
            name=config.change_stream,
            start_ns=now_ns if starts_now else config.start_ns(),
            now_ns=now_ns,
        )
        for table in description.tables:
            names.data(table.name)  # a table without a topic is refused by name
        require_other_names(description.tables)
        require_mode(config, description, has_dead_letter=has_dead_letter)
        require_names(config, description)
        backfilled = backfill_tables(config, (table.name for table in description.tables))
        exits.pop_all()
    return Environment(
        topics=names,
        kafka=kafka,
        kafka_options=options,
        registry=registry,
        catalogue=catalogue,
        stream=BackfillStream(
            stream,
            SpannerTableReads(
                channels,
                TablesAt(catalogue, stream=config.change_stream, tasks=tasks),
                query_options,
            ),
            tables=backfilled,
        ),
        query_options=query_options,
        channels=channels,
        tasks=tasks,
        description=description,
        root_slot=root_slot,
        recorded=recorded,
        has_dead_letter=has_dead_letter,
    )


def require_unclaimed(
    config: ProducerConfig,
    visible: Iterable[str],
    registry: SchemaRegistry,
    options: Mapping[str, Any],
) -> None:
    """Raise ConfigError if data topics of a new stream could be taken for those of another one.

    Only a stream whose prefix this one's continues with `-` or `_` could do so, by its template,
    which its progress topic says.  Raises UnreachableError if that cannot be read.
    """
    names = config.topic_names
    for topic in names.continued(visible):
        hint = "Use another prefix"
        try:
            filters = recorded_filters(
                topic,
                bootstrap_servers=config.bootstrap_servers,
                options=options,
                schema_of=registry.schema,
            )
        except (ConfigError, SchemaError) as error:
            message = (
                f"prefix: {names.prefix!r} continues the name of {topic}, which cannot be read: "
                f"{error.message}"
            )
            hint += f", or let this principal read {topic}: it says which data topics are its own"
            raise ConfigError(message, hint=hint) from error
        if filters is not None:
            other = TopicNames(names.progress_prefix(topic), names.recorded_template(filters))
            require_own_prefix(other, [names.progress])


def require_mode(
    config: ProducerConfig, description: StreamDescription, *, has_dead_letter: bool
) -> None:
    """Raise ConfigError for settings that do not go with keys that move.

    A key that moves would leave its parked changes behind: a marker does not name parked keys.
    """
    if not description.has_key_moves:
        return
    if config.poison == "park":
        message = f"poison: park is not possible with partition_mode {description.partition_mode}"
        raise ConfigError(message, hint='Use poison = "stop"')
    if has_dead_letter:
        message = f"prefix: {config.prefix} has a dead-letter topic"
        hint = (
            f"With partition_mode {description.partition_mode} nothing is parked: use another "
            "prefix, or delete the topic"
        )
        raise ConfigError(message, hint=hint)


def backfill_tables(config: ProducerConfig, published: Iterable[str]) -> tuple[str, ...]:
    """Return the tables whose rows the settings publish before the stream.

    `published` are those of the stream.  Raises ConfigError for another one.
    """
    known = sorted(published)
    wanted = listed(config.backfill)
    if wanted == ("*",):
        return tuple(known)
    for table in wanted:
        if table not in known:
            message = f"backfill: the stream does not publish the table {table}"
            raise ConfigError(message, hint=f"Published tables: {', '.join(known) or 'none'}")
    return wanted


def require_backfill(config: ProducerConfig, recorded: ProgressRecord) -> None:
    """Raise ConfigError for a backfill of a stream that has begun without one."""
    body = recorded.body
    if not config.backfill or not isinstance(body, StreamStarted):
        return
    if not any(is_of_backfill(child.token) for child in body.children):
        message = "backfill: the stream has begun without a backfill"
        hint = "Leave the setting out, or begin a new stream (another prefix, or reset)"
        raise ConfigError(message, hint=hint, prefix=config.prefix)


def require_names(config: ProducerConfig, description: StreamDescription) -> None:
    """Raise ConfigError for a column that the setting `envelope` leaves no name to."""
    if form_of_output(config).envelope is not Envelope.FLAT:
        return
    for table in description.tables:
        for name in reserved_names(column.name for column in table.columns):
            message = (
                f"envelope: a flat value cannot have the column {table.name}.{name}, whose name "
                "begins with __"
            )
            raise ConfigError(message, hint=RESERVED_HINT)


def open_root_slot(
    config: ProducerConfig,
    names: TopicNames,
    registry: SchemaRegistry,
    options: Mapping[str, Any],
) -> RootSlotReader:
    """Return a reader of the root's slot, which the caller closes; nothing is read yet."""
    return RootSlotReader(
        bootstrap_servers=config.bootstrap_servers,
        group=names.group,
        topic=names.progress,
        decoder=ProgressDecoder(registry.schema),
        options=options,
    )


def recorded_start(
    config: ProducerConfig,
    kafka: KafkaTopics,
    names: TopicNames,
    root_slot: RootSlotReader,
    options: Mapping[str, Any],
) -> ProgressRecord | None:
    """Read the root's slot up to the record that opened the epoch; None before the first start.

    Raises ConfigError for a progress topic that the settings do not fit, StreamChangedError for
    another stream's, and UnreachableError if the topic cannot be read to its end.
    """
    existing = kafka.describe([names.progress])
    if not existing:
        return None
    if existing[names.progress].topic_partitions != config.slots:
        slots = existing[names.progress].topic_partitions
        message = f"slots: topic {names.progress} has {slots}, the setting says {config.slots}"
        raise ConfigError(message, hint="Set it to the topic's number; it can never change")
    kafka.require_compacted(names.progress)
    limits = KafkaMessageLimits(config.bootstrap_servers, [names.progress], options=options)
    limits.refresh()
    limits.require(names.progress, PROGRESS_BYTES_MIN)
    give_up_at = time.monotonic() + _SEARCH_PATIENCE_S
    record, at_end = root_slot.poll(_POLL_S)
    while record is None and not at_end:
        if time.monotonic() > give_up_at:
            message = "the progress topic cannot be read to its end"
            hint = "A transaction may be open in it; the broker ends it after its time-out"
            raise UnreachableError(message, hint=hint, topic=names.progress)
        record, at_end = root_slot.poll(_POLL_S)
    if record is not None and isinstance(record.body, StreamStarted):
        require_settings(
            record.body,
            stream=config.stream_path,
            timestamps=config.timestamp_form,
            filters=fixed_settings(config),
        )
    return record
