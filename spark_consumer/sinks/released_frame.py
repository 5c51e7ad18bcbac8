"""A release as one frame over all of its tables, in commit order or by transaction.

It has rows of tables with different columns, so keys and values are VARIANTs; `DecodedTable.frame`
has them typed.

A transaction is one row, however many changes it has.  Those of a backfill have many: all rows of a
key range.  So a task holds few such rows at a time (`wide_rows`), and a row that exceeds Spark's
limit is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.errors import TransactionTooLarge
from tidegate.spark_consumer.sinks.kafka.port import TransactionRecord, transaction_record
from tidegate.spark_consumer.sinks.port import AnyTable, Release
from tidegate.spark_consumer.sinks.sql import session_settings

CHANGE_FIELDS = (
    "release BIGINT, ordinal BIGINT, table STRING, commit_timestamp TIMESTAMP_LTZ, "
    "server_transaction_id STRING, record_sequence STRING, mod_number INT, mod_type STRING, "
    "key VARIANT, new_values VARIANT, old_values VARIANT, new_columns ARRAY<STRING>, "
    "old_columns ARRAY<STRING>, order_key BINARY"
)
"""The columns of `changes_of`, in order."""

TRANSACTION_FIELDS = (
    "release BIGINT, first_ordinal BIGINT, commit_timestamp TIMESTAMP_LTZ, "
    "server_transaction_id STRING, changes ARRAY<STRUCT<ordinal: BIGINT, table: STRING, "
    "record_sequence: STRING, mod_number: INT, mod_type: STRING, key: STRING, new_values: STRING, "
    "old_values: STRING, new_columns: ARRAY<STRING>, old_columns: ARRAY<STRING>>>"
)
"""The columns of `json_transactions_of`, in order."""

KAFKAS_ORDER = ("topic_partition", "offset")
"""The columns that a batch's rows are sorted by."""

_VARIANTS = ("key", "new_values", "old_values")
_CHANGE_FIELDS = (
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
    # Every digit of a timestamp, in one time zone for all sessions.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timeZone": "UTC",
    # A column that is NULL differs from one that was not captured.
    "ignoreNullFields": "false",
}
_ONE_TASK_MAX = 100_000
"""About how many rows one task sorts; fewer rows save the range partitioning and its job."""

_ONE_TASK_BYTES_MAX = 128 * 1024**2
"""About how many bytes, as in Kafka: the driver reads the rows of one task at a time."""

TRANSACTION_BYTES_MAX = 256 * 1024**2
"""As bytes in Kafka.  As text they are several times as long, and a row of Spark's has 2 GB
at most."""

WIDE_ROWS: Mapping[str, str] = {
    # By default a task keeps 128 transactions in Java's memory before it sorts them; from the
    # second one on it sorts, and holds one.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1",
    # By default Parquet's writer looks at its size after a hundred rows.
    "parquet.block.size.row.check.min": "1",
    "parquet.page.size.row.check.min": "1",
}


@contextmanager
def wide_rows(spark: SparkSession) -> Iterator[None]:
    """Within the block, frames by transaction are made and written with few rows in memory.

    `spark` is the session of the release's tables.
    """
    with session_settings(spark, WIDE_ROWS):
        yield


def changes_of(release: Release, spark: SparkSession) -> DataFrame:
    """Return the changes of a release over all tables, a row each, sorted by `ordinal`.

    `spark` makes the frame of a release without a change.
    """
    frames = [
        with_variants(table, CHANGE_FIELDS) for table in release.tables.values() if table.rows
    ]
    if not frames:
        return spark.createDataFrame([], CHANGE_FIELDS)
    changes = reduce(DataFrame.unionByName, frames)
    return in_order(changes, rows=release.rows, value_bytes=release.value_bytes or 0)


def transactions_of(release: Release, spark: SparkSession) -> DataFrame:
    """Return the transactions of a release, a row each, in commit order.

    Columns: release, first_ordinal, commit_timestamp, server_transaction_id, and `changes`: an
    array of the transaction's changes over all tables, sorted by `ordinal`.  Raises
    TransactionTooLarge.
    """
    _require_rows(release)
    return _grouped(changes_of(release, spark), release)


def json_transactions_of(release: Release, spark: SparkSession) -> DataFrame:
    """Return transactions with `TRANSACTION_FIELDS`: keys and values as JSON text.

    Timestamps have six digits and are in UTC, bytes are Base64, numbers keep every digit.  Raises
    TransactionTooLarge.
    """
    _require_rows(release)
    frames = [_as_json(table) for table in release.tables.values() if table.rows]
    if not frames:
        return spark.createDataFrame([], TRANSACTION_FIELDS)
    return _grouped(reduce(DataFrame.unionByName, frames), release)


