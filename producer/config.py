"""The producer's settings: a TOML file, overridden by the environment, overridden by flags.

`tidegate.program.settings` reads them.  Only `cli` uses them; modules below get plain values.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from tidegate.producer.source_config import SourceSettings, listed
from tidegate.program.settings_stream import KAFKA_PANEL, LOG_PANEL
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.progress import PROGRESS_VERSION, TimestampForm
from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.schemas.topics import SLOTS_DEFAULT, TopicNames, TopicTemplate

_MOD_TYPES = ("insert", "update", "delete")
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_INSTANTS_END_NS = 1 << 63

_OWNED_KAFKA_OPTIONS = """
acks allow.auto.create.topics auto.commit.* auto.offset.reset bootstrap.servers
delivery.report.only.error delivery.timeout.ms dr_cb dr_msg_cb enable.auto.commit
enable.auto.offset.store enable.gapless.guarantee enable.idempotence enable.partition.eof
error_cb group.* heartbeat.interval.ms isolation.level message.max.bytes message.timeout.ms
metadata.broker.list on_delivery partition.assignment.strategy partitioner
produce.offset.report queuing.strategy request.required.acks session.timeout.ms test.mock.*
topic.blacklist transaction.timeout.ms transactional.id
"""
"""Options of the Kafka client that the producer sets itself; `*` matches any text."""


class ProducerConfig(SourceSettings):
    """Every setting of `tidegate-producer run`; created by `load`."""

    model_config = SettingsConfigDict(env_prefix="TIDEGATE_PRODUCER_")
    help_command: ClassVar[str] = "tidegate-producer run --help"
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset(_OWNED_KAFKA_OPTIONS.split())
    list_separators: ClassVar[Mapping[str, str]] = {
        **SourceSettings.list_separators,
        "backfill": ",",
        "tables": ",",
        "tables_left_out": ",",
        "columns_left_out": ",",
        "mod_types": ",",
        "tags_left_out": ";",
    }
    panels: ClassVar[Mapping[str, str]] = {
        "Spanner": (
            "project instance database change_stream database_role credentials_file "
            "spanner_endpoint spanner_ca_file spanner_client_cert spanner_client_key "
            "spanner_emulator_host query_transport rpc_priority request_tag directed_reads "
            "heartbeat_ms"
        ),
        "Kafka": (
            f"{KAFKA_PANEL} slots topic_partitions replication_factor progress_version "
            "progress_history_hours"
        ),
        "What is published": (
            "start backfill end until tables tables_left_out columns_left_out mod_types "
            "tags_left_out system_transactions_left_out timestamps envelope value_format "
            "key_format tombstones poison"
        ),
        "Workers and limits": (
            "worker commit_interval_ms session_timeout_ms transaction_timeout_ms leave_on_stop "
            "open_queries_max drift_ms_max inflight_bytes_max"
        ),
        "Logs and metrics": f"{LOG_PANEL} metrics_details",
    }

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
        description="Topic partitions of the progress topic; more workers than this are idle",
    )
    topic_partitions: int = Field(
        default=6, ge=1, le=10_000, description="Topic partitions of each new data topic"
    )
    replication_factor: int = Field(
        default=-1, ge=-1, description="Copies of each new topic; -1: the broker's default"
    )
    start: str = Field(default="now", description='Where a new stream begins: RFC 3339, or "now"')
    backfill: str = Field(
        default="", description=(
            "Tables whose rows of the stream's start are published before its changes, "
            "comma-separated; `*`: all that are published. It matters when a stream begins"
        ),
    )  # fmt: skip
    end: str = Field(default="", description="Where the stream ends: RFC 3339; empty: never")
    until: Literal["", "ended"] = Field(
        default="", description=(
            "ended: a worker of a stream with an `end` stops with exit code 0 once all of the "
            "stream is published; empty: it stays"
        ),
    )  # fmt: skip
    heartbeat_ms: int = Field(
        default=1_000,
        ge=100,
        le=300_000,
        description="How often a stream partition without changes reports its watermark",
    )
    progress_version: int = Field(
        default=PROGRESS_VERSION, ge=1, le=PROGRESS_VERSION, description=(
            "Version of the progress records; 1 for as long as a reader of version 1 follows"
        ),
    )  # fmt: skip
    poison: Literal["stop", "park"] = Field(
        default="stop", description=(
            "A change that cannot be published: it stops its stream partition, or is parked in the "
            "dead-letter topic, with all later changes of its key. To park needs "
            "`progress_version` 2"
        ),
    )  # fmt: skip
    tables: str = Field(
        default="", description=(
            "Tables that are published, comma-separated, `*` for any text; empty: all that the "
            "change stream watches. This and the five settings below are fixed when the stream "
            "begins"
        ),
    )  # fmt: skip
    tables_left_out: str = Field(
        default="", description="Tables that are not published, comma-separated, `*` for any text"
    )
    columns_left_out: str = Field(
        default="", description=(
            "Columns that are not published, as table.column, comma-separated, `*` for any text; "
            "none of a primary key"
        ),
    )  # fmt: skip
    mod_types: str = Field(
        default="insert,update,delete",
        description="Kinds of changes that are published, comma-separated",
    )
    tags_left_out: str = Field(
        default="", description=(
            "Tags of transactions that are not published, semicolon-separated (a tag may have "
            "commas), `*` for any text"
        ),
    )  # fmt: skip
    system_transactions_left_out: bool = Field(
        default=False,
        description="Whether the system's own transactions, such as TTL's, are left out",
    )
    timestamps: Literal["micros", "string"] = Field(
        default="micros", description=(
            "How TIMESTAMP columns are carried: as whole microseconds, so that a value with "
            "nanoseconds cannot be published, or as RFC 3339 text. Fixed when the stream begins; "
            "as text it needs `progress_version` 2"
        ),
    )  # fmt: skip
    envelope: Literal["tidegate", "flat", "debezium", "datastream"] = Field(
        default="tidegate", description=(
            "What a value is: a change with the row before and after it; one flat row with fields "
            "such as __op and __deleted behind its columns, as unwrapped Debezium records have "
            "them; what Debezium's connector for Spanner writes; or an event of Google's "
            "Datastream. The Spark consumer reads `tidegate` alone. Fixed when the stream begins"
        ),
    )  # fmt: skip
    value_format: Literal["avro", "json"] = Field(
        default="avro", description=(
            "How values are written: in Avro, framed, under schemas of the registry; or as JSON "
            "text, with the envelopes `debezium` and `datastream`. Fixed when the stream begins"
        ),
    )  # fmt: skip
    key_format: Literal["avro", "json"] = Field(
        default="avro", description=(
            "How keys are written: in Avro, framed; or as JSON text, as Debezium's JSON converter "
            "without schemas does, with `envelope` `debezium` and `value_format` `json`. Fixed "
            "when the stream begins"
        ),
    )  # fmt: skip
    tombstones: bool = Field(
        default=False, description=(
            "Whether each DELETE is followed by a record with its key and no value, by which "
            "compacted topics and sinks that keep the newest value of a key forget the row. Fixed "
            "when the stream begins"
        ),
    )  # fmt: skip
    progress_history_hours: int = Field(
        default=168, ge=1, le=87_600, description=(
            "How far back the progress topic keeps a watermark for each minute, for late readers"
        ),
    )  # fmt: skip
    metrics_details: bool = Field(
        default=False, description=(
            "Whether /readyz and /errors show the texts of errors, which may hold keys, values of "
            "rows and names of databases; else their classes. The port has no login"
        ),
    )  # fmt: skip
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
        description="After so long without a heartbeat from a worker, its slots go to others",
    )
    leave_on_stop: bool = Field(
        default=False,
        description=(
            "Whether a worker that is stopped (SIGTERM) leaves the group, so that others have its "
            "slots in seconds; else it keeps its place for `session_timeout_ms`, as a rolling "
            "restart needs"
        ),
    )
    transaction_timeout_ms: int = Field(
        default=15_000,
        ge=1_000,
        le=900_000,
        description="How long a dead worker's open transaction may hold back readers",
    )
    open_queries_max: int = Field(
        default=10_000,
        ge=1,
        le=100_000,
        description=(
            "Change stream queries that one worker runs at the same time; further stream "
            "partitions are queued, and the one that is furthest behind is read first"
        ),
    )
    drift_ms_max: int = Field(
        default=0,
        ge=0,
        le=86_400_000,
        description=(
            "How far ahead of the fleet's slowest stream partition another one is read: beyond "
            "it, it is paused; 0: as far as it goes. At least ten times `heartbeat_ms`. Each "
            "worker then reads the whole progress topic"
        ),
    )
    inflight_bytes_max: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description=(
            "Bytes received and not yet committed, above which reading waits; a message that is "
            "being decoded counts eightfold; 4 KiB for each open query and 4 MiB come on top"
        ),
    )

    @field_validator("worker")
    @classmethod
    def _check_worker(cls, value: str) -> str:
        if (value or cls.needs_source) and not _WORKER.fullmatch(value):
            raise ValueError(f"{value!r} is not a valid name")
        return value

    @field_validator("start", "end")
    @classmethod
    def _check_instant(cls, value: str, info: Any) -> str:
        if value != {"start": "now", "end": ""}[info.field_name]:
            try:
                instant_ns = parse_rfc3339_ns(value)
            except SchemaError as error:
                raise ValueError(f"{value!r} is not a time such as 2026-01-31T12:00:00Z") from error
            if not 0 <= instant_ns < _INSTANTS_END_NS:
                # Progress records hold 64-bit nanoseconds, order keys nothing before 1970.
                raise ValueError(f"{value!r} is not between 1970-01-01 and 2262-04-11")
        return value

    @field_validator("mod_types")
    @classmethod
    def _check_mod_types(cls, value: str) -> str:
        unknown = sorted(set(listed(value.lower())) - set(_MOD_TYPES))
        if unknown or not listed(value):
            shown = ", ".join(unknown) or "nothing"
            raise ValueError(f"{shown} is not a kind of change: insert, update, delete")
        return value

    @field_validator("columns_left_out")
    @classmethod
    def _check_columns(cls, value: str) -> str:
        wrong = [pattern for pattern in listed(value) if "." not in pattern]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not table.column")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> ProducerConfig:
        start_ns, end_ns = self.start_ns, self.end_ns
        if start_ns is not None and end_ns is not None and end_ns < start_ns:
            raise ValueError("end: is before start")
        if self.until and end_ns is None:
            raise ValueError("until: the stream has no end: set end, or leave it out")
        if 0 < self.drift_ms_max < 10 * self.heartbeat_ms:
            raise ValueError("drift_ms_max: must be 0 or at least ten times heartbeat_ms")
        if self.poison == "park" and self.progress_version == 1:
            raise ValueError('poison: "park" needs progress_version 2, which records parked keys')
        if self.files is not None and self.progress_version == 1:
            raise ValueError('source: "datastream" needs progress_version 2 or later')
        if self.files is not None and self._leaves_out(SOURCE_ORDER):
            raise ValueError(
                f"columns_left_out: {SOURCE_ORDER} says which change of a row is the newest: "
                "a mirror without it would be wrong"
            )
        if self.timestamps == "string" and self.progress_version == 1:
            raise ValueError('timestamps: "string" needs progress_version 2, which records it')
        if self.value_format == "json" and self.envelope not in {"debezium", "datastream"}:
            raise ValueError(
                'value_format: "json" needs envelope "debezium" or "datastream"; this one is '
                f'"{self.envelope}"'
            )
        if self.key_format == "json" and (self.envelope, self.value_format) != ("debezium", "json"):
            raise ValueError(
                'key_format: "json" needs envelope "debezium" and value_format "json"; these are '
                f'"{self.envelope}" and "{self.value_format}"'
            )
        if self.transaction_timeout_ms <= self.commit_interval_ms:
            raise ValueError("transaction_timeout_ms: must be longer than commit_interval_ms")
        return self

    @property
    def topic_names(self) -> TopicNames:
        """The names of the stream's topics, with the database's id in them."""
        template = TopicTemplate.parse(self.topic_template, database=self.database)
        return TopicNames(self.prefix, template.text)

    def _leaves_out(self, column: str) -> bool:
        """Whether the settings may leave out a column of some table."""
        patterns = [pattern.rpartition(".")[2] for pattern in listed(self.columns_left_out)]
        return any(fnmatchcase(column, pattern.casefold()) for pattern in patterns)

    @property
    def timestamp_form(self) -> TimestampForm:
        """The setting `timestamps`, as `StreamStarted` records it."""
        return TimestampForm(self.timestamps.upper())

    @property
    def end_ns(self) -> int | None:
        """The stream's end in nanoseconds since 1970, or None."""
        return parse_rfc3339_ns(self.end) if self.end else None

    @property
    def start_ns(self) -> int | None:
        """The stream's start in nanoseconds since 1970, or None to start now."""
        return None if self.start == "now" else parse_rfc3339_ns(self.start)


