"""What the consumer asks Kafka and the registry before Spark starts.

Spark itself waits long and complains in stack traces; here one sentence names what is wrong.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.schemas.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from tidegate.spark_consumer.core.subscription import Subscription

__all__ = ["require_registry", "require_topics"]

_TIMEOUT_SECONDS = 10.0


def require_topics(bootstrap_servers: str, subscription: Subscription) -> None:
    """Raise UnreachableError without a broker, ConfigError without the stream's progress topic.

    Another prefix that begins with this one and a dot is refused too: its data topics could be
    taken for this one's.
    """
    # librdkafka's own lines about a broker that does not answer would hide the sentence below.
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        topics = set(client.list_topics(timeout=_TIMEOUT_SECONDS).topics)
    except KafkaException as error:
        message = "no Kafka broker answers"
        hint = "Check bootstrap_servers, and that the broker runs"
        raise UnreachableError(message, hint=hint, bootstrap_servers=bootstrap_servers) from error
    if subscription.progress_topic not in topics:
        message = "the stream's progress topic does not exist"
        hint = "Check prefix, and that a producer has been started with it"
        raise ConfigError(message, hint=hint, topic=subscription.progress_topic)
    head = f"{subscription.names.prefix}."
    overlapping = sorted(t for t in topics if t.startswith(head) and t.endswith("-progress"))
    if overlapping:
        message = "another stream's prefix begins with this one's and a dot"
        hint = "Their data topics cannot be told apart: give one of them another prefix"
        raise ConfigError(message, hint=hint, prefix=subscription.names.prefix, topics=overlapping)


def require_registry(url: str) -> None:
    """Raise UnreachableError if nothing that speaks Confluent's API answers."""
    asked = f"{url.rstrip('/')}/subjects"
    try:
        # The scheme is checked where the settings are.
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            answer.read(1)
    except (OSError, ValueError) as error:
        # A registry that wants credentials does answer.
        if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403):
            return
        message = "the schema registry does not answer"
        hint = "Check registry_url, and that it speaks Confluent's API"
        cause = type(error).__name__
        raise UnreachableError(message, hint=hint, url=_without_user(url), cause=cause) from error


def _without_user(url: str) -> str:
    """A URL may hold a password: it is never printed."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