def _require_rows(release: Release) -> None:
    """Raise TransactionTooLarge if a transaction cannot be a row: one Spark job, or none.

    No transaction is larger than its release.  The number of rows says nothing: the 10,000 of a
    backfill's key range may have gigabytes.
    """
    changed = [table for table in release.tables.values() if table.rows]
    size = release.value_bytes
    if not changed or (size is not None and size <= TRANSACTION_BYTES_MAX):
        return
    place = ("commit_timestamp", "server_transaction_id")
    changes = reduce(
        DataFrame.unionByName, (table.frame.select(*place, "value_bytes") for table in changed)
    )
    sums = changes.groupBy(*place).agg(
        F.sum("value_bytes").alias("bytes"), F.count("*").alias("changes")
    )
    found = sums.agg(
        F.max(F.struct("bytes", "changes", "server_transaction_id")).alias("largest")
    ).collect()[0]["largest"]
    if found["bytes"] > TRANSACTION_BYTES_MAX:
        raise TransactionTooLarge(
            "a transaction is larger than a row can be",
            hint=(
                "Begin with a new checkpoint and output, and with sinks that have a row for each "
                "change: leave transactions and parquet_transactions out of sinks, set "
                "ordered_topic_order to total or key, and give functions the mode commit"
            ),
            release=release.number,
            transaction=found["server_transaction_id"],
            changes=found["changes"],
            bytes=found["bytes"],
            bytes_max=TRANSACTION_BYTES_MAX,
        )


def _grouped(changes: DataFrame, release: Release) -> DataFrame:
    grouped = changes.groupBy("release", "commit_timestamp", "server_transaction_id").agg(
        F.min("ordinal").alias("first_ordinal"),
        F.collect_list(F.struct(*_CHANGE_FIELDS)).alias("changes"),
    )
    transactions = grouped.select(
        "release",
        "first_ordinal",
        "commit_timestamp",
        "server_transaction_id",
        F.array_sort("changes", _by_ordinal).alias("changes"),
    )
    return in_order(
        transactions,
        rows=release.rows,
        by=("first_ordinal",),
        value_bytes=release.value_bytes or 0,
    )


def in_order(
    frame: DataFrame, *, rows: int, by: Sequence[str] = ("ordinal",), value_bytes: int = 0
) -> DataFrame:
    """Return a frame of about `rows` rows sorted over all of its tasks.

    `rows` may count something finer: with `value_bytes` it says how many tasks there are.
    """
    tasks = max(-(-rows // _ONE_TASK_MAX), -(-value_bytes // _ONE_TASK_BYTES_MAX))
    if tasks > 1:
        return frame.repartitionByRange(tasks, *by).sortWithinPartitions(*by)
    return frame.coalesce(1).sortWithinPartitions(*by)


def with_variants(table: AnyTable, fields: str) -> DataFrame:
    """Return a table's rows in these columns, with its name, and keys and values as VARIANTs."""
    columns = {"table": F.lit(table.schemas.table)} | {
        name: F.to_variant_object(name) for name in _VARIANTS
    }
    names = [field.split()[0] for field in fields.split(", ")]
    return table.frame.select(*(columns.get(name, F.col(name)).alias(name) for name in names))


def _as_json(table: AnyTable) -> DataFrame:
    columns = {"table": F.lit(table.schemas.table)} | {
        name: F.to_json(name, _JSON) for name in _VARIANTS
    }
    names = ("release", "commit_timestamp", "server_transaction_id", *_CHANGE_FIELDS)
    return table.frame.select(*(columns.get(name, F.col(name)).alias(name) for name in names))


def _by_ordinal(left: Column, right: Column) -> Column:
    """Compare two changes: Spark's own order would need one for VARIANTs."""
    return (left.getField("ordinal") - right.getField("ordinal")).cast("int")


def transaction_records(release: Release) -> Iterator[TransactionRecord]:
    """Yield a release's transactions in commit order; the driver holds a Spark task's at a time."""
    spark = next(iter(release.tables.values())).spark
    with wide_rows(spark):
        rows = json_transactions_of(release, spark).select(
            F.unix_micros("commit_timestamp"), "server_transaction_id", "changes"
        )
        for commit_us, transaction_id, changes in rows.toLocalIterator():
            yield transaction_record(
                commit_us=commit_us, transaction_id=transaction_id, changes=changes
            )
