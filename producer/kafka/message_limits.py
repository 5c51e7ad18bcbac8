"""The largest message that each topic accepts, read from Kafka's configuration.

A limit is the smallest of three: the topic's `max.message.bytes` (or, if it has none, the brokers'
`message.max.bytes`), its `segment.bytes`, and the brokers' `socket.request.max.bytes`.  For values
that a principal may not describe, or a Kafka service does not report, Kafka's default is used, with
a log line.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tidegate.program.kafka_clients import admin_config, make_client
from tidegate.program.kafka_errors import is_denied, is_unsupported, kafka_failure
from tidegate.schemas.errors import ConfigError, UnreachableError

PROGRESS_BYTES_MIN = 512 * 1024
"""The least limit of the progress topic: `docs/protocol.md`, 5.5."""

_CALL_TIMEOUT_S = 10.0
_REQUEST_OVERHEAD_BYTES = 16 * 1024
"""The bytes of a produce request in addition to its one batch."""
_TOPIC_DEFAULTS = {"max.message.bytes": 1_048_588, "segment.bytes": 1 << 30}
_BROKER_DEFAULTS = {"socket.request.max.bytes": 100 << 20}
_log = structlog.get_logger()


class KafkaMessageLimits:
    """The last read limits of one worker's topics; port: `ports.MessageLimits`.

    Any thread may use it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Iterable[str],
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; nothing is known before `refresh`."""
        self._bootstrap_servers = bootstrap_servers
        self._topics = sorted(topics)
        self._config = admin_config(bootstrap_servers, options)
        self._lock = threading.Lock()
        self._limits: dict[str, int] = {}
        self._is_noted = False

    def bytes_max(self, topic: str) -> int:
        """Return a topic's limit; Kafka's default for an unknown topic."""
        return self._limits.get(topic, _TOPIC_DEFAULTS["max.message.bytes"])

    @property
    def smallest(self) -> int:
        """The smallest limit of all topics."""
        return min(map(self.bytes_max, self._topics))

    @property
    def largest(self) -> int:
        """The largest limit of all topics."""
        return max(map(self.bytes_max, self._topics))

    def add(self, topic: str) -> None:
        """Read the limits of one more topic, and of all others again; raises as `refresh` does."""
        with self._lock:
            if topic not in self._topics:
                self._topics = sorted([*self._topics, topic])
        self.refresh()

    def refresh(self) -> None:
        """Read the limits again; blocks for at most some seconds.

        Raises UnreachableError if no broker answers; then the earlier limits stay in use.
        """
        with self._lock:
            self._limits = self._read()

    def require(self, topic: str, bytes_min: int) -> None:
        """Raise ConfigError if a topic accepts no message of `bytes_min`."""
        if self.bytes_max(topic) < bytes_min:
            raise ConfigError(
                f"topic {topic} takes messages of {self.bytes_max(topic)} bytes at most",
                hint=f"Set its max.message.bytes to {bytes_min} or more",
            )

    # ------------------------------------------------------------ inside

    def _read(self) -> dict[str, int]:
        admin = make_client(AdminClient, self._config)
        try:
            brokers = admin.list_topics(timeout=_CALL_TIMEOUT_S).brokers
        except KafkaException as error:
            raise self._failure(error) from error
        topics = [ConfigResource(ResourceType.TOPIC, topic) for topic in self._topics]
        settings = self._describe(admin, topics, _TOPIC_DEFAULTS)
        nodes = [ConfigResource(ResourceType.BROKER, str(number)) for number in brokers]
        of_brokers = self._describe(admin, nodes, _BROKER_DEFAULTS)
        limits = [value["socket.request.max.bytes"] for value in of_brokers.values()]
        request = min(limits, default=_BROKER_DEFAULTS["socket.request.max.bytes"])
        return {
            topic: min(*values.values(), request - _REQUEST_OVERHEAD_BYTES)
            for topic, values in settings.items()
        }

    def _describe(
        self, admin: AdminClient, resources: list[ConfigResource], defaults: dict[str, int]
    ) -> dict[str, dict[str, int]]:
        """Return the values of each resource that `defaults` names."""
        values: dict[str, dict[str, int]] = {}
        for resource, answer in admin.describe_configs(
            resources, request_timeout=_CALL_TIMEOUT_S
        ).items():
            limits = dict(defaults)
            try:
                entries = answer.result()
            except KafkaException as error:
                self._accept_or_raise(error, str(resource.name))
            else:
                limits = self._numbers(entries, defaults, str(resource.name))
            values[str(resource.name)] = {**defaults, **limits}
        return values

    def _numbers(
        self, entries: Mapping[str, Any], defaults: Iterable[str], name_of_resource: str
    ) -> dict[str, int]:
        """Return the named entries that are numbers; some services answer with null values."""
        limits: dict[str, int] = {}
        for name in defaults:
            value = entries[name].value if name in entries else None
            try:
                limits[name] = int(value or "")
            except ValueError:
                self._note_unknown(name_of_resource, cause=f"{name} is {value!r}")
        return limits

    def _accept_or_raise(self, error: KafkaException, name: str) -> None:
        """Use the defaults for a configuration that cannot be described; raise other errors."""
        reason: KafkaError = error.args[0]
        is_missing = reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if not (is_denied(reason) or is_unsupported(reason) or is_missing):
            raise self._failure(error) from error
        self._note_unknown(name, cause=reason.str())

    def _note_unknown(self, resource: str, *, cause: str) -> None:
        """Log once that a default is used."""
        if not self._is_noted:
            self._is_noted = True
            _log.warning("message limits unknown", of=resource, cause=cause)

    def _failure(self, error: KafkaException) -> ConfigError | UnreachableError:
        return kafka_failure(
            error.args[0],
            bootstrap_servers=self._bootstrap_servers,
            attempt="cannot read the topics' limits",
        )
