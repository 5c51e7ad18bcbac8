"""`tidegate-producer check`: checks whether `run` would start, without changing anything."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import closing

from tidegate.producer.accelerator import describe_accelerator
from tidegate.producer.cli.environment import Environment, find_environment
from tidegate.producer.cli.worker_parts import make_registrar, require_topics
from tidegate.producer.config import ProducerConfig
from tidegate.producer.errors import DeliveryDenied
from tidegate.producer.kafka.service_check import (
    Right,
    denied_topics,
    missing_parts,
    require_transactions,
)
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.checks import try_query
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.translation.catalogues import require_other_name
from tidegate.producer.translation.pipeline import POISON
from tidegate.producer.translation.subjects import is_registered
from tidegate.program.kafka_clients import list_topics
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress_codec import KEY_SCHEMAS, RECORD_SCHEMAS
from tidegate.schemas.topics import topic_collisions, topics_of_one_name

_INTERNAL = "__"
_DEAD_LETTER_RIGHTS: tuple[tuple[Right, str], ...] = (
    ("WRITE", ", to which this principal may not write: add the ACL Write"),
    ("READ", ", which this principal may not read, as a redrive has to: add the ACL Read"),
)


def check(config: ProducerConfig) -> list[str]:
    """Return a line for each system that `run` would use, for the accelerator and for a query.

    Also one for each feature that the Kafka service lacks.  Raises the errors that `run` would
    raise.
    """
    with closing(find_environment(config)) as environment:
        return _lines(environment)


def _lines(environment: Environment) -> list[str]:
    config = environment.config
    described = environment.source.description
    tables = ", ".join(table.name for table in described.tables)
    epoch = (
        "no epoch yet" if environment.recorded is None else f"epoch {environment.recorded.epoch}"
    )
    missing, refused = missing_subjects(environment)
    require_topics(environment.planned())
    _require_right_to_write(environment)
    lacks = _require_service(environment)
    schemas = f"would register {', '.join(missing)}" if missing else "has every schema"
    dead_letter = _dead_letter(environment)
    kafka = f"progress topic {environment.topics.progress}, {epoch}{dead_letter}"
    source = f"Spanner: {config.stream_path}, {described.dialect}, watches {tables}"
    source += "".join(f", cannot publish {table}: {error}" for table, error in refused.items())
    if config.files is not None:
        source = f"Datastream: {config.files.location} can be listed"
    return [
        source,
        f"Kafka: {config.bootstrap_servers}, {kafka}",
        *(f"Kafka: {part}" for part in lacks),
        f"registry: {config.registry_url}, {schemas}",
        f"accelerator: {describe_accelerator()}",
        *_query(environment),
    ]


def _query(environment: Environment) -> list[str]:
    """Return the outcome of a query of one second; nothing for a source without queries."""
    source = environment.source
    if source.channels is None:
        return []
    described = source.description
    form = form_of(described.dialect, described.partition_mode, described.name)
    outcome = try_query(
        SpannerChangeStream(source.channels, form, source.query_options),
        run_task=source.tasks.run,
        start_ns=SpannerCatalogue(source.channels).now_ns(),
        transport=source.channels.query_transport,
    )
    return [f"query: {outcome}"]


def _require_right_to_write(environment: Environment) -> None:
    """Raise ConfigError for an existing topic to which this principal may not write."""
    names, described = environment.topics, environment.source.description
    topics = [names.progress, *(names.data(table.name) for table in described.tables)]
    existing = sorted(environment.kafka.describe(topics))
    if existing and (denied := _denied("WRITE", existing, environment)):
        raise ConfigError(
            f"this principal may not write to {', '.join(denied)}", hint=DeliveryDenied.fix
        )


def _require_service(environment: Environment) -> list[str]:
    """Return the features that the Kafka service lacks; ConfigError if it has no transactions.

    A stream that has begun was written in a transaction, and may have a worker with the
    transactional id.
    """
    config, names, options = environment.config, environment.topics, environment.kafka_options
    if not environment.has_begun:
        require_transactions(
            config.bootstrap_servers,
            options=options,
            transactional_id=f"{names.group}-{config.worker}",
            timeout_ms=config.transaction_timeout_ms,
        )
    visible = list_topics(config.bootstrap_servers, options)
    external = [topic for topic in sorted(visible) if not topic.startswith(_INTERNAL)]
    topics = [names.progress] if names.progress in visible else external
    return missing_parts(config.bootstrap_servers, options=options, topics=topics)


def _dead_letter(environment: Environment) -> str:
    """Return the notes about the dead-letter topic; empty if there is none and none is needed."""
    config, topic = environment.config, environment.topics.dead_letter
    if not environment.has_dead_letter:
        if config.poison != "park":
            return ""
        planned = environment.planned().kafka
        planned.ensure_dead_letter(topic, replication=config.replication_factor)
        return f", would create dead-letter topic {topic}"
    lacks = "".join(
        text for right, text in _DEAD_LETTER_RIGHTS if _denied(right, [topic], environment)
    )
    return f", dead-letter topic {topic}{lacks}"


def _denied(right: Right, topics: Sequence[str], environment: Environment) -> list[str]:
    """Return the topics on which this principal lacks a right, as far as Kafka reports it."""
    return denied_topics(
        topics,
        bootstrap_servers=environment.config.bootstrap_servers,
        options=environment.kafka_options,
        right=right,
    )


def missing_subjects(environment: Environment) -> tuple[list[str], dict[str, str]]:
    """Return the subjects to which `run` would add a version, the progress topic's last.

    Also the tables that a stream which has begun continues without, with the reasons.
    """
    names, registry = environment.topics, environment.registry
    registrar = make_registrar(environment)
    missing: list[str] = []
    refused: dict[str, str] = {}
    for table in environment.source.description.tables:
        try:
            if not environment.has_begun:
                missing += registrar.missing(table)
            else:
                require_other_name(table.name)
                missing += registrar.missing(table, shown=())
        except POISON as error:
            if not environment.has_begun:
                raise
            refused[table.name] = str(error)
    if environment.has_begun:
        refused |= _colliding(environment, refused)
    progress = {
        names.key_subject(names.progress): KEY_SCHEMAS,
        names.value_subject(names.progress): RECORD_SCHEMAS,
    }
    missing += [
        subject
        for subject, versions in progress.items()
        if not all(is_registered(registry, subject, schema) for schema in versions.values())
    ]
    return missing, refused


def _colliding(environment: Environment, refused: Container[str]) -> dict[str, str]:
    """Return later tables whose topics Kafka would not create next to others, with the reasons."""
    tables = (table.name for table in environment.source.description.tables)
    topics = {environment.topics.data(table): table for table in tables if table not in refused}
    visible = list_topics(environment.config.bootstrap_servers, environment.kafka_options)
    data_topics = filter(environment.topics.is_data, visible)
    return {
        topics[topic]: f"its topic {topic} differs from {other} in case only"
        for topic, other in topics_of_one_name(topics, data_topics).items()
    } | {
        topics[topic]: f"Kafka does not create topic {topic} beside {other}"
        for topic, other in topic_collisions(topics, visible).items()
    }
