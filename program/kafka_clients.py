"""Kafka clients made from settings, and the one probe of a broker."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.program.kafka_errors import is_decisive, kafka_failure
from tidegate.program.tokens import KafkaTokens
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topic_template import SETTING, TEMPLATE_DEFAULT
from tidegate.schemas.topics import TopicNames

_Client = TypeVar("_Client")
_PROBE_S = 10.0
_CALL_S = 1.0


def make_client(kind: Callable[[dict[str, Any]], _Client], config: Mapping[str, Any]) -> _Client:
    """Return a client; raises ConfigError with what librdkafka rejects about its options.

    Values are left out of the text, because any of them may be a secret.  Raises UnreachableError
    where a login needs a token and there is none.
    """
    if isinstance(tokens := config.get("oauth_cb"), KafkaTokens):
        tokens.prepare()
    try:
        return kind(dict(config))
    except (KafkaException, ValueError, TypeError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        for value in sorted(map(str, config.values()), key=len, reverse=True):
            # As a word, but not as a part of an option's name, such as `ssl.key.location`.
            word = rf"(?<![\w.]){re.escape(value)}(?!\.?\w)"
            text = re.sub(word, "***", text) if value else text
        raise ConfigError(
            f"kafka_options: the Kafka client rejects them: {text}",
            hint="Check names and values against librdkafka's CONFIGURATION.md",
        ) from None


def admin_config(
    bootstrap_servers: str, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an admin client's options: it writes no lines, since its calls raise their errors.

    A logger is left out: lines for it would pile up, as nothing polls an admin client.
    """
    given = {name: value for name, value in (options or {}).items() if name != "logger"}
    return {**given, "bootstrap.servers": bootstrap_servers, "log_level": 0}


def list_topics(
    bootstrap_servers: str,
    options: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = _PROBE_S,
    now: Callable[[], float] = time.monotonic,
) -> frozenset[str]:
    """Return the topics that this principal may see; blocks for `timeout_s` at most.

    Raises ConfigError for a login, TLS settings or options that the broker or client rejects, and
    UnreachableError if no broker answers.
    """
    reported: list[KafkaError] = []
    client = make_client(
        AdminClient,
        {**admin_config(bootstrap_servers, options), "error_cb": reported.append},
    )
    give_up_at = now() + timeout_s
    while True:
        try:
            return frozenset(client.list_topics(timeout=min(_CALL_S, timeout_s)).topics)
        except KafkaException as error:
            client.poll(0)  # hands over what it has reported
            if now() >= give_up_at or any(map(is_decisive, reported)):
                raise kafka_failure(
                    error.args[0], bootstrap_servers=bootstrap_servers, reported=reported
                ) from error


def require_own_prefix(names: TopicNames, topics: Iterable[str]) -> None:
    """Raise ConfigError if a stream exists whose data topics could be taken for this one's."""
    overlapping = names.overlapping(topics)
    if overlapping:
        message = f"prefix: {names.prefix!r} and the prefix of another stream continue each other"
        hint = "Use another prefix: some data topics would belong to both streams"
        if names.template != TEMPLATE_DEFAULT:
            hint = hint.replace(":", f", or another {SETTING} than {names.template}:")
        raise ConfigError(message, hint=hint, topics=overlapping)
