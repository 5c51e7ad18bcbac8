"""The systems that a worker uses, checked before anything is created.

Settings that cannot work end here with one clear error; no topic, schema or group membership is
created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from tidegate.producer.cli.clients import (
    kafka_options,
    open_root_slot,
    recorded_start,
    schema_registry,
)
from tidegate.producer.cli.source import OpenedSource, open_files, open_spanner
from tidegate.producer.cli.stream_settings import require_backfill
from tidegate.producer.config import ProducerConfig
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.topics import KafkaTopics, PlannedTopics
from tidegate.producer.spanner.forms import WINDOW_US
from tidegate.producer.translation.subjects import PlannedRegistry
from tidegate.program.kafka_clients import list_topics, require_own_prefix
from tidegate.program.stream_start import recorded_filters
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.progress import ProgressRecord
from tidegate.schemas.registry import SchemaRegistry
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.topics import TopicNames, topic_collisions, topics_of_one_name


@dataclass(frozen=True, slots=True)
class Environment:
    """Clients of everything that a worker uses, each of which has answered."""

    config: ProducerConfig
    topics: TopicNames
    kafka: KafkaTopics
    kafka_options: Mapping[str, Any]
    """Further options of every Kafka client, including its log."""
    registry: SchemaRegistry
    source: OpenedSource
    root_slot: RootSlotReader
    """Has read up to `recorded`, and continues with the records of later tables."""
    recorded: ProgressRecord | None
    """The `StreamStarted` of the topics' epoch; None before the stream's first start."""
    has_dead_letter: bool
    """Whether the dead-letter topic exists: then keys may be parked, whatever `poison` is."""

    @property
    def window_us(self) -> int | None:
        """The length of one query's interval; None if queries have no end."""
        return WINDOW_US if self.source.description.has_key_moves else None

    @property
    def has_begun(self) -> bool:
        """Whether the stream was started before."""
        return self.recorded is not None

    def planned(self) -> Environment:
        """Return the same with clients that create no topic and register no schema."""
        return replace(
            self,
            kafka=PlannedTopics(self.config.bootstrap_servers, options=self.kafka_options),
            registry=PlannedRegistry(self.registry),
        )

    def close(self) -> None:
        """Close the source, and the reader of the root's slot."""
        self.source.close()
        self.root_slot.close()


def find_environment(config: ProducerConfig) -> Environment:
    """Connect to Kafka, the registry and Spanner; changes nothing, blocks for at most some seconds.

    The caller closes the result.  Raises ConfigError, UnreachableError or StreamChangedError for
    the first thing that cannot work.
    """
    names = config.topic_names
    options = kafka_options(config)
    visible = list_topics(config.bootstrap_servers, options)
    require_own_prefix(names, visible)
    has_dead_letter = names.dead_letter in visible
    if has_dead_letter and config.progress_version == 1:
        raise ConfigError(
            f"progress_version 1 cannot record parked keys, and {names.dead_letter} exists",
            hint=(
                "Use progress_version 2; or, if no change is parked (tidegate-producer redrive "
                "--dry-run), delete the topic"
            ),
        )
    kafka = KafkaTopics(config.bootstrap_servers, options=options)
    registry = schema_registry(config)
    registry.require_reachable()
    with ExitStack() as exits:
        root_slot = open_root_slot(config, registry, options)
        exits.callback(root_slot.close)
        recorded = recorded_start(config, kafka, root_slot, options)
        if recorded is None:
            require_unclaimed(config, visible, registry, options)
        else:
            require_backfill(config, recorded)
        if config.files is not None:
            source = open_files(config, config.files)
        else:
            source = open_spanner(
                config, has_begun=recorded is not None, has_dead_letter=has_dead_letter
            )
        if recorded is None:
            with ExitStack() as on_error:
                on_error.callback(source.close)
                require_creatable(config, source.description.tables, visible)
                on_error.pop_all()
        exits.pop_all()
    return Environment(
        config=config,
        topics=names,
        kafka=kafka,
        kafka_options=options,
        registry=registry,
        source=source,
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
    """Raise ConfigError if another stream's template could claim data topics of a new stream.

    Only a stream whose prefix this one's continues with `-` or `_` could do so, by the template in
    its progress topic.  Raises UnreachableError if that cannot be read.
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


def require_creatable(
    config: ProducerConfig, tables: Iterable[TableSchema], visible: Iterable[str]
) -> None:
    """Raise ConfigError if Kafka would not create a topic of a new stream because of another one.

    Kafka would reject it, or it differs only in case from that of another table.
    """
    names = config.topic_names
    stream_topics = (names.progress, names.dead_letter, names.backfills)
    data = [names.data(table.name) for table in tables]
    for topic, other in topics_of_one_name(data, filter(names.is_data, visible)).items():
        raise ConfigError(
            f"table {names.table(topic)}: its topic {topic} differs from {other} in case only",
            hint="Leave the table out (tables_left_out), or rename it",
            topic=topic,
        )
    topics = [*stream_topics, *data]
    for topic, other in topic_collisions(topics, visible).items():
        table = names.table(topic)
        subject = "prefix" if table is None else f"table {table}"
        hint = "Use another prefix"
        if table is not None and other in topics:
            hint = (
                "Leave one of the two tables out (tables_left_out), and publish it in a stream of "
                "its own, under another prefix"
            )
        raise ConfigError(
            (
                f"{subject}: Kafka does not create topic {topic} beside {other}: it treats '.' and "
                "'_' as the same"
            ),
            hint=hint,
            topic=topic,
        )
