"""A release as one frame over all of its tables, in commit order or by transaction.

Rows of tables with other columns meet in it, so keys and values are VARIANTs; `DecodedTable.frame`
has them typed.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, SparkSession

    from tidegate.spark_consumer.sinks.port import AnyTable, Release

__all__ = [
    "CHANGE_FIELDS",
    "TRANSACTION_FIELDS",
    "changes_of",
    "in_order",
    "json_transactions_of",
    "transactions_of",
    "with_variants",
]

CHANGE_FIELDS = (
    "release BIGINT, ordinal BIGINT, table STRING, commit_timestamp TIMESTAMP, "
    "server_transaction_id STRING, record_sequence STRING, mod_number INT, mod_type STRING, "
    "key VARIANT, new_values VARIANT, old_values VARIANT, new_columns ARRAY<STRING>, "
    "old_columns ARRAY<STRING>, order_key BINARY"
)
"""The columns of `changes_of`, in order."""

TRANSACTION_FIELDS = (
    "release BIGINT, first_ordinal BIGINT, commit_timestamp TIMESTAMP, "
    "server_transaction_id STRING, changes ARRAY<STRUCT<ordinal: BIGINT, table: STRING, "
    "record_sequence: STRING, mod_number: INT, mod_type: STRING, key: STRING, new_values: STRING, "
    "old_values: STRING, new_columns: ARRAY<STRING>, old_columns: ARRAY<STRING>>>"
)
"""The columns of `json_transactions_of`, in order."""

_VARIANTS = ("key", "new_values", "old_values")
_OF_A_CHANGE = (
    "ordinal",
    "table",
    "record_sequence",
    "mod_number",
    "mod_type",
    *_VARIANTS,
    "new_columns",
    "old_columns",
)
_JSON = {
    # Every digit of a timestamp, in one time zone whatever the session's is.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timeZone": "UTC",
    # A column that is NULL differs from one that was not captured.
    "ignoreNullFields": "false",
}
_ONE_TASK_MAX = 100_000
"""So many rows are sorted by one task, without the extra job of a range partitioning."""


def changes_of(release: Release, spark: SparkSession) -> DataFrame:
    """Return the changes of a release over all tables, a row each, sorted by `ordinal`.

    `spark` makes the frame of a release without a change.
    """
    frames = [with_variants(one, CHANGE_FIELDS) for one in release.tables.values() if one.rows]
    if not frames:
        return spark.createDataFrame([], CHANGE_FIELDS)
    return in_order(reduce(DataFrame.unionByName, frames), rows=release.rows)


def transactions_of(release: Release, spark: SparkSession) -> DataFrame:
    """Return the transactions of a release, a row each, in commit order.

    Columns: release, first_ordinal, commit_timestamp, server_transaction_id, and `changes`: an
    array of the transaction's changes over all tables, sorted by `ordinal`.
    """
    return _grouped(changes_of(release, spark), rows=release.rows)


def json_transactions_of(release: Release, spark: SparkSession) -> DataFrame:
    """Return what `transactions_of` does, with `TRANSACTION_FIELDS`: keys and values as JSON text.

    Timestamps have six digits and are in UTC, bytes are Base64, numbers keep every digit.
    """
    frames = [_as_json(one) for one in release.tables.values() if one.rows]
    if not frames:
        return spark.createDataFrame([], TRANSACTION_FIELDS)
    return _grouped(reduce(DataFrame.unionByName, frames), rows=release.rows)


def _grouped(changes: DataFrame, *, rows: int) -> DataFrame:
    grouped = changes.groupBy("release", "commit_timestamp", "server_transaction_id").agg(
        F.min("ordinal").alias("first_ordinal"),
        F.collect_list(F.struct(*_OF_A_CHANGE)).alias("changes"),
    )
    transactions = grouped.select(
        "release",
        "first_ordinal",
        "commit_timestamp",
        "server_transaction_id",
        F.array_sort("changes", _by_ordinal).alias("changes"),
    )
    return in_order(transactions, rows=rows, by=("first_ordinal",))


def in_order(frame: DataFrame, *, rows: int, by: Sequence[str] = ("ordinal",)) -> DataFrame:
    """Return a frame of about `rows` rows sorted over all of its tasks."""
    if rows > _ONE_TASK_MAX:
        return frame.orderBy(*by)
    return frame.coalesce(1).sortWithinPartitions(*by)


def with_variants(one: AnyTable, fields: str) -> DataFrame:
    """Return a table's rows in these columns, with its name, and keys and values as VARIANTs."""
    columns = {"table": F.lit(one.schemas.table)} | {
        name: F.to_variant_object(name) for name in _VARIANTS
    }
    names = [field.split()[0] for field in fields.split(", ")]
    return one.frame.select(*(columns.get(name, F.col(name)).alias(name) for name in names))


def _as_json(one: AnyTable) -> DataFrame:
    columns = {"table": F.lit(one.schemas.table)} | {
        name: F.to_json(name, _JSON) for name in _VARIANTS
    }
    names = ("release", "commit_timestamp", "server_transaction_id", *_OF_A_CHANGE)
    return one.frame.select(*(columns.get(name, F.col(name)).alias(name) for name in names))


def _by_ordinal(left: Column, right: Column) -> Column:
    """Compare two changes: Spark's own order would need one for VARIANTs."""
    return (left.getField("ordinal") - right.getField("ordinal")).cast("int")
