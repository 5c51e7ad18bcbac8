"""What the consumer asks Kafka and the registry before Spark starts.

Spark itself waits long and complains in stack traces; here one sentence names what is wrong.
"""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.schemas.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spark_consumer.core.subscription import Subscription

__all__ = ["require_registry", "require_topics"]

_TIMEOUT_SECONDS = 10.0


def require_topics(
    bootstrap_servers: str,
    subscription: Subscription,
    *,
    options: Mapping[str, str] | None = None,
) -> None:
    """Raise UnreachableError without a broker, ConfigError without the stream's progress topic.

    Another prefix that begins with this one and a dot is refused too: its data topics could be
    taken for this one's.  `options` are librdkafka's; they may hold secrets.
    """
    settings: dict[str, str | int | float | bool] = {
        **(options or {}),
        "bootstrap.servers": bootstrap_servers,
        # librdkafka's own lines about a broker that does not answer would hide the sentence below.
        "log_level": 0,
    }
    try:
        client = AdminClient(settings)
    except KafkaException:
        # Its text may quote a value.
        message = "the Kafka client refuses the values of kafka_options"
        hint = "Look them up in librdkafka's CONFIGURATION.md"
        raise ConfigError(message, hint=hint, names=sorted(options or ())) from None
    try:
        topics = set(client.list_topics(timeout=_TIMEOUT_SECONDS).topics)
    except KafkaException as error:
        message = "no Kafka broker answers"
        hint = "Check bootstrap_servers, that the broker runs, and kafka_options (TLS, SASL)"
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


def require_registry(url: str, *, user_info: str = "") -> None:
    """Raise UnreachableError if nothing that speaks Confluent's API answers.

    `user_info` is `user:password`, or empty; ConfigError says that the registry wants another.
    """
    # The scheme is checked where the settings are.
    asked = urllib.request.Request(f"{url.rstrip('/')}/subjects")  # noqa: S310
    if user_info:
        encoded = base64.b64encode(user_info.encode()).decode()
        asked.add_unredirected_header("Authorization", f"Basic {encoded}")
    try:
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            answer.read(1)
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403):
            message = "the schema registry wants to know who asks, or refuses who does"
            hint = "Check registry_user_info"
            raise ConfigError(message, hint=hint, url=url, code=error.code) from error
        message = "the schema registry does not answer"
        hint = "Check registry_url, and that it speaks Confluent's API"
        cause = type(error).__name__
        raise UnreachableError(message, hint=hint, url=url, cause=cause) from error
