"""The columns of a history table: when each version of a row was valid, and the row's own.

Ours come first, so that Delta keeps the bounds of every file for them however wide the row is, and
a reader of one moment opens few files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.delta.mirror_scope import mirror_columns, mirror_schema
from tidegate.spark_consumer.sinks.port import AnyTable

_VALID_FROM = "valid_from"
_VALID_TO = "valid_to"
_IS_CURRENT = "is_current"


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """The names of our columns, which all begin with a prefix: lower-case letters, digits, `_`."""

    prefix: str = ""

    @property
    def valid_from(self) -> str:
        """Commit timestamp of the change that made the version."""
        return f"{self.prefix}{_VALID_FROM}"

    @property
    def valid_to(self) -> str:
        """Commit timestamp of the change that ended the version, or null; no longer valid then."""
        return f"{self.prefix}{_VALID_TO}"

    @property
    def is_current(self) -> str:
        """Whether `valid_to` is null.

        The table is partitioned by it: a MERGE rewrites current versions and never those that have
        ended.
        """
        return f"{self.prefix}{_IS_CURRENT}"

    @property
    def names(self) -> tuple[str, str, str]:
        """All of them, in the order of the table."""
        return self.valid_from, self.valid_to, self.is_current

    @property
    def current(self) -> Mapping[str, Any]:
        """The partition of the current versions."""
        return {self.is_current: True}

    def require_free(self, schemas: TopicSchemas) -> None:
        """Raise ConfigError where a source table has a column with the name of one of ours."""
        ours = set(self.names)
        taken = sorted(name for name in mirror_columns(schemas) if name.lower() in ours)
        if taken:
            raise ConfigError(
                "a table has columns with names that its history table needs",
                hint=(
                    "Begin the output with another `history_prefix`, leave the columns out of the "
                    "stream (`columns_left_out` of the producer; a column that is dropped or "
                    "renamed stays in the topic), or write no history"
                ),
                table=schemas.table,
                columns=taken,
            )

    def require_same(self, partitions: tuple[str, ...], *, table: str) -> None:
        """Raise ConfigError for a history table that was begun with another prefix."""
        found = [name for name in partitions if name.endswith(_IS_CURRENT)]
        if found and self.is_current not in found:
            prefix = found[0].removesuffix(_IS_CURRENT)
            raise ConfigError(
                "history_prefix: the output's history tables were begun with another one",
                hint=f'Set history_prefix = "{prefix}", or begin a new output and checkpoint',
                table=table,
                column_in_table=found[0],
                column_by_setting=self.is_current,
            )

    def schema(self, one: AnyTable) -> StructType:
        """Return the columns of a table's history and their types; raises as `require_free`."""
        self.require_free(one.schemas)
        kinds = (TimestampType(), TimestampType(), BooleanType())
        ours = [StructField(name, kind) for name, kind in zip(self.names, kinds, strict=True)]
        return StructType([*ours, *mirror_schema(one)])
