"""The columns of a history table: when each version of a row was valid, and the row's own.

Ours come first, so that Delta keeps the bounds of every file for them however wide the row is, and
a reader of one moment opens few files.
"""

from __future__ import annotations

from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.mirror_scope import mirror_schema
from tidegate.spark_consumer.sinks.port import AnyTable

VALID_FROM = "valid_from"
"""Commit timestamp of the change that made the version."""

VALID_TO = "valid_to"
"""Commit timestamp of the change that ended the version, which is no longer valid then; or null."""

IS_CURRENT = "is_current"
"""Whether `valid_to` is null.

The table is partitioned by it: a MERGE rewrites current versions and never those that have ended.
"""

OURS = (VALID_FROM, VALID_TO, IS_CURRENT)


def history_schema(one: AnyTable) -> StructType:
    """Return the columns of a table's history and their types.

    Raises ConfigError where the source table has a column with the name of one of ours.
    """
    row = mirror_schema(one)
    taken = sorted(name for name in row.fieldNames() if name.lower() in OURS)
    if taken:
        raise ConfigError(
            "a table has columns with names that its history table needs",
            hint=(
                "Leave the columns out of the stream (`columns_left_out` of the producer; a column "
                "that is dropped or renamed stays in the topic), or write no history"
            ),
            table=one.schemas.table,
            columns=taken,
        )
    kinds = (TimestampType(), TimestampType(), BooleanType())
    ours = [StructField(name, kind) for name, kind in zip(OURS, kinds, strict=True)]
    return StructType([*ours, *row])
