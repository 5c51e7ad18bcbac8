"""Settings of the consumer: TOML file < environment (`TIDEGATE_CONSUMER_…`) < flags.

`tidegate.program.settings` reads them.  No setting is part of a plan or of a batch's identity: a
replay follows its plan, also when the settings have changed since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from tidegate.program.settings_stream import KAFKA_PANEL, LOG_PANEL, StreamSettings, flat_options
from tidegate.program.spark_versions import installed_line
from tidegate.program.tokens import AWS, GOOGLE, NO_LOGIN
from tidegate.schemas.change_schema import (
    EXCLUSIONS,
    TRANSACTIONS_LEFT_OUT,
    UNWATCHED_COLUMNS,
)
from tidegate.spark_consumer.kafka.client_options import (
    REFUSED_OPTIONS,
    librdkafka_options,
    refusals,
)

_MIB = 1024**2
_VACUUM_HOURS_MIN = 24
_FILES_MIN = 2

_OWN_PROPERTIES = frozenset(
    {
        "delta.appendOnly",
        "delta.columnMapping.mode",
        "delta.dataSkippingStatsColumns",
        "delta.setTransactionRetentionDuration",
    }
)
"""Properties that exactly-once, or readers of every version, rest on."""


def names_in(text: str) -> tuple[str, ...]:
    """Return the names in a setting that is a list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


SINKS = (
    "changelog",
    "mirror",
    "history",
    "parquet",
    "iceberg_changelog",
    "iceberg_mirror",
    "topic",
    "transactions",
    "parquet_transactions",
    "datastream_files",
    "changelog_by_key",
    "mirror_by_key",
    "parquet_by_key",
)
"""The sinks that settings name, in the order in which releases are written to them."""

SPARK_PACKAGES: str = installed_line().packages
"""Maven coordinates of the data sources that the installed Spark does not ship, tested together."""

ICEBERG_PACKAGES: str = installed_line().iceberg_packages
"""Packages that the Iceberg sinks need in addition: 47 MB, which a session has only on request.

Empty where Iceberg has no runtime for the installed Spark.
"""


def spark_packages() -> str:
    """Return `SPARK_PACKAGES`; the page of the settings knows this default by the function."""
    return SPARK_PACKAGES


ICEBERG_RUNTIME = "iceberg-spark-runtime"
"""The prefix of the Iceberg packages that a session needs."""

LOGIN_PACKAGES = {
    GOOGLE: "com.google.cloud.hosted.kafka:managed-kafka-auth-login-handler:1.0.6",
    AWS: "software.amazon.msk:aws-msk-iam-auth:2.4.0",
}
"""What Spark's Kafka client needs for the tokens of `kafka_login`."""

LEFT_OUT_PACKAGES = "io.confluent:kafka-schema-registry-client"
"""A dependency of Google's handler that Maven Central does not have, and the login does not use."""

_ICEBERG = ("iceberg_changelog", "iceberg_mirror")

_SCHEMA = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


