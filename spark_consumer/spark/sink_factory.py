"""Makes the sinks that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.program.kafka_clients import KafkaClientLog
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.stream_start import recorded_start
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.sink_set import first_release
from tidegate.spark_consumer.sinks.delta.catalog import SCHEMAS, CatalogNames, named
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.kafka.ordered_topic import SINK as TOPIC
from tidegate.spark_consumer.sinks.kafka.output_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.kinds import KINDS, Parts
from tidegate.spark_consumer.sinks.port import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def all_names(config: ConsumerConfig, further: Sequence[Sink] = ()) -> tuple[str, ...]:
    """Return the names of the sinks of the settings, then those of the program's own.

    Raises ConfigError if two have one name.
    """
    names = (*config.sink_names, *(sink.name for sink in further))
    if len(set(names)) < len(names):
        raise ConfigError(
            "two sinks of a query have the same name",
            hint="Give each sink a name of its own",
            names=names,
        )
    return names


def make_sinks(
    spark: SparkSession,
    config: ConsumerConfig,
    *,
    output: Storage,
    direct: DirectWay | None,
    state: State | None = None,
    stored: Plan | None = None,
    further: Sequence[Sink] = (),
) -> tuple[Sink, ...]:
    """Return the sinks of the settings, then those of the program's own, in that order.

    `output` is the folder of the tables, `direct` how small releases are written without Spark,
    `state` the newest one of the query, and `stored` the plan of the batch after it, if a former
    run has stored it.
    """
    parts = Parts(
        spark,
        config,
        output,
        direct,
        topic=lambda: _topic(config),
        stream=lambda: _stream(config),
        first_release=first_release(TOPIC, state, stored),
    )
    sinks = tuple(KINDS[name].make(parts) for name in config.sink_names)
    if config.catalog_schema:
        names = CatalogNames(spark, config.catalog_schema)
        sinks = tuple(
            named(sink, names, output=output) if sink.name in SCHEMAS else sink for sink in sinks
        )
    return (*sinks, *further)


def _topic(config: ConsumerConfig) -> KafkaOutputTopic:
    return KafkaOutputTopic(
        config.ordered_topic,
        bootstrap_servers=config.bootstrap_servers,
        options=config.kafka_client_options(),
        topic_partitions=config.ordered_topic_partitions,
        transaction_timeout_ms=config.ordered_topic_timeout_ms,
    )


def _stream(config: ConsumerConfig) -> str:
    """Return the full name of the change stream, which its first record has."""
    topic = config.topic_names.progress
    registry = HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())
    started = recorded_start(
        topic,
        bootstrap_servers=config.bootstrap_servers,
        options={**config.kafka_client_options(), "logger": KafkaClientLog()},
        schema_of=registry.schema,
    )
    if started is None:
        raise ConfigError(
            "the progress topic does not say which change stream it is of",
            hint="Restore the topic: its first record, StreamStarted, is missing",
            topic=topic,
        )
    return started.stream
