"""Checks that what the settings name is there and is the stream that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.lineage.subscription import Subscription
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.stream_start import require_topic_names
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.kafka.topics import find_missing_topics

if TYPE_CHECKING:
    from tidegate.spark_consumer.config import ConsumerConfig


def require_stream(config: ConsumerConfig) -> HttpSchemaRegistry:
    """Return the registry of a stream that exists; blocks for seconds, and waits for nothing.

    Raises ConfigError for a stream without progress topic or with other topic names, and for Kafka
    options that Spark's client does not have; UnreachableError for what does not answer.
    """
    options = config.kafka_client_options()
    java_options(config.given_kafka_options(), login=config.kafka_login)
    registry = HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())
    registry.require_reachable()
    names = config.topic_names
    if find_missing_topics(config.bootstrap_servers, Subscription(names), options=options):
        raise ConfigError(
            "there is no progress topic",
            hint=(
                "Check the setting prefix: the first worker of a stream creates its progress topic"
            ),
            topic=names.progress,
        )
    require_topic_names(config, registry.schema)
    return registry