class ConsumerConfig(StreamSettings):
    """The settings of a run of the consumer; made by `load`."""

    model_config = SettingsConfigDict(env_prefix="TIDEGATE_CONSUMER_")
    help_command: ClassVar[str] = "tidegate-consumer run --help"
    list_separators: ClassVar[Mapping[str, str]] = {
        **StreamSettings.list_separators,
        "mirror_partition_by": ",",
        "mirror_cluster_by": ",",
        "sinks": ",",
        "mirror_accepts": ",",
        "packages": ",",
        "jars": ",",
    }
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset(REFUSED_OPTIONS)
    panels: ClassVar[Mapping[str, str]] = {
        "Kafka": KAFKA_PANEL,
        "Output": (
            "output checkpoint sinks until take_over on_mismatch on_bad_record catalog_schema "
            "releases_kept compact_files_min target_file_bytes vacuum_retention_hours "
            "vacuum_interval_ms"
        ),
        "Sinks": (
            "mirror_interval_ms mirror_accepts history_prefix iceberg_catalog iceberg_namespace "
            "ordered_topic ordered_topic_order ordered_topic_partitions ordered_topic_timeout_ms "
            "datastream_files_format datastream_files_rows_max datastream_files_bytes_max"
        ),
        "Limits": (
            "changes_per_batch_max bytes_per_batch_max trigger_interval_ms idle_interval_ms "
            "release_rows_max release_bytes_max small_release_rows_max small_release_bytes_max"
        ),
        "Spark": "master packages jars java_options",
        "Logs and metrics": LOG_PANEL,
    }

    compact_files_min: int = Field(
        default=32,
        ge=0,
        description="Small files of a table that are rewritten as one, in order; 0: never",
    )
    target_file_bytes: int = Field(
        default=32 * _MIB,
        ge=_MIB,
        description="Size up to which files are rewritten as one; a batch rewrites no more than "
        "this, in memory of about eight times as much",
    )
    vacuum_retention_hours: int = Field(
        default=0,
        ge=0,
        description="Age after which files that were replaced are deleted, at least 24; as_of "
        "reads no further back. 0: never",
    )
    vacuum_interval_ms: int = Field(
        default=86_400_000, ge=60_000, description="Time between two such deletions"
    )
    table_properties: dict[str, str] = Field(
        default={}, description="Delta's properties of new tables, by Delta's names"
    )
    mirror_partition_by: dict[str, str] = Field(
        default={},
        description="Columns that a new mirror is partitioned by, comma-separated, by table",
    )
    mirror_cluster_by: dict[str, str] = Field(
        default={},
        description="Columns that a new mirror is clustered by (liquid clustering), likewise",
    )
    output: str = Field(min_length=1, description="Folder of the tables and release manifests")
    sinks: str = Field(
        default="changelog,mirror",
        description="What releases are written to, comma-separated: changelog, mirror, history, "
        "parquet, iceberg_changelog, iceberg_mirror, topic, transactions, parquet_transactions, "
        "datastream_files; "
        "without waiting for the watermark, in the order of each key: changelog_by_key, "
        "mirror_by_key, parquet_by_key. "
        "One that is added later takes part from the next release on, a mirror or history with "
        "all before; mirror_by_key cannot be added later; none can be taken away",
    )
    ordered_topic: str = Field(
        default="",
        validate_default=True,
        description="Topic of the sink topic, to which all changes are published in commit order; "
        "<topic>-releases is its second one",
    )
    ordered_topic_order: Literal["total", "key", "transaction"] = Field(
        default="total",
        description="total: one topic partition, in commit order; key: any number of them, in "
        "commit order for each key; transaction: as total, with a record for each transaction",
    )
    ordered_topic_partitions: int = Field(
        default=1,
        ge=1,
        validate_default=True,
        description="Topic partitions that the ordered topic is created with if it is missing",
    )
    ordered_topic_timeout_ms: int = Field(
        default=300_000,
        ge=10_000,
        le=2**31 - 1,
        description="Time in which a release must be published: it is one Kafka transaction. "
        "Longer for a first release with many millions of backfilled rows; brokers allow up to "
        "transaction.max.timeout.ms, 15 minutes by default",
    )
    datastream_files_format: Literal["avro", "jsonl", "jsonl.gz"] = Field(
        default="avro",
        description="Form of the files of the sink datastream_files: avro; jsonl, a JSON object "
        "per line; jsonl.gz, that with gzip. A release that has begun keeps its own",
    )
    datastream_files_rows_max: int = Field(
        default=100_000,
        ge=1,
        description="Changes after which a file of the sink datastream_files ends",
    )
    datastream_files_bytes_max: int = Field(
        default=16 * 1024**2,
        ge=1,
        le=256 * 1024**2,
        description="Bytes of the values in Kafka after which it ends too; a file has about twice "
        "as many in Avro, six times in JSON",
    )
    catalog_schema: str = Field(
        default="",
        description="Schema of Spark's catalog, such as lake.bank, in which tables get names: "
        "mirrors in it, changelogs in lake.bank_changelog, histories in lake.bank_history; "
        "empty: none",
    )
    iceberg_catalog: str = Field(
        default="",
        pattern=r"^\w*$",
        description="Catalog of the session that holds the Iceberg tables, which "
        "spark.sql.catalog.<name> configures; empty: a Hadoop catalog in <output>/iceberg",
    )
    iceberg_namespace: str = Field(
        default="",
        pattern=r"^[^`./]*(\.[^`./]+)*$",
        description="Namespace of the Iceberg tables, to which _changelog, _mirror and _incomplete "
        "are appended; empty: prefix, with an underscore for what is no letter or digit",
    )
    checkpoint: str = Field(min_length=1, description="Folder of the state; one run at a time")
    changes_per_batch_max: int = Field(
        default=250_000, ge=1, description="Changes read per batch; bounds a batch's memory"
    )
    bytes_per_batch_max: int = Field(
        default=1024**3,
        ge=1,
        description="Bytes of keys and values read per batch, about: where changes are wide, the "
        "query is started again with fewer per batch",
    )
    trigger_interval_ms: int = Field(
        default=0,
        ge=0,
        description="Time between the starts of batches; 0: none. A longer one makes fewer and "
        "larger batches, and releases later",
    )
    idle_interval_ms: int = Field(
        default=10_000,
        ge=0,
        description="Time between batches while no changes come and none waits for its release; a "
        "change ends it at once. 0: none, as where trigger_interval_ms is set",
    )
    release_rows_max: int = Field(default=500_000, ge=1, description="Changes per release, about")
    release_bytes_max: int = Field(
        default=512 * 1024**2,
        ge=1,
        description="Bytes of keys and values per release, about: wide rows give more releases",
    )
    small_release_rows_max: int = Field(
        default=10_000,
        ge=0,
        description="Changes up to which a release is written without Spark, where delta-rs "
        "(deltalake, pyarrow) is installed and output is on this machine; 0: never",
    )
    small_release_bytes_max: int = Field(
        default=16 * 1024**2, ge=1, description="Bytes of their keys and values, likewise"
    )
    releases_kept: int = Field(
        default=100_000,
        ge=0,
        description="Release manifests that are kept, about: as_of knows no older release; 0: all",
    )
    mirror_interval_ms: int = Field(
        default=10_000,
        ge=0,
        description="Time between two merges of the mirrors, at least: they take all releases of "
        "that time at once; 0: each by itself",
    )
    mirror_accepts: str = Field(
        default="",
        description="Options of the change stream by which it leaves changes out, such as "
        f"exclude_ttl_deletes, and {UNWATCHED_COLUMNS}, comma-separated: mirrors are written in "
        "spite of them; without this the run ends with FilteredMirror",
    )
    history_prefix: str = Field(
        default="",
        pattern=r"^([a-z_][a-z0-9_]*)?$",
        description="Begin of the names of the columns that a history adds, such as dbt_ for "
        "dbt_valid_from, dbt_valid_to and dbt_is_current; fixed when the output begins",
    )
    until: Literal["", "caught-up"] = Field(
        default="",
        description="caught-up: stop when the watermark has passed the run's begin; empty: never",
    )
    on_mismatch: Literal["stop", "record"] = Field(
        default="stop",
        description="What follows where a transaction has not as many records as they state, or a "
        "stream partition not the changes that its marker states. stop: the run ends with "
        "TransactionIncomplete or StreamPartitionIncomplete before anything of the release is "
        "written; record: it is written, and its manifest, the log and status say so",
    )
    on_bad_record: Literal["stop", "dead_letter"] = Field(
        default="stop",
        description="What follows where a record of a data topic is no change: it has no order "
        "key, names a schema that is not one of its topic, or cannot be decoded. stop: the run "
        "ends with UnorderedChange, UnknownSchema or UndecodableRecord; dead_letter: the record "
        "goes to the table dead_letters of the output, with the reason. If it was a change, that "
        "is missing, and on_mismatch says what follows",
    )
    take_over: bool = Field(
        default=False,
        description="Take the checkpoint at once from a run that works on it, instead of standing "
        "by until that run has ended",
    )
    master: str = Field(default="local[*]", description="Spark master; not under spark-submit")
    packages: str = Field(
        default_factory=spark_packages,
        description="Maven coordinates that Spark fetches before it starts, comma-separated; "
        "not under spark-submit; empty: Spark has the data sources already",
    )
    jars: str = Field(
        default="",
        description="Jars to start Spark with instead of fetching packages, comma-separated; "
        "not under spark-submit",
    )
    java_options: str = Field(
        default="", description="Options of Spark's JVM; not under spark-submit"
    )

    @field_validator("compact_files_min")
    @classmethod
    def _refuse_one(cls, value: int) -> int:
        if 0 < value < _FILES_MIN:
            raise ValueError(f"must be 0, or {_FILES_MIN} or more")
        return value

    @field_validator("vacuum_retention_hours")
    @classmethod
    def _refuse_short(cls, value: int) -> int:
        if 0 < value < _VACUUM_HOURS_MIN:
            # Files of a commit that is being written are not in the log yet.
            raise ValueError(f"must be 0, or {_VACUUM_HOURS_MIN} or more")
        return value

    @field_validator("table_properties", "mirror_partition_by", "mirror_cluster_by", mode="before")
    @classmethod
    def _flatten_tables(cls, value: object) -> object:
        """Take names without quotes, which TOML reads as tables, and numbers."""
        return dict(flat_options(value)) if isinstance(value, Mapping) else value

    @field_validator("table_properties")
    @classmethod
    def _refuse_own(cls, value: dict[str, str]) -> dict[str, str]:
        reserved = sorted(
            name for name in value if name in _OWN_PROPERTIES or name.startswith("tidegate.")
        )
        if reserved:
            raise ValueError(f"{', '.join(reserved)}: set by Tidegate; leave them out")
        foreign = sorted(name for name in value if not name.startswith("delta."))
        if foreign:
            raise ValueError(f"{', '.join(foreign)}: Delta's properties begin with delta.")
        return value

    @field_validator("mirror_partition_by", "mirror_cluster_by")
    @classmethod
    def _require_columns(cls, value: dict[str, str]) -> dict[str, str]:
        for table, text in value.items():
            columns = names_in(text)
            if not columns or len(set(columns)) < len(columns):
                raise ValueError(f"{table}: name each column once, and at least one")
        return value

    @model_validator(mode="after")
    def _refuse_both(self) -> Self:
        tables = sorted(self.mirror_partition_by.keys() & self.mirror_cluster_by.keys())
        if tables:
            raise ValueError(
                f"mirror_cluster_by: {', '.join(tables)}: a table in mirror_partition_by cannot be "
                "clustered too"
            )
        return self

    @field_validator("sinks")
    @classmethod
    def _refuse_unknown_sinks(cls, value: str) -> str:
        wanted = names_in(value)
        unknown = sorted(set(wanted).difference(SINKS))
        if unknown:
            raise ValueError(f"{', '.join(map(repr, unknown))}: not one of {', '.join(SINKS)}")
        if not wanted or len(set(wanted)) < len(wanted):
            raise ValueError(f"name each of {', '.join(SINKS)} once at most, and at least one")
        return value

    @field_validator("catalog_schema")
    @classmethod
    def _require_schema(cls, value: str) -> str:
        if value and not _SCHEMA.fullmatch(value):
            raise ValueError(
                f"{value!r}: not the name of a schema; its parts have letters, digits and"
                " underscores, with a dot between them"
            )
        return value

    @field_validator("ordered_topic")
    @classmethod
    def _require_topic(cls, value: str, info: ValidationInfo) -> str:
        if "sinks" not in info.data:  # its own fault is reported
            return value
        has_sink = "topic" in names_in(info.data["sinks"])
        if has_sink and not value:
            raise ValueError("the sink topic needs the name of a topic")
        if value and not has_sink:
            raise ValueError("a topic is published to by the sink topic only: add it to sinks")
        return value

    @field_validator("iceberg_catalog", "iceberg_namespace")
    @classmethod
    def _require_iceberg(cls, value: str, info: ValidationInfo) -> str:
        sinks = info.data.get("sinks")  # None: its own fault is reported
        if value and sinks is not None and not set(_ICEBERG) & set(names_in(sinks)):
            raise ValueError(f"it is for the sinks {' and '.join(_ICEBERG)}: add one to sinks")
        return value

    @field_validator("ordered_topic_partitions")
    @classmethod
    def _require_one_in_total_order(cls, value: int, info: ValidationInfo) -> int:
        order = info.data.get("ordered_topic_order")
        if value > 1 and order in ("total", "transaction"):
            kind = "a total order" if order == "total" else "an order by transaction"
            raise ValueError(f'{kind} has one; set ordered_topic_order to "key" for more')
        return value

    @property
    def sink_names(self) -> tuple[str, ...]:
        """What `sinks` names, in the order in which releases are written to them."""
        return tuple(name for name in SINKS if name in names_in(self.sinks))

    @property
    def has_iceberg(self) -> bool:
        """Whether `sinks` names a sink that needs `ICEBERG_PACKAGES`."""
        return bool(set(_ICEBERG) & set(self.sink_names))

    @property
    def session_packages(self) -> str:
        """`packages`, with those of the Iceberg sinks and the login where these are asked for."""
        if not self.packages:
            return ""
        more = (
            [ICEBERG_PACKAGES] if self.has_iceberg and ICEBERG_RUNTIME not in self.packages else []
        )
        login = LOGIN_PACKAGES.get(self.kafka_login, "")
        more += [login] if login and login.split(":")[1] not in self.packages else []
        return ",".join(filter(None, (self.packages, *more)))

    @field_validator("mirror_accepts")
    @classmethod
    def _refuse_unknown_exclusions(cls, value: str) -> str:
        known = (*EXCLUSIONS, TRANSACTIONS_LEFT_OUT, UNWATCHED_COLUMNS)
        unknown = sorted(set(names_in(value)).difference(known))
        if unknown:
            # As Python writes them: a variable may hold bytes that are not text.
            raise ValueError(f"{', '.join(map(repr, unknown))}: not one of {', '.join(known)}")
        return value

    @property
    def accepted_exclusions(self) -> tuple[str, ...]:
        """What `mirror_accepts` names."""
        return names_in(self.mirror_accepts)

    @field_validator("kafka_options")
    @classmethod
    def _refuse_owned(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        if refused := refusals(value):
            raise ValueError("; ".join(refused))
        return value

    @model_validator(mode="after")
    def _require_both_logins(self) -> Self:
        try:
            self.librdkafka_options()
        except ValueError as error:
            raise ValueError(f"kafka_options: {error}") from None
        return self

    def librdkafka_options(self) -> dict[str, str]:
        """The options that the consumer's own clients get, with Java's words translated."""
        has_login = self.kafka_login != NO_LOGIN
        return librdkafka_options(self.given_kafka_options(), has_login=has_login)
