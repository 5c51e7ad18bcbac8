"""`tidegate-producer schemas`: the registry's subjects of one stream, without a worker.

`subjects`, `shown` and `stream_topics` need Kafka and the registry; `missing` and `register` also
read the tables from Spanner.  None of them creates a topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from tidegate.producer.cli.check import missing_subjects
from tidegate.producer.cli.clients import kafka_options, schema_registry
from tidegate.producer.cli.environment import find_environment
from tidegate.producer.cli.worker_parts import make_registrar, register_progress, register_tables
from tidegate.producer.config import ProducerConfig
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.program.kafka_clients import list_topics, require_own_prefix
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.stream_start import require_topic_names
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.topics import TopicNames


@dataclass(frozen=True, slots=True)
class Subject:
    """One subject of the registry."""

    subject: str
    versions: int
    schema_id: int
    """The newest version's id."""
    compatibility: str | None
    """Its own level; None if only the registry's default applies."""


@dataclass(frozen=True, slots=True)
class StreamTopic:
    """A topic of the stream with its newest schemas."""

    topic: str
    table: str | None
    """None for the progress topic."""
    topic_partitions: int
    key: RegisteredSchema
    value: RegisteredSchema


def subjects(config: ProducerConfig) -> list[Subject]:
    """Return the subjects of all topics of the stream that exist, by name.

    Raises ConfigError and UnreachableError.
    """
    registry = _registry(config)
    subjects = []
    for topic in _topics(config):
        for subject in (TopicNames.key_subject(topic), TopicNames.value_subject(topic)):
            versions = registry.versions(subject)
            if versions:
                newest, level = versions[-1].schema_id, registry.compatibility(subject)
                subjects.append(Subject(subject, len(versions), newest, level))
    return subjects


def subjects_table(subjects: Sequence[Subject]) -> Table:
    """Return the output of `schemas list` for people."""
    table = Table("subject", "versions", "newest id", "compatibility")
    for subject in subjects:
        level = subject.compatibility or "the registry's"
        table.add_row(escape(subject.subject), str(subject.versions), str(subject.schema_id), level)
    return table


def shown(config: ProducerConfig, table: str, *, is_key: bool) -> dict[str, Any]:
    """Return the newest schema of a table's keys or values; raises ConfigError if there is none."""
    names = config.topic_names
    topic = names.data(table)
    subject = names.key_subject(topic) if is_key else names.value_subject(topic)
    versions = _registry(config).versions(subject)
    if not versions:
        tables = ", ".join(filter(None, map(names.table, _topics(config)))) or "none"
        raise ConfigError(
            f"the registry has no subject {subject}", hint=f"Tables that have a topic: {tables}"
        )
    return versions[-1].schema


def missing(config: ProducerConfig) -> list[str]:
    """Return the subjects to which `run` would add a version; raises the errors of `run`."""
    with closing(find_environment(config)) as environment:
        return missing_subjects(environment)[0]


def register(config: ProducerConfig) -> list[str]:
    """Register the result of `missing`, and return it; raises the errors of `run`."""
    with closing(find_environment(config)) as environment:
        new, _ = missing_subjects(environment)
        register_tables(environment, make_registrar(environment))
        register_progress(environment)
        return new


def stream_topics(config: ProducerConfig) -> list[StreamTopic]:
    """Return the topics of the stream that have schemas, the progress topic last."""
    names, registry = config.topic_names, _registry(config)
    kafka = KafkaTopics(config.bootstrap_servers, options=kafka_options(config))
    topics = []
    for topic, described in sorted(
        kafka.describe(_topics(config)).items(),
        key=lambda entry: (entry[0] == names.progress, entry[0]),
    ):
        keys = registry.versions(names.key_subject(topic))
        values = registry.versions(names.value_subject(topic))
        if keys and values:
            table = names.table(topic)
            count = described.topic_partitions
            topics.append(StreamTopic(topic, table, count, keys[-1], values[-1]))
    return topics


def _topics(config: ProducerConfig) -> list[str]:
    """Return the data topics and the progress topic, as far as they exist."""
    names = config.topic_names
    visible = list_topics(config.bootstrap_servers, kafka_options(config))
    require_own_prefix(names, visible)
    if names.progress in visible:
        require_topic_names(config, _registry(config).schema)
    return sorted(filter(names.has_schemas, visible))


def _registry(config: ProducerConfig) -> HttpSchemaRegistry:
    registry = schema_registry(config)
    registry.require_reachable()
    return registry