DISCOVER_FLAGS = (
    "project",
    "instance",
    "database",
    "change_stream",
    "database_role",
    "spanner_emulator_host",
    "spanner_endpoint",
    "spanner_ca_file",
    "spanner_client_cert",
    "spanner_client_key",
    "credentials_file",
    "log_level",
    "log_format",
)
"""The settings that are flags of `discover`."""


def _may_be_missing(name: str) -> Any:
    return Field(default="", description=ProducerConfig.model_fields[name].description)


class FleetConfig(ProducerConfig):
    """Settings of a command that reads a fleet's topics: those of Kafka and the registry.

    If they name the stream's source, it is compared with the recorded stream.
    """

    needs_source: ClassVar[bool] = False

    project: str = _may_be_missing("project")
    instance: str = _may_be_missing("instance")
    database: str = _may_be_missing("database")
    change_stream: str = _may_be_missing("change_stream")


class DiscoverConfig(ProducerConfig):
    """Settings that name a database."""

    help_command: ClassVar[str] = "tidegate-producer discover --help"

    bootstrap_servers: str = Field(default="", description="Not used")
    registry_url: str = Field(default="", description="Not used")
    prefix: str = Field(default="discover", description="Not used")
    change_stream: str = Field(
        default="", description="Change stream to look at; empty: all of the database"
    )

    @field_validator("project", "instance", "database", "change_stream")
    @classmethod
    def _check_name(cls, value: str, info: Any) -> str:
        if info.field_name == "change_stream" and not value:
            return value
        return super()._check_name(value, info)

    @field_validator("worker")
    @classmethod
    def _check_worker(cls, value: str) -> str:
        return super()._check_worker(value) if value else value
