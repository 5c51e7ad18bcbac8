"""Settings of the consumer: TOML file < environment (`TIDEGATE_CONSUMER_…`) < flags.

Read as `tidegate.schemas.settings` says.  None of them enters a plan or a batch's identity: a
replay obeys what was decided, whatever the settings say by then.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict

from tidegate.schemas.settings_stream import StreamSettings

__all__ = ["KAFKA_OPTIONS", "ConsumerConfig"]

KAFKA_OPTIONS = frozenset(
    {
        # Translated for Spark's client, which is Java's.
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        # The same words for both clients.
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)
"""Closed: an option that only one of the two clients knows would be dropped in silence."""


class ConsumerConfig(StreamSettings):
    """What a run of the consumer needs to know; make one with `load`."""

    model_config = SettingsConfigDict(env_prefix="TIDEGATE_CONSUMER_")
    help_command: ClassVar[str] = "tidegate-consumer run --help"
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset(
        {
            "auto.offset.reset",
            "bootstrap.servers",
            "enable.auto.commit",
            "group.id",
            "isolation.level",
            "metadata.broker.list",
        }
    )

    output: str = Field(min_length=1, description="Folder of the tables and release manifests")
    checkpoint: str = Field(min_length=1, description="Folder of the state; one run at a time")
    changes_per_batch_max: int = Field(
        default=250_000, ge=1, description="Changes read per batch; bounds a batch's memory"
    )
    trigger_interval_ms: int = Field(
        default=0, ge=0, description="Time between the starts of batches; 0: none"
    )
    release_rows_max: int = Field(
        default=500_000, ge=1, description="Changes per release, about; bounds one task's sort"
    )
    until: Literal["", "caught-up"] = Field(
        default="",
        description="caught-up: stop when the watermark has passed the run's begin; empty: never",
    )
    master: str = Field(default="local[*]", description="Spark master, for a session of our own")
    jars: str = Field(
        default="", description="Jars for a session of our own, comma-separated; empty: none"
    )
    java_options: str = Field(
        default="", description="Options of the JVM of a session of our own; empty: Java's defaults"
    )

    @field_validator("kafka_options")
    @classmethod
    def _refuse_unknown(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        unknown = sorted(value.keys() - KAFKA_OPTIONS - cls.owned_kafka_options)
        if unknown:
            raise ValueError(
                f"{', '.join(unknown)}: not an option that the consumer can give to Spark's "
                "client too; docs/operations.md lists those"
            )
        return value
