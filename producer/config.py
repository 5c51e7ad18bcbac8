"""The producer's settings: a TOML file, over it the environment, over it flags.

Frozen once read.  Every fault is reported at once, in one ConfigError that names the settings;
unknown names are faults, in the file and in the environment.  Secrets are never printed.  Stops at
`app`: whatever stands below gets plain values.
"""

from __future__ import annotations

import os
import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.topics import SLOTS_DEFAULT, TopicNames

__all__ = ["ENVIRONMENT_PREFIX", "ProducerConfig"]

ENVIRONMENT_PREFIX = "TIDEGATE_PRODUCER_"

_ID = re.compile(r"[a-z][a-z0-9-]*[a-z0-9]")
_PROJECT = re.compile(r"[a-z0-9.:-]*[a-z0-9]")
_STREAM = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,117}")
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NS_PER_SECOND = 1_000_000_000
_OWNED_KAFKA_OPTIONS = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "partitioner",
        "session.timeout.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)


class ProducerConfig(BaseSettings):
    """Every setting of `tidegate-producer run`; make one with `load`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENVIRONMENT_PREFIX,
        hide_input_in_errors=True,
        validate_default=True,
    )
    _file: ClassVar[Path | None] = None

    bootstrap_servers: str = Field(min_length=1, description="Kafka's host:port, comma-separated")
    registry_url: str = Field(
        pattern=r"^https?://", description="URL of a registry that speaks Confluent's API"
    )
    registry_user_info: SecretStr = Field(
        default=SecretStr(""), description="user:password for the registry, if it asks for them"
    )
    project: str = Field(description="Google Cloud project")
    instance: str = Field(description="Spanner instance")
    database: str = Field(description="Spanner database")
    change_stream: str = Field(description="Name as in CREATE CHANGE STREAM")
    database_role: str = Field(
        default="", description="Role for fine-grained access control; empty: none"
    )
    spanner_emulator_host: str = Field(
        default="",
        description="host:port of an emulator, in plaintext; else SPANNER_EMULATOR_HOST, if set",
    )
    prefix: str = Field(description="First part of every topic's name; one stream per prefix")
    worker: str = Field(
        default_factory=socket.gethostname,
        description=(
            "Stable name of this worker process, unique in the fleet: it ends the open transaction "
            "of the process that ran under it before"
        ),
    )
    slots: int = Field(
        default=SLOTS_DEFAULT,
        ge=1,
        le=1024,
        description="Topic partitions of the progress topic: the most workers that can share",
    )
    topic_partitions: int = Field(
        default=6, ge=1, le=10_000, description="Topic partitions of each new data topic"
    )
    replication_factor: int = Field(
        default=-1, ge=-1, description="Copies of each new topic; -1: the broker's default"
    )
    start: str = Field(default="now", description='Where a new stream begins: RFC 3339, or "now"')
    end: str = Field(default="", description="Where the stream ends: RFC 3339; empty: never")
    heartbeat_ms: int = Field(
        default=1_000,
        ge=100,
        le=300_000,
        description="How often a quiet stream partition tells its watermark",
    )
    commit_interval_ms: int = Field(
        default=250,
        ge=10,
        le=60_000,
        description="Time between Kafka transactions: shorter is fresher, longer is cheaper",
    )
    session_timeout_ms: int = Field(
        default=10_000,
        ge=6_000,
        le=1_800_000,
        description="After this silence of a worker the group gives its slots to others",
    )
    transaction_timeout_ms: int = Field(
        default=15_000,
        ge=1_000,
        le=900_000,
        description="How long a dead worker's open transaction may hold back readers",
    )
    inflight_bytes_max: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Bytes read and not yet committed; beyond, reading waits",
    )
    kafka_options: dict[str, SecretStr] = Field(
        default={}, description="Further options of the Kafka client (TLS, SASL); never printed"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log lines that are written"
    )
    metrics_port: int = Field(
        default=0, ge=0, le=65_535, description="Port on 127.0.0.1 for Prometheus; 0: none"
    )

    @classmethod
    def load(cls, file: Path | None = None, **flags: Any) -> ProducerConfig:
        """Read the settings; a flag that is None was not given.

        Raises ConfigError that names every fault.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        faults = [
            f"{name}: no such setting (in the environment)" for name in _unknown_variables(cls)
        ]
        if file is not None and not file.is_file():
            raise ConfigError(f"config: there is no file {file}")

        class _WithFile(cls):  # type: ignore[misc, valid-type]  # pydantic-settings wants a class
            _file = file

        config: ProducerConfig | None = None
        try:
            config = _WithFile(**given)
        except ValidationError as error:
            faults += [_fault(entry) for entry in error.errors(include_input=False)]
        except (ValueError, OSError) as error:
            # Text that is no TOML, or a variable that is no JSON.
            faults.append(f"settings that cannot be read: {error}")
        if faults or config is None:
            raise ConfigError(
                f"{len(faults)} faulty setting(s): {'; '.join(faults)}",
                hint="`tidegate-producer run --help` lists every setting",
            )
        return config

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags before the environment before the file."""
        if cls._file is None:
            return init_settings, env_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, cls._file)

    @field_validator("project", "instance", "database", "change_stream", "worker")
    @classmethod
    def _check_name(cls, value: str, info: Any) -> str:
        patterns = {"change_stream": _STREAM, "worker": _WORKER, "project": _PROJECT}
        # Database ids may hold underscores; instance ids may not.
        pattern = patterns.get(info.field_name, _ID)
        text = value.replace("_", "-") if info.field_name == "database" else value
        if not pattern.fullmatch(text):
            raise ValueError(f"{value!r} is no valid name here")
        return value

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        try:
            TopicNames(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return value

    @field_validator("start", "end")
    @classmethod
    def _check_instant(cls, value: str, info: Any) -> str:
        if value != {"start": "now", "end": ""}[info.field_name]:
            try:
                parse_rfc3339_ns(value)
            except SchemaError as error:
                raise ValueError(f"{value!r} is no time such as 2026-01-31T12:00:00Z") from error
        return value

    @field_validator("kafka_options")
    @classmethod
    def _check_kafka_options(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        owned = sorted(_OWNED_KAFKA_OPTIONS & value.keys())
        if owned:
            raise ValueError(f"{', '.join(owned)}: the guarantees rest on these; leave them out")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> ProducerConfig:
        end_ns = self.end_ns
        if end_ns is not None and self.start != "now" and end_ns < parse_rfc3339_ns(self.start):
            raise ValueError("end: is before start")
        if self.transaction_timeout_ms <= self.commit_interval_ms:
            raise ValueError("transaction_timeout_ms: must be longer than commit_interval_ms")
        return self

    @property
    def database_path(self) -> str:
        """The database's full name."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"

    @property
    def stream_path(self) -> str:
        """The change stream's full name, as `StreamStarted` records it."""
        return f"{self.database_path}/changeStreams/{self.change_stream}"

    @property
    def emulator_host(self) -> str:
        """`host:port` of an emulator or simulator; empty for the service."""
        return self.spanner_emulator_host or os.environ.get("SPANNER_EMULATOR_HOST", "")

    @property
    def end_ns(self) -> int | None:
        """The stream's end in nanoseconds since 1970, or None."""
        return parse_rfc3339_ns(self.end) if self.end else None

    def start_ns(self, *, now: datetime | None = None) -> int:
        """The stream's start in nanoseconds since 1970; `now` is for the setting of that name."""
        if self.start != "now":
            return parse_rfc3339_ns(self.start)
        elapsed = (now or datetime.now(UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        whole = elapsed.days * 86_400 + elapsed.seconds
        return whole * _NS_PER_SECOND + elapsed.microseconds * 1_000

    def kafka_client_options(self) -> dict[str, str]:
        """The further options in plain text, for the Kafka client and nobody else."""
        return {name: value.get_secret_value() for name, value in self.kafka_options.items()}

    def registry_client_options(self) -> dict[str, str]:
        """The registry client's further options in plain text, for it and nobody else."""
        user_info = self.registry_user_info.get_secret_value()
        return {"basic.auth.user.info": user_info} if user_info else {}


def _unknown_variables(config: type[ProducerConfig]) -> list[str]:
    """Return the variables that bear the prefix and name no setting: mostly typing errors."""
    known = {f"{ENVIRONMENT_PREFIX}{name}".upper() for name in config.model_fields}
    return sorted(
        name
        for name in os.environ
        if name.upper().startswith(ENVIRONMENT_PREFIX) and name.upper() not in known
    )


def _fault(entry: Any) -> str:
    """Return one line for one of pydantic's errors; the input is left out, it may be a secret."""
    name = ".".join(str(part) for part in entry["loc"])
    match entry["type"]:
        case "missing":
            flag, variable = f"--{name.replace('_', '-')}", f"{ENVIRONMENT_PREFIX}{name.upper()}"
            return f"{name}: is not set (flag {flag}, variable {variable}, or the file)"
        case "extra_forbidden":
            return f"{name}: no such setting"
        case _:
            text = entry["msg"].removeprefix("Value error, ")
            return f"{name}: {text}" if name else text
