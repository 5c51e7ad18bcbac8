"""Clients of Kafka and the registry from the settings, and the recorded start of a stream."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tidegate.producer.cli.stream_settings import fixed_settings
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core.stream_identity import require_settings
from tidegate.producer.kafka.message_limits import PROGRESS_BYTES_MIN, KafkaMessageLimits
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.program.kafka_clients import KafkaClientLog
from tidegate.program.kafka_errors import not_read_to_end
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import SchemaRegistry

_SEARCH_PATIENCE_S = 30.0
_POLL_S = 0.5


def kafka_options(config: ProducerConfig) -> dict[str, Any]:
    """Return the further options of Kafka's clients, including their log."""
    return {**config.kafka_client_options(), "logger": KafkaClientLog()}


def schema_registry(config: ProducerConfig) -> HttpSchemaRegistry:
    """Return a client of the registry, which is not called yet."""
    return HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())


def open_root_slot(
    config: ProducerConfig, registry: SchemaRegistry, options: Mapping[str, Any]
) -> RootSlotReader:
    """Return a reader of the root's slot, which the caller closes; nothing is read yet."""
    names = config.topic_names
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
    root_slot: RootSlotReader,
    options: Mapping[str, Any],
) -> ProgressRecord | None:
    """Read the root's slot up to the record that opened the epoch; None before the first start.

    Settings that do not name the stream's source are not compared with the topic.  Raises
    ConfigError for a progress topic that does not match the settings, StreamChangedError for
    another stream's, and UnreachableError if the topic cannot be read to its end.
    """
    topic = config.topic_names.progress
    existing = kafka.describe([topic])
    if not existing:
        return None
    slots = existing[topic].topic_partitions
    if config.names_source and slots != config.slots:
        raise ConfigError(
            f"slots: topic {topic} has {slots}, the setting says {config.slots}",
            hint="Set it to the topic's number; it can never change",
        )
    kafka.require_compacted(topic)
    limits = KafkaMessageLimits(config.bootstrap_servers, [topic], options=options)
    limits.refresh()
    limits.require(topic, PROGRESS_BYTES_MIN)
    give_up_at = time.monotonic() + _SEARCH_PATIENCE_S
    record, at_end = root_slot.poll(_POLL_S)
    while record is None and not at_end:
        if time.monotonic() > give_up_at:
            raise not_read_to_end("the progress topic", topic=topic, reported=root_slot.reported)
        record, at_end = root_slot.poll(_POLL_S)
    if config.names_source and record is not None and isinstance(record.body, StreamStarted):
        require_settings(
            record.body,
            stream=config.stream_path,
            timestamps=config.timestamp_form,
            filters=fixed_settings(config),
        )
    return record
